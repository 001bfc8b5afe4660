//! Shared subscriptions.

use quantumqtt_machine::{AckKind, Command, OpenSession, Publish, SubscriptionOptions};
use quantumqtt_wire::QoS;

use crate::rig::{Rig, only, opening, publishing};

const FILTER: &str = "$share/workers/t";

fn publish(rig: &mut Rig, qos: QoS, payload: &str) -> Vec<String> {
    only(&rig.run(Command::Publish(publishing(9, qos, "t", payload))), "publish")
}

// req: SUB-12
#[test]
fn each_message_goes_to_one_member_by_turns() {
    let mut rig = Rig::new();
    for client_id in ["a", "b", "c"] {
        rig.connect_to(client_id, FILTER, QoS::AtLeastOnce);
    }
    rig.connect_to("plain", "t", QoS::AtMostOnce);
    for turn in ["c1", "c2", "c3", "c1", "c2"] {
        let lines = publish(&mut rig, QoS::AtLeastOnce, "x");
        assert_eq!(lines.len(), 2, "one copy for the group, one for the plain subscriber");
        assert_eq!(only(&lines, &format!("publish {turn} ")).len(), 1, "{lines:?}");
    }
}

// req: SUB-14
#[test]
fn members_that_are_away_or_full_are_passed_over() {
    let mut rig = Rig::new();
    let away = rig.connect_to("away", FILTER, QoS::AtLeastOnce);
    let (slow, _) = rig.open(OpenSession { receive_maximum: 1, ..opening("slow") });
    rig.run(slow.subscribe(FILTER, SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    rig.connect_to("quick", FILTER, QoS::AtLeastOnce);
    rig.lose(away);
    assert_eq!(publish(&mut rig, QoS::AtLeastOnce, "1"), ["publish c2 #1 t=1 q1"]);
    for payload in ["2", "3", "4"] {
        let lines = publish(&mut rig, QoS::AtLeastOnce, payload);
        assert!(lines[0].starts_with("publish c3 "), "{lines:?}");
    }
    rig.run(slow.ack(AckKind::PubAck, 1));
    assert_eq!(publish(&mut rig, QoS::AtLeastOnce, "5"), ["publish c2 #2 t=5 q1"]);
}

// req: SUB-12
#[test]
fn a_group_that_is_all_away_keeps_each_message_once() {
    let mut rig = Rig::new();
    let links = ["a", "b"].map(|client_id| rig.connect_to(client_id, FILTER, QoS::AtLeastOnce));
    for link in links {
        rig.lose(link);
    }
    for payload in ["1", "2", "3"] {
        assert_eq!(publish(&mut rig, QoS::AtLeastOnce, payload), [""; 0]);
    }
    assert_eq!(rig.machine.statistics().queued, 3);
    publish(&mut rig, QoS::AtMostOnce, "lost");
    assert_eq!(rig.machine.statistics().counters.share_unserved, 1);
    let kept: Vec<String> =
        ["a", "b"].iter().flat_map(|client_id| rig.open(opening(client_id)).1).collect();
    assert_eq!(only(&kept, "publish").len(), 3);
}

#[test]
fn a_shared_subscription_receives_no_retained_messages() {
    let mut rig = Rig::new();
    let retained = Publish { retain: true, ..publishing(9, QoS::AtLeastOnce, "t", "x") };
    rig.run(Command::Publish(retained));
    let link = rig.connect("a");
    let lines = rig.run(link.subscribe(FILTER, SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    assert_eq!(lines, ["suback c1 [1]"]);
}

#[test]
fn a_session_that_ends_leaves_its_groups() {
    let mut rig = Rig::new();
    rig.connect_to("a", FILTER, QoS::AtLeastOnce);
    assert_eq!(rig.machine.statistics().share_groups, 1);
    rig.open(OpenSession { clean_start: true, ..opening("a") });
    assert_eq!(rig.machine.statistics().share_groups, 0);
}

// req: SUB-12
#[test]
fn what_a_member_may_not_read_goes_to_the_next_and_is_lost_only_when_nobody_may() {
    let mut rig = Rig::new();
    let [a, b, c] = ["a", "b", "c"].map(|id| rig.connect_to(id, FILTER, QoS::ExactlyOnce));
    assert_eq!(publish(&mut rig, QoS::AtLeastOnce, "x"), ["publish c1 #1 t=x q1"]);
    assert_eq!(only(&rig.run(a.ack(AckKind::Declined, 1)), "publish"), ["publish c2 #1 t=x q1"]);
    assert_eq!(only(&rig.run(b.ack(AckKind::Declined, 1)), "publish"), ["publish c3 #1 t=x q1"]);
    assert_eq!(rig.machine.statistics().counters.share_unserved, 0);
    assert_eq!(rig.run(c.ack(AckKind::Declined, 1)), [""; 0], "all were asked");
    assert_eq!(rig.machine.statistics().counters.share_unserved, 1);
    assert_eq!(rig.machine.statistics().in_flight, 0);
}

#[test]
fn declining_costs_nobody_a_turn_and_does_not_touch_other_subscriptions() {
    let mut rig = Rig::new();
    let [a, _b] = ["a", "b"].map(|id| rig.connect_to(id, FILTER, QoS::AtLeastOnce));
    let plain = rig.connect_to("plain", "t", QoS::AtLeastOnce);
    publish(&mut rig, QoS::AtLeastOnce, "1");
    assert_eq!(rig.run(plain.ack(AckKind::Declined, 1)), [""; 0], "nobody else's");
    assert_eq!(only(&rig.run(a.ack(AckKind::Declined, 1)), "publish"), ["publish c2 #1 t=1 q1"]);
    let lines = publish(&mut rig, QoS::AtLeastOnce, "2");
    assert_eq!(only(&lines, "publish c2 ").len(), 1, "its turn was next: {lines:?}");
    assert_eq!(rig.run(a.ack(AckKind::Declined, 1)), [""; 0], "twice is once");
}

#[test]
fn a_declined_message_waits_for_a_member_that_is_away() {
    let mut rig = Rig::new();
    let [a, b] = ["a", "b"].map(|id| rig.connect_to(id, FILTER, QoS::AtLeastOnce));
    rig.lose(b);
    publish(&mut rig, QoS::AtLeastOnce, "1");
    assert_eq!(rig.run(a.ack(AckKind::Declined, 1)), [""; 0]);
    assert_eq!(rig.machine.statistics().queued, 1);
    let (_, lines) = rig.open(opening("b"));
    assert_eq!(only(&lines, "publish"), ["publish c3 #1 t=1 q1"]);
}
