//! Opening, resuming, takeover, ends.

use quantumqtt_machine::{
    AckKind, Command, ConnectionLost, Limits, OpenSession, Overflow, Publish, SubscriptionOptions,
};
use quantumqtt_wire::QoS;

use crate::rig::{Rig, only, opening, publishing, will};

fn publish(rig: &mut Rig, payload: &str) -> Vec<String> {
    rig.run(Command::Publish(publishing(9, QoS::AtLeastOnce, "t", payload)))
}

// req: SES-03
#[test]
fn the_first_opening_creates_a_session_and_says_so() {
    let mut rig = Rig::new();
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines, ["opened c1 a epoch 1 incarnation 1 []"]);
}

// req: SES-02
// req: SES-05
// see: X-18
#[test]
fn a_returning_client_finds_its_subscriptions_at_work() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    assert_eq!(rig.lose(link), [""; 0]);
    assert_eq!(rig.machine.statistics().subscriptions, 1);
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines, [r#"resumed c2 a epoch 2 incarnation 1 ["t"]"#]);
    assert_eq!(only(&publish(&mut rig, "x"), "publish"), ["publish c2 #1 t=x q1"]);
}

// req: SES-01
#[test]
fn a_clean_start_throws_everything_away() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    rig.lose(link);
    publish(&mut rig, "kept");
    let (_, lines) = rig.open(OpenSession { clean_start: true, ..opening("a") });
    assert_eq!(lines, ["ended a epoch 1 Discarded", "opened c2 a epoch 2 incarnation 2 []"]);
    assert_eq!(only(&publish(&mut rig, "x"), "publish"), [""; 0]);
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.subscriptions, statistics.queued, statistics.sessions), (0, 0, 1));
}

// req: SES-01
// req: SES-04
#[test]
fn a_clean_start_without_expiry_leaves_nothing_stored() {
    let mut rig = Rig::new();
    rig.connect_to("a", "t", QoS::AtLeastOnce);
    let transient = OpenSession { clean_start: true, expiry_s: 0, ..opening("a") };
    let (link, lines) = rig.open(transient);
    assert_eq!(
        lines,
        ["ended a epoch 1 Discarded", "opened c2 a epoch 0 incarnation 0 [] closes c1"]
    );
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.sessions, statistics.subscriptions), (0, 0));
    let accepted = rig.run(Command::Publish(link.publish(1, QoS::AtLeastOnce, "t", "x")));
    assert_eq!(only(&accepted, "puback"), ["puback c2 #1"]);
}

// req: SES-04
// req: SES-11
#[test]
fn a_session_with_expiry_zero_ends_with_its_connection() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    rig.lose(link);
    let (link, lines) = rig.open(OpenSession { expiry_s: 0, ..opening("a") });
    assert!(lines[0].starts_with("resumed"), "{lines:?}");
    assert_eq!(rig.lose(link), ["ended a epoch 2 Closed"]);
    assert_eq!(rig.machine.statistics().subscriptions, 0);
}

// req: SES-11
#[test]
fn a_disconnect_may_change_the_expiry() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    rig.run(Command::ConnectionLost(ConnectionLost {
        client_id: "a",
        session_epoch: link.epoch,
        fire_will: false,
        expiry_s: Some(10),
        will_grace_s: 0,
    }));
    assert_eq!(rig.machine.next_deadline_ms(), Some(rig.now_ms + 10_000));
    assert_eq!(rig.tick(9_999), [""; 0]);
    assert_eq!(rig.tick(1), ["ended a epoch 1 Expired"]);
    assert_eq!(rig.machine.next_deadline_ms(), None);
}

// req: SES-06
// see: X-17
// req: SES-22
#[test]
fn an_absent_session_keeps_qos_1_and_2_in_order_and_not_qos_0() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    rig.lose(link);
    for (qos, payload) in [(QoS::AtLeastOnce, "1"), (QoS::AtMostOnce, "2"), (QoS::ExactlyOnce, "3")]
    {
        let lines = rig.run(Command::Publish(publishing(9, qos, "t", payload)));
        assert_eq!(only(&lines, "publish"), [""; 0], "nothing is sent to nobody");
    }
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines[1..], ["publish c2 #1 t=1 q1", "publish c2 #2 t=3 q2"]);
}

// req: SES-16
#[test]
fn another_identity_is_refused_and_the_owner_stays() {
    let mut rig = Rig::new();
    let (owner, _) = rig.open(OpenSession { identity: "alice", ..opening("a") });
    for identity in ["bob", ""] {
        for clean_start in [false, true] {
            let thief = OpenSession { identity, clean_start, ..opening("a") };
            assert_eq!(rig.run(Command::OpenSession(thief)), ["refused c0 ReasonCode(0x87)"]);
        }
    }
    let lines = rig.run(Command::Publish(owner.publish(1, QoS::AtLeastOnce, "t", "x")));
    assert_eq!(only(&lines, "puback"), ["puback c1 #1"]);
    assert_eq!(rig.machine.statistics().counters.opens_refused, 4);
}

// req: SES-16
#[test]
fn an_anonymous_session_is_adopted_by_its_first_authenticated_owner() {
    let mut rig = Rig::new();
    rig.connect_to("a", "t", QoS::AtLeastOnce);
    let (_, lines) = rig.open(OpenSession { identity: "alice", ..opening("a") });
    assert_eq!(lines, [r#"resumed c2 a epoch 2 incarnation 1 ["t"] closes c1"#]);
    let anonymous = rig.run(Command::OpenSession(opening("a")));
    assert_eq!(anonymous, ["refused c0 ReasonCode(0x87)"]);
}

// req: SES-18
#[test]
fn nothing_from_an_older_epoch_takes_effect() {
    let mut rig = Rig::new();
    let old = rig.connect_to("a", "t", QoS::AtLeastOnce);
    publish(&mut rig, "x");
    rig.connect("a");
    let before = rig.machine.digest();
    let stale = [
        Command::Publish(old.publish(1, QoS::AtLeastOnce, "t", "late")),
        Command::Publish(old.publish(2, QoS::ExactlyOnce, "t", "late")),
        Command::Publish(publishing_as_transient("a")),
        old.subscribe("u", SubscriptionOptions::with_qos(QoS::AtMostOnce)),
        old.unsubscribe(&["t"]),
        old.ack(AckKind::PubAck, 1),
        old.release(1),
        old.lost(true),
    ];
    let count = stale.len() as u64;
    for command in stale {
        assert_eq!(rig.run(command.clone()), [""; 0], "{command:?}");
    }
    assert_eq!(rig.machine.digest(), before);
    assert_eq!(rig.machine.statistics().counters.stale_commands, count);
}

fn publishing_as_transient(client_id: &'static str) -> Publish<'static> {
    Publish { client_id, ..publishing(1, QoS::AtLeastOnce, "t", "late") }
}

// req: SES-18
#[test]
fn a_stored_publisher_whose_session_is_gone_is_stale_too() {
    let mut rig = Rig::new();
    let old = rig.connect("a");
    rig.open(OpenSession { clean_start: true, expiry_s: 0, ..opening("a") });
    let late = Command::Publish(old.publish(1, QoS::AtLeastOnce, "t", "late"));
    assert_eq!(rig.run(late), [""; 0]);
    let again = rig.connect("a");
    assert!(again.epoch > old.epoch && again.incarnation > old.incarnation);
}

// req: SES-19
// see: X-06
#[test]
fn takeover_between_publish_and_pubrel_keeps_the_exchange() {
    let mut rig = Rig::new();
    rig.connect_to("reader", "t", QoS::ExactlyOnce);
    let first = rig.connect("a");
    let lines = rig.run(Command::Publish(first.publish(5, QoS::ExactlyOnce, "t", "x")));
    assert_eq!(only(&lines, "publish").len(), 1);
    let second = rig.connect("a");
    assert_eq!(second.incarnation, first.incarnation);
    assert!(second.epoch > first.epoch);
    let again = Publish { dup: true, ..second.publish(5, QoS::ExactlyOnce, "t", "x") };
    assert_eq!(rig.run(Command::Publish(again)), ["pubrec c3 #5"]);
    assert_eq!(rig.run(second.release(5)), ["pubcomp c3 #5"]);
}

// req: SES-19
#[test]
fn only_a_clean_start_forgets_open_exchanges() {
    let mut rig = Rig::new();
    let first = rig.connect("a");
    rig.run(Command::Publish(first.publish(5, QoS::ExactlyOnce, "t", "x")));
    let (second, _) = rig.open(OpenSession { clean_start: true, ..opening("a") });
    let lines = rig.run(Command::Publish(second.publish(5, QoS::ExactlyOnce, "t", "y")));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("append @1 t=y"));
}

// req: SES-20
#[test]
fn resume_repeats_releases_in_the_order_their_pubrecs_came() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    for payload in ["1", "2", "3"] {
        rig.run(Command::Publish(publishing(9, QoS::ExactlyOnce, "t", payload)));
    }
    for packet_id in [3, 1] {
        rig.run(link.ack(AckKind::PubRec, packet_id));
    }
    rig.lose(link);
    let (link, lines) = rig.open(opening("a"));
    let repeated = ["pubrel c2 #3", "pubrel c2 #1", "publish c2 #2 t=2 q2 dup"];
    assert_eq!(lines[1..], repeated);
    rig.run(link.ack(AckKind::PubRec, 1));
    rig.run(link.ack(AckKind::PubRec, 2));
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines[1..], ["pubrel c3 #3", "pubrel c3 #1", "pubrel c3 #2"]);
}

// req: SES-20
// req: QOS-07
#[test]
fn resume_repeats_what_is_open_in_its_order_before_anything_new() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    for (qos, payload) in [
        (QoS::AtLeastOnce, "1"),
        (QoS::ExactlyOnce, "2"),
        (QoS::ExactlyOnce, "3"),
        (QoS::AtLeastOnce, "4"),
    ] {
        rig.run(Command::Publish(publishing(9, qos, "t", payload)));
    }
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 1)), [""; 0]);
    assert_eq!(rig.run(link.ack(AckKind::PubRec, 2)), ["pubrel c1 #2"]);
    rig.lose(link);
    publish(&mut rig, "5");
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(
        lines[1..],
        [
            "pubrel c2 #2",
            "publish c2 #3 t=3 q2 dup",
            "publish c2 #4 t=4 q1 dup",
            "publish c2 #5 t=5 q1"
        ]
    );
    assert_eq!(rig.tick(3_600_000), [""; 0], "nothing is repeated by time");
}

// req: SES-20
#[test]
fn a_client_that_returns_with_a_smaller_window_is_not_flooded() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    for payload in ["1", "2", "3"] {
        publish(&mut rig, payload);
    }
    rig.lose(link);
    publish(&mut rig, "4");
    let (link, lines) = rig.open(OpenSession { receive_maximum: 1, ..opening("a") });
    assert_eq!(lines[1..], ["publish c2 #1 t=1 q1 dup"]);
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 1)), ["publish c2 #2 t=2 q1 dup"]);
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 2)), ["publish c2 #3 t=3 q1 dup"]);
    assert_eq!(rig.run(link.ack(AckKind::PubAck, 3)), ["publish c2 #4 t=4 q1"]);
}

fn limits(overflow: Overflow) -> Limits {
    Limits { queue_count_max: 2, overflow, ..Limits::default() }
}

// req: SES-21
// see: X-21
#[test]
fn a_full_backlog_ends_the_session_and_slows_nobody() {
    let mut rig = Rig::with_limits(limits(Overflow::ExpireSession));
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    rig.connect_to("b", "t", QoS::AtLeastOnce);
    rig.lose(link);
    publish(&mut rig, "1");
    publish(&mut rig, "2");
    let lines = publish(&mut rig, "3");
    assert_eq!(lines[1..], ["puback c99 #9", "publish c2 #3 t=3 q1", "ended a epoch 1 Overflowed"]);
    let (_, lines) = rig.open(opening("a"));
    assert!(lines[0].starts_with("opened"), "session present must be 0: {lines:?}");
}

// req: SES-21
#[test]
fn bytes_bound_a_backlog_as_well_as_counts() {
    let limits = Limits { queue_bytes_max: 10, ..Limits::default() };
    let mut rig = Rig::with_limits(limits);
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    rig.lose(link);
    assert_eq!(only(&publish(&mut rig, "123456789"), "ended"), [""; 0]);
    assert_eq!(rig.machine.statistics().queued_bytes, 10);
    assert_eq!(only(&publish(&mut rig, ""), "ended"), ["ended a epoch 1 Overflowed"]);
}

// see: X-21
#[test]
fn an_attached_session_that_overflows_is_told_to_close() {
    let mut rig = Rig::with_limits(limits(Overflow::ExpireSession));
    let (link, _) = rig.open(OpenSession { receive_maximum: 1, ..opening("a") });
    rig.run(link.subscribe("t", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    for payload in ["1", "2", "3"] {
        publish(&mut rig, payload);
    }
    assert_eq!(only(&publish(&mut rig, "4"), "ended"), ["ended a epoch 1 Overflowed closes c1"]);
}

// see: X-21
#[test]
fn drop_policies_give_up_messages_instead_of_the_session() {
    for (overflow, kept) in [
        (Overflow::DropOldest, ["publish c2 #1 t=2 q1", "publish c2 #2 t=3 q1"]),
        (Overflow::DropNewest, ["publish c2 #1 t=1 q1", "publish c2 #2 t=2 q1"]),
    ] {
        let mut rig = Rig::with_limits(limits(overflow));
        let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
        rig.lose(link);
        for payload in ["1", "2", "3"] {
            publish(&mut rig, payload);
        }
        assert_eq!(rig.machine.statistics().counters.overflow_dropped, 1);
        let (_, lines) = rig.open(opening("a"));
        assert_eq!(lines[1..], kept);
    }
}

#[test]
fn a_message_that_never_fits_does_not_push_out_those_that_do() {
    let limits = Limits { queue_bytes_max: 10, ..limits(Overflow::DropOldest) };
    let mut rig = Rig::with_limits(limits);
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    rig.lose(link);
    publish(&mut rig, "1");
    publish(&mut rig, "far too long for ten bytes");
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines[1..], ["publish c2 #1 t=1 q1"]);
}

// The part that is the machine's: all of it is in the log, and the log is enough.
// req: SES-08
#[test]
fn everything_a_client_was_told_comes_back_from_the_log() {
    let build = |rig: &mut Rig| {
        let (link, _) = rig.open(OpenSession {
            will: Some(will(60)),
            expiry_s: 600,
            receive_maximum: 2,
            ..opening("a")
        });
        let options = SubscriptionOptions::with_qos(QoS::ExactlyOnce);
        rig.run(link.subscribe("t", options));
        for payload in ["1", "2", "3"] {
            rig.run(Command::Publish(publishing(9, QoS::ExactlyOnce, "t", payload)));
        }
        rig.run(link.ack(AckKind::PubRec, 1));
        rig.run(Command::Publish(link.publish(8, QoS::ExactlyOnce, "u", "mine")));
        rig.lose(link);
    };
    // A second machine fed the same log stands for the first one after a restart.
    let (mut before, mut restarted) = (Rig::new(), Rig::new());
    build(&mut before);
    build(&mut restarted);
    assert_eq!(restarted.machine.digest(), before.machine.digest());
    assert_eq!(restarted.machine.next_deadline_ms(), Some(restarted.now_ms + 60_000), "the will");
    let (link, lines) = restarted.open(opening("a"));
    assert_eq!(
        lines,
        [
            r#"resumed c2 a epoch 2 incarnation 1 ["t"]"#,
            "pubrel c2 #1",
            "publish c2 #2 t=2 q2 dup",
            "publish c2 #3 t=3 q2"
        ]
    );
    let again = Command::Publish(link.publish(8, QoS::ExactlyOnce, "u", "mine"));
    assert_eq!(restarted.run(again), ["pubrec c2 #8"]);
}

#[test]
fn limits_change_only_by_command() {
    let mut rig = Rig::new();
    let before = rig.machine.digest();
    let changed = Limits { subscriptions_max: 1, ..Limits::default() };
    rig.run(Command::SetLimits(changed));
    assert_eq!(*rig.machine.limits(), changed);
    assert_ne!(rig.machine.digest(), before);
}
