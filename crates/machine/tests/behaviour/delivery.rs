//! Publishing, windows, packet ids, acknowledgements.

use quantumqtt_machine::{
    AckKind, ClientAck, Command, Limits, OpenSession, Publish, SubscriptionOptions,
};
use quantumqtt_wire::{QoS, ReasonCode};

use crate::rig::{Rig, only, opening, publishing};

fn publish(rig: &mut Rig, qos: QoS, payload: &str) -> Vec<String> {
    rig.run(Command::Publish(publishing(9, qos, "t", payload)))
}

#[test]
fn a_publish_is_recorded_answered_and_delivered() {
    let mut rig = Rig::new();
    rig.connect_to("a", "t", QoS::AtLeastOnce);
    let lines = publish(&mut rig, QoS::ExactlyOnce, "x");
    assert_eq!(
        lines,
        ["append @0 t=x q2 Mqtt of transient/0 seq 1", "pubrec c99 #9", "publish c1 #1 t=x q1"]
    );
    assert_eq!(publish(&mut rig, QoS::AtMostOnce, "y")[1..], ["publish c1 t=y q0"]);
}

#[test]
fn the_same_topic_twice_goes_to_whoever_subscribes_at_each_time() {
    let mut rig = Rig::new();
    let one = rig.connect_to("a", "t", QoS::AtLeastOnce);
    assert_eq!(only(&publish(&mut rig, QoS::AtLeastOnce, "x"), "publish").len(), 1);
    rig.connect_to("b", "#", QoS::AtLeastOnce);
    assert_eq!(only(&publish(&mut rig, QoS::AtLeastOnce, "x"), "publish").len(), 2);
    let other = rig.run(Command::Publish(publishing(9, QoS::AtLeastOnce, "t/u", "x")));
    assert_eq!(only(&other, "publish").len(), 1);
    rig.run(one.unsubscribe(&["t"]));
    assert_eq!(only(&publish(&mut rig, QoS::AtLeastOnce, "x"), "publish").len(), 1);
}

#[test]
fn a_captured_message_is_recorded_and_not_delivered_again() {
    let mut rig = Rig::new();
    rig.connect_to("a", "t", QoS::AtLeastOnce);
    let captured = Publish { captured: true, ..publishing(0, QoS::AtMostOnce, "t", "x") };
    let lines = rig.run(Command::Publish(captured));
    assert_eq!(lines, ["append @0 t=x q0 Mqtt of transient/0 seq 1 captured"]);
}

//
//
#[test]
fn an_open_qos_2_id_is_answered_again_and_not_delivered_again() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    let first = Command::Publish(link.publish(1, QoS::ExactlyOnce, "t", "x"));
    assert_eq!(rig.run(first.clone()).len(), 3);
    for _ in 0..1000 {
        assert_eq!(rig.run(first.clone()), ["pubrec c1 #1"]);
    }
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.next_offset, statistics.counters.duplicate_publishes), (1, 1000));
}

//
#[test]
fn the_first_content_under_an_open_id_wins_and_another_is_counted() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    rig.run(Command::Publish(link.publish(1, QoS::ExactlyOnce, "t", "first")));
    for (payload, conflicts) in [("first", 0), ("second", 1)] {
        let lines = rig.run(Command::Publish(link.publish(1, QoS::ExactlyOnce, "t", payload)));
        assert_eq!(lines, ["pubrec c1 #1"]);
        assert_eq!(rig.machine.statistics().counters.conflicting_duplicates, conflicts);
    }
}

// req: QOS-05
//
#[test]
fn after_pubcomp_the_same_id_carries_a_new_message() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    for round in 0..100_000_u64 {
        let effects = rig.apply(Command::Publish(link.publish(1, QoS::ExactlyOnce, "t", "x")));
        assert_eq!(effects.len(), 2);
        assert_eq!(rig.machine.statistics().next_offset, round + 1);
        assert_eq!(rig.apply(link.release(1)).len(), 1);
    }
}

// req: QOS-06
#[test]
fn pubrel_for_an_unknown_id_is_completed_and_says_so() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    assert_eq!(rig.run(link.release(3)), ["pubcomp c1 #3 0x92"]);
    rig.run(Command::Publish(link.publish(3, QoS::ExactlyOnce, "t", "x")));
    assert_eq!(rig.run(link.release(3)), ["pubcomp c1 #3"]);
    assert_eq!(rig.run(link.release(3)), ["pubcomp c1 #3 0x92"]);
}

#[test]
fn more_open_exchanges_than_allowed_are_refused_and_not_recorded() {
    let mut rig = Rig::with_limits(Limits { received_max: 2, ..Limits::default() });
    let link = rig.connect("a");
    for packet_id in [1, 2] {
        rig.run(Command::Publish(link.publish(packet_id, QoS::ExactlyOnce, "t", "x")));
    }
    let third = Command::Publish(link.publish(3, QoS::ExactlyOnce, "t", "x"));
    assert_eq!(rig.run(third.clone()), ["pubrec c1 #3 0x97"]);
    rig.run(link.release(1));
    assert_eq!(only(&rig.run(third), "pubrec"), ["pubrec c1 #3"]);
}

// req: QOS-07
#[test]
fn a_qos_2_exchange_ends_at_pubcomp_and_not_before() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    publish(&mut rig, QoS::ExactlyOnce, "x");
    assert_eq!(rig.run(link.ack(AckKind::PubComp, 1)), [""; 0]);
    assert_eq!(rig.run(link.ack(AckKind::PubRec, 1)), ["pubrel c1 #1"]);
    assert_eq!(rig.run(link.ack(AckKind::PubRec, 1)), ["pubrel c1 #1"]);
    assert_eq!(rig.machine.statistics().in_flight, 1);
    assert_eq!(rig.run(link.ack(AckKind::PubComp, 1)), [""; 0]);
    assert_eq!(rig.machine.statistics().in_flight, 0);
    assert_eq!(rig.run(link.ack(AckKind::PubRec, 1)), ["pubrel c1 #1 0x92"]);
}

// req: QOS-07
#[test]
fn an_error_in_pubrec_ends_the_exchange_without_pubrel() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    publish(&mut rig, QoS::ExactlyOnce, "x");
    let refused = ClientAck {
        client_id: "a",
        session_epoch: link.epoch,
        packet_id: 1,
        kind: AckKind::PubRec,
        reason: ReasonCode::QUOTA_EXCEEDED,
    };
    assert_eq!(rig.run(Command::ClientAck(refused)), [""; 0]);
    assert_eq!(rig.machine.statistics().in_flight, 0);
}

// req: QOS-09
#[test]
fn beyond_the_window_messages_wait_in_order_and_qos_0_does_not() {
    let mut rig = Rig::new();
    let (link, _) = rig.open(OpenSession { receive_maximum: 2, ..opening("a") });
    rig.run(link.subscribe("t", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    for payload in ["1", "2", "3", "4"] {
        publish(&mut rig, QoS::AtLeastOnce, payload);
    }
    assert_eq!(
        only(&publish(&mut rig, QoS::AtMostOnce, "now"), "publish"),
        ["publish c1 t=now q0"]
    );
    assert_eq!(rig.machine.statistics().queued, 2);
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 2)), ["publish c1 #3 t=3 q1"]);
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 2)), [""; 0], "an id frees its place once");
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 1)), ["publish c1 #4 t=4 q1"]);
}

// req: SES-26
#[test]
fn the_window_is_1024_whatever_the_client_would_take() {
    let mut rig = Rig::new();
    rig.connect_to("a", "t", QoS::AtLeastOnce);
    for _ in 0..1_100 {
        rig.apply(Command::Publish(publishing(9, QoS::AtLeastOnce, "t", "x")));
    }
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.in_flight, statistics.queued), (1024, 76));
}

#[test]
fn a_packet_the_client_cannot_take_is_dropped_as_if_acknowledged() {
    let mut rig = Rig::new();
    let (link, _) =
        rig.open(OpenSession { receive_maximum: 1, maximum_packet_bytes: 20, ..opening("a") });
    rig.run(link.subscribe("t", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    let lines = publish(&mut rig, QoS::AtLeastOnce, "far too long for twenty bytes");
    assert_eq!(only(&lines, "publish"), [""; 0]);
    assert_eq!(
        only(&publish(&mut rig, QoS::AtLeastOnce, "x"), "publish"),
        ["publish c1 #2 t=x q1"]
    );
    assert_eq!(rig.machine.statistics().counters.oversized_dropped, 1);
}

#[test]
fn a_returning_client_that_takes_less_is_spared_what_it_cannot_take() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    for payload in ["far too long for twenty bytes", "x"] {
        publish(&mut rig, QoS::AtLeastOnce, payload);
    }
    rig.lose(link);
    let (_, lines) = rig.open(OpenSession { maximum_packet_bytes: 20, ..opening("a") });
    assert_eq!(lines[1..], ["publish c2 #2 t=x q1 dup"]);
    assert_eq!(rig.machine.statistics().in_flight, 1);
    assert_eq!(rig.machine.check_invariants(), Ok(()));
}

#[test]
fn offsets_are_dense_whatever_is_refused_in_between() {
    let mut rig = Rig::with_limits(Limits { received_max: 0, ..Limits::default() });
    let link = rig.connect("a");
    for expected in 0..3 {
        rig.run(Command::Publish(link.publish(1, QoS::ExactlyOnce, "t", "refused")));
        let lines = publish(&mut rig, QoS::AtLeastOnce, "x");
        assert!(lines[0].starts_with(&format!("append @{expected} ")), "{lines:?}");
    }
}
