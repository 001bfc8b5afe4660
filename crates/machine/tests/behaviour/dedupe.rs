//! A publish under a key that was accepted is answered as the first was, and is no second message.

use quantumqtt_machine::{
    Command, DEDUPE_HORIZON_MS, DedupeKey, Limits, OpenSession, Publish, SubscriptionOptions,
};
use quantumqtt_wire::QoS;

use crate::checkpoint::{checkpoint, restore};
use crate::rig::{Rig, only, opening, publishing};

fn keyed<'a>(identity: &'a str, key: &'a str, publish: Publish<'a>) -> Command<'a> {
    Command::Publish(Publish { dedupe: Some(DedupeKey { identity, key }), ..publish })
}

fn once(packet_id: u16, key: &str) -> Command<'_> {
    keyed("", key, publishing(packet_id, QoS::AtLeastOnce, "t", "x"))
}

#[test]
fn a_repeat_is_acknowledged_and_not_published() {
    let mut rig = Rig::new();
    rig.connect_to("reader", "#", QoS::AtLeastOnce);
    let first = rig.run(once(1, "k"));
    assert_eq!(only(&first, "append").len() + only(&first, "publish").len(), 2);
    // Another packet id, another topic, another content, another client: the key decides.
    let again = Publish { client_id: "other", ..publishing(7, QoS::AtLeastOnce, "u", "y") };
    assert_eq!(rig.run(keyed("", "k", again)), ["puback c99 #7"]);
    assert_eq!(only(&rig.run(once(8, "l")), "append").len(), 1, "another key");
    assert_eq!(rig.machine.statistics().counters.deduplicated_publishes, 1);
    assert_eq!(rig.machine.statistics().dedupe_keys, 2);
}

#[test]
fn keys_belong_to_identities() {
    let mut rig = Rig::new();
    for identity in ["", "ada", "bob"] {
        let publish = || keyed(identity, "k", publishing(1, QoS::AtLeastOnce, "t", "x"));
        assert_eq!(only(&rig.run(publish()), "append").len(), 1, "{identity:?}");
        assert_eq!(rig.run(publish()), ["puback c99 #1"], "{identity:?}");
    }
}

#[test]
fn a_key_counts_for_a_day_by_the_time_of_entries_and_repeats_do_not_prolong_it() {
    let mut rig = Rig::new();
    rig.run(once(1, "k"));
    rig.now_ms += DEDUPE_HORIZON_MS - 1;
    assert_eq!(rig.run(once(2, "k")), ["puback c99 #2"]);
    rig.now_ms += 1;
    assert_eq!(only(&rig.run(once(3, "k")), "append").len(), 1);
    rig.tick(DEDUPE_HORIZON_MS);
    assert_eq!(rig.machine.statistics().dedupe_keys, 0, "a tick sweeps");
}

#[test]
fn the_packet_id_of_an_exactly_once_repeat_is_held_until_pubrel() {
    let mut rig = Rig::new();
    let link = rig.connect("sender");
    let publish = |packet_id| keyed("", "k", link.publish(packet_id, QoS::ExactlyOnce, "t", "x"));
    assert_eq!(only(&rig.run(publish(1)), "append").len(), 1);
    assert_eq!(rig.run(publish(2)), ["pubrec c1 #2"]);
    assert_eq!(rig.run(publish(2)), ["pubrec c1 #2"], "the same once more");
    assert_eq!(rig.run(link.release(2)), ["pubcomp c1 #2"]);
    assert_eq!(rig.run(link.release(1)), ["pubcomp c1 #1"]);
    assert_eq!(rig.machine.statistics().counters.duplicate_publishes, 1);
}

#[test]
fn a_refused_publish_leaves_no_key_and_a_known_one_is_not_refused() {
    let mut rig = Rig::with_limits(Limits { retained_bytes_max: 4, ..Limits::default() });
    let retain = |key, topic, payload| {
        let publish = publishing(1, QoS::AtLeastOnce, topic, payload);
        keyed("", key, Publish { retain: true, ..publish })
    };
    assert_eq!(rig.run(retain("k", "t", "much too long")), ["puback c99 #1 0x97"]);
    assert_eq!(only(&rig.run(retain("k", "t", "abc")), "append").len(), 1);
    assert_eq!(rig.run(retain("k", "u", "much too long")), ["puback c99 #1"], "known");
}

#[test]
fn a_publish_of_a_connection_that_was_taken_over_leaves_no_key() {
    let mut rig = Rig::new();
    let old = rig.connect("sender");
    let new = rig.connect("sender");
    let publish =
        |link: crate::rig::Link| keyed("", "k", link.publish(1, QoS::AtLeastOnce, "t", "x"));
    assert!(rig.run(publish(old)).is_empty());
    assert_eq!(only(&rig.run(publish(new)), "append").len(), 1);
}

// A machine that is restored between a publish and its repeat knows the key, the same one that was
// never stopped forgets when it does, and both give the same digest.
#[test]
fn keys_survive_a_checkpoint_and_expire_behind_it() {
    let mut rig = Rig::new();
    let open = OpenSession { identity: "ada", ..opening("reader") };
    let (link, _) = rig.open(open);
    rig.run(link.subscribe("t", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    for key in ["k", "l"] {
        rig.run(once(1, key));
        rig.now_ms += 1_000;
    }
    let machine = restore(&checkpoint(&mut rig.machine, 512)).unwrap().machine;
    assert_eq!(machine.digest(), rig.machine.digest());
    let mut second = Rig::new();
    second.machine = machine;
    second.now_ms = rig.now_ms + DEDUPE_HORIZON_MS - 1_500;
    rig.now_ms = second.now_ms;
    for rig in [&mut rig, &mut second] {
        assert_eq!(only(&rig.run(once(2, "k")), "append").len(), 1, "its day is over");
        assert_eq!(rig.run(once(3, "l")), ["puback c99 #3"]);
    }
    assert_eq!(second.machine.digest(), rig.machine.digest());
}
