//! Retained messages.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quantumqtt_machine::{
    AckKind, Command, Limits, OpenSession, Publish, RetainHandling, SubscriptionOptions,
};
use quantumqtt_topics::Filter;
use quantumqtt_wire::QoS;

use crate::rig::{Rig, only, opening, publishing};

fn retained<'a>(topic: &'a str, payload: &'a str) -> Publish<'a> {
    Publish { retain: true, ..publishing(9, QoS::AtLeastOnce, topic, payload) }
}

fn retain(rig: &mut Rig, topic: &str, payload: &str) -> Vec<String> {
    rig.run(Command::Publish(retained(topic, payload)))
}

fn options(retain_handling: RetainHandling) -> SubscriptionOptions {
    SubscriptionOptions { retain_handling, ..SubscriptionOptions::with_qos(QoS::AtLeastOnce) }
}

// req: RET-01
#[test]
fn a_topic_has_at_most_one_retained_message_the_last() {
    let mut rig = Rig::new();
    retain(&mut rig, "t", "old");
    retain(&mut rig, "t", "new");
    assert_eq!(rig.machine.statistics().retained, 1);
    let link = rig.connect("a");
    let lines = rig.run(link.subscribe("t", options(RetainHandling::Send)));
    assert_eq!(lines, ["suback c1 [1]", "publish c1 #1 t=new q1 retain"]);
}

// req: RET-02
#[test]
fn an_empty_retained_message_deletes_and_is_delivered() {
    let mut rig = Rig::new();
    retain(&mut rig, "t", "x");
    rig.connect_to("live", "t", QoS::AtMostOnce);
    let lines = retain(&mut rig, "t", "");
    assert_eq!(only(&lines, "publish"), ["publish c1 t= q0"]);
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.retained, statistics.retained_bytes), (0, 0));
}

// req: RET-03
#[test]
fn retain_handling_decides_when_they_are_sent() {
    for (handling, first, second) in [
        (RetainHandling::Send, 1, 1),
        (RetainHandling::SendIfNew, 1, 0),
        (RetainHandling::DoNotSend, 0, 0),
    ] {
        let mut rig = Rig::new();
        retain(&mut rig, "t", "x");
        let link = rig.connect("a");
        for expected in [first, second] {
            let lines = rig.run(link.subscribe("t", options(handling)));
            assert_eq!(only(&lines, "publish").len(), expected, "{handling:?}");
        }
    }
}

// req: RET-11
#[test]
fn they_keep_their_qos_and_lose_their_time() {
    let mut rig = Rig::new();
    let limited = Publish { expiry_s: Some(10), ..retained("t", "x") };
    rig.run(Command::Publish(limited));
    assert_eq!(rig.machine.next_deadline_ms(), Some(rig.now_ms + 10_000));
    rig.now_ms += 4_000;
    let link = rig.connect("a");
    let two = SubscriptionOptions::with_qos(QoS::ExactlyOnce);
    assert_eq!(rig.run(link.subscribe("t", two))[1], "publish c1 #1 t=x q1 retain expires 6");
    rig.now_ms += 6_000;
    assert_eq!(rig.run(link.subscribe("t", two)).len(), 1, "not even before the tick");
    rig.tick(0);
    assert_eq!(rig.machine.statistics().retained, 0);
}

#[test]
fn a_replacement_takes_the_old_deadline_away() {
    let mut rig = Rig::new();
    rig.run(Command::Publish(Publish { expiry_s: Some(10), ..retained("t", "x") }));
    retain(&mut rig, "t", "for ever");
    assert_eq!(rig.machine.next_deadline_ms(), None);
    rig.tick(60_000);
    assert_eq!(rig.machine.statistics().retained, 1);
    // The same millisecond again: the new message's deadline must survive the old one's removal.
    for _ in 0..2 {
        rig.run(Command::Publish(Publish { expiry_s: Some(1), ..retained("t", "x") }));
    }
    assert_eq!(rig.machine.next_deadline_ms(), Some(rig.now_ms + 1_000));
    retain(&mut rig, "t", "");
    assert_eq!(rig.machine.next_deadline_ms(), None);
}

// req: RET-06
#[test]
fn a_full_quota_refuses_and_deletes_still_work() {
    let mut rig = Rig::with_limits(Limits { retained_bytes_max: 10, ..Limits::default() });
    retain(&mut rig, "t", "12345");
    assert_eq!(retain(&mut rig, "u", "123456"), ["puback c99 #9 0x97"]);
    assert_eq!(only(&retain(&mut rig, "t", "123456789"), "puback"), ["puback c99 #9"]);
    assert_eq!(only(&retain(&mut rig, "t", ""), "puback"), ["puback c99 #9"]);
    assert_eq!(only(&retain(&mut rig, "u", "123456"), "puback"), ["puback c99 #9"]);
}

fn topic() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof!["a", "b", "", "\\$x"], 1..4)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("a topic is not empty", |topic| !topic.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop_oneof!["a", "b", "", "\\+", "\\$x"];
    (proptest::collection::vec(level, 1..4), any::<bool>())
        .prop_map(|(levels, hash)| levels.join("/") + if hash { "/#" } else { "" })
        .prop_filter("a filter is not empty", |filter| !filter.is_empty())
}

proptest! {
    // req: RET-03
    #[test]
    fn a_new_subscription_receives_what_a_naive_matcher_finds(
        publishes in proptest::collection::vec((topic(), "[xy]?"), 0..20),
        filter in filter(),
    ) {
        let mut rig = Rig::new();
        let mut expected = BTreeMap::new();
        for (topic, payload) in &publishes {
            retain(&mut rig, topic, payload);
            if payload.is_empty() {
                expected.remove(topic.as_str());
            } else {
                expected.insert(topic.as_str(), payload.as_str());
            }
        }
        let parsed = Filter::parse(&filter).unwrap();
        let expected: Vec<String> = expected
            .iter()
            .filter(|(topic, _)| parsed.matches(topic))
            .map(|(topic, payload)| format!("publish c1 {topic}={payload} q0 retain"))
            .collect();
        let link = rig.connect("a");
        let options = SubscriptionOptions::with_qos(QoS::AtMostOnce);
        let found = rig.run(link.subscribe(&filter, options));
        prop_assert_eq!(only(&found, "publish"), expected);
    }
}

fn house_of(count: u16, window_max: u16) -> Rig {
    let limits = Limits { window_max, queue_count_max: 3, ..Limits::default() };
    let mut rig = Rig::with_limits(limits);
    for number in 0..count {
        retain(&mut rig, &format!("t/{number:03}"), "x");
    }
    rig
}

// req: RET-03
#[test]
fn more_than_window_and_backlog_hold_come_as_the_window_drains() {
    let mut rig = house_of(100, 4);
    let link = rig.connect("a");
    let mut received = rig.run(link.subscribe("#", options(RetainHandling::Send)));
    assert_eq!(only(&received, "publish").len(), 4, "no more than the window takes");
    for packet_id in 1..=100 {
        received.extend(rig.run(link.ack(AckKind::PubAck, packet_id)));
    }
    let expected: Vec<String> =
        (0..100).map(|n| format!("publish c1 #{} t/{n:03}=x q1 retain", n + 1)).collect();
    assert_eq!(only(&received, "publish"), expected);
    assert_eq!(only(&received, "ended").len(), 0);
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.queued, statistics.in_flight), (0, 0));
}

#[test]
fn what_is_live_does_not_wait_behind_what_is_old_and_nothing_comes_twice() {
    let mut rig = house_of(4, 2);
    let link = rig.connect("a");
    let first = rig.run(link.subscribe("t/#", options(RetainHandling::Send)));
    assert_eq!(only(&first, "publish").len(), 2);
    retain(&mut rig, "t/003", "newer");
    rig.run(Command::Publish(retained("t/9", "later")));
    retain(&mut rig, "t/000", "");
    let mut lines = Vec::new();
    for packet_id in 1..=6 {
        lines.extend(rig.run(link.ack(AckKind::PubAck, packet_id)));
    }
    assert_eq!(
        lines,
        [
            "publish c1 #3 t/003=newer q1",
            "publish c1 #4 t/9=later q1",
            "publish c1 #5 t/000= q1",
            "publish c1 #6 t/002=x q1 retain",
        ]
    );
}

#[test]
fn a_replay_goes_on_with_the_next_connection_and_ends_with_its_subscription() {
    let mut rig = house_of(6, 2);
    let link = rig.connect("a");
    rig.run(link.subscribe("t/#", options(RetainHandling::Send)));
    rig.run(link.ack(AckKind::PubAck, 1));
    rig.lose(link);
    let view = rig.machine.session_view("a").unwrap();
    assert_eq!(view.replays, ["t/#".into()]);
    let (link, lines) = rig.open(opening("a"));
    let repeated = ["publish c2 #2 t/001=x q1 dup retain", "publish c2 #3 t/002=x q1 dup retain"];
    assert_eq!(only(&lines, "publish"), repeated);
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 2)), ["publish c2 #4 t/003=x q1 retain"]);
    rig.run(link.unsubscribe(&["t/#"]));
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 3)), [""; 0]);
    assert_eq!(rig.machine.session_view("a").unwrap().replays, []);
    assert_eq!(rig.machine.check_invariants(), Ok(()));
}

#[test]
fn subscribing_again_begins_again_only_if_asked_to() {
    let mut rig = house_of(4, 2);
    let link = rig.connect("a");
    rig.run(link.subscribe("t/#", options(RetainHandling::Send)));
    for (handling, next) in [(RetainHandling::SendIfNew, "t/002"), (RetainHandling::Send, "t/000")]
    {
        assert_eq!(only(&rig.run(link.subscribe("t/#", options(handling))), "publish").len(), 0);
        let packet_id = if next == "t/002" { 1 } else { 2 };
        let lines = rig.run(link.ack(AckKind::PubAck, packet_id));
        assert_eq!(lines, [format!("publish c1 #{} {next}=x q1 retain", packet_id + 2)]);
    }
}

#[test]
fn what_a_client_cannot_take_holds_up_no_replay() {
    let mut rig = Rig::with_limits(Limits { window_max: 1, ..Limits::default() });
    retain(&mut rig, "a", "short");
    retain(&mut rig, "b", &"long".repeat(100));
    retain(&mut rig, "c", "short");
    let (link, _) = rig.open(OpenSession { maximum_packet_bytes: 40, ..opening("x") });
    rig.run(link.subscribe("#", options(RetainHandling::Send)));
    let lines = rig.run(link.ack(AckKind::PubAck, 1));
    assert_eq!(lines, ["publish c1 #3 c=short q1 retain"]);
    assert_eq!(rig.machine.statistics().counters.oversized_dropped, 1);
    rig.run(link.ack(AckKind::PubAck, 3));
    assert_eq!(rig.machine.statistics().in_flight, 0, "its packet id was given back");
}
