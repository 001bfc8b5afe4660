//! Retained messages.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quantumqtt_machine::{Command, Limits, Publish, RetainHandling, SubscriptionOptions};
use quantumqtt_topics::Filter;
use quantumqtt_wire::QoS;

use crate::rig::{Rig, only, publishing};

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
