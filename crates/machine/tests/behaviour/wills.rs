//! Wills: published, delayed, cancelled, deleted.

use quantumqtt_machine::{Command, LeaveWill, Limits, OpenSession, SubscriptionOptions, Will};
use quantumqtt_wire::QoS;

use crate::rig::{Link, Rig, only, opening, will};

fn with_will(delay_s: u32) -> OpenSession<'static> {
    OpenSession { will: Some(will(delay_s)), ..opening("a") }
}

fn wills(lines: &[String]) -> usize {
    lines.iter().filter(|line| line.starts_with("append") && line.contains(" Will of a/")).count()
}

fn rig_with(delay_s: u32) -> (Rig, Link) {
    let mut rig = Rig::new();
    rig.connect_to("watcher", "will", QoS::AtLeastOnce);
    let (link, _) = rig.open(with_will(delay_s));
    (rig, link)
}

// req: WILL-02
#[test]
fn a_normal_disconnect_deletes_the_will() {
    let (mut rig, link) = rig_with(0);
    assert_eq!(rig.run(link.lost(false)), [""; 0]);
    let lines = rig.open(OpenSession { clean_start: true, ..opening("a") }).1;
    assert_eq!(wills(&lines), 0);
}

// req: WILL-03
#[test]
fn a_lost_connection_publishes_it_at_once_as_a_normal_publish() {
    let (mut rig, link) = rig_with(0);
    assert_eq!(
        rig.lose(link),
        ["append @0 will=gone q1 Will of a/2 seq 1", "publish c1 #1 will=gone q1"]
    );
    assert_eq!(rig.machine.statistics().counters.wills_published, 1);
}

#[test]
fn a_delayed_will_can_be_taken_back_while_it_waits() {
    let (mut rig, link) = rig_with(5);
    rig.lose(link);
    assert_eq!(rig.run(link.lost(false)), [""; 0]);
    assert_eq!(rig.machine.waiting_wills().count(), 0);
    assert_eq!(wills(&rig.tick(5_000)), 0);
    let session = rig.machine.session_view("a").unwrap();
    assert!(!session.has_will && session.will_due_ms.is_none(), "the session itself stays");
}

#[test]
fn waiting_wills_say_whose_they_are() {
    let (mut rig, link) = rig_with(5);
    assert_eq!(rig.machine.waiting_wills().count(), 0, "its client is there");
    rig.lose(link);
    let waiting: Vec<_> = rig.machine.waiting_wills().collect();
    assert_eq!((waiting[0].client_id, waiting[0].topic, waiting.len()), ("a", "will", 1));
}

#[test]
fn a_retained_will_is_retained() {
    let mut rig = Rig::new();
    let retained = Will { retain: true, ..will(0) };
    let (link, _) = rig.open(OpenSession { will: Some(retained), ..opening("a") });
    rig.lose(link);
    assert_eq!(rig.machine.statistics().retained, 1);
}

// req: WILL-03
// req: WILL-09
// req: DET-04
#[test]
fn a_delayed_will_waits_for_the_tick_that_is_due() {
    let (mut rig, link) = rig_with(5);
    assert_eq!(rig.lose(link), [""; 0]);
    assert_eq!(rig.machine.next_deadline_ms(), Some(rig.now_ms + 5_000));
    assert_eq!(rig.tick(4_999), [""; 0]);
    rig.now_ms += 100_000;
    let unrelated = rig.open(opening("b")).1;
    assert_eq!(wills(&unrelated), 0, "only a tick makes time pass");
    assert_eq!(wills(&rig.tick(0)), 1);
    assert_eq!(wills(&rig.tick(60_000)), 0);
}

// req: WILL-10
#[test]
fn a_client_that_returns_in_time_cancels_the_will() {
    let (mut rig, link) = rig_with(5);
    rig.lose(link);
    rig.now_ms += 1_000;
    assert_eq!(wills(&rig.open(opening("a")).1), 0);
    assert_eq!(rig.machine.next_deadline_ms(), None);
    assert_eq!(wills(&rig.tick(60_000)), 0);
}

// req: WILL-10
#[test]
fn a_late_tick_does_not_cancel_a_will_that_was_due() {
    let (mut rig, link) = rig_with(5);
    rig.lose(link);
    rig.now_ms += 5_000;
    let lines = rig.open(opening("a")).1;
    assert!(lines[0].starts_with("resumed"), "{lines:?}");
    assert_eq!(wills(&lines), 1);
    assert_eq!(wills(&rig.tick(60_000)), 0, "once is enough");
}

// req: WILL-10
#[test]
fn the_end_of_the_session_cuts_the_delay_short() {
    let mut rig = Rig::new();
    let (link, _) = rig.open(OpenSession { expiry_s: 3, ..with_will(60) });
    rig.lose(link);
    let lines = rig.tick(3_000);
    assert_eq!(wills(&lines), 1);
    assert_eq!(only(&lines, "ended"), ["ended a epoch 1 Expired"]);
    assert_eq!(wills(&rig.tick(60_000)), 0, "once is enough");

    let (link, _) = rig.open(with_will(60));
    rig.lose(link);
    let lines = rig.open(OpenSession { clean_start: true, ..opening("a") }).1;
    assert_eq!(wills(&lines), 1);
}

// req: WILL-04
//
#[test]
fn takeover_publishes_a_will_without_delay_and_drops_one_with() {
    for (delay_s, clean_start, level, expected) in
        [(0, false, 5, 1), (9, false, 5, 0), (0, true, 5, 1), (9, true, 5, 1), (0, false, 4, 1)]
    {
        let (mut rig, _) = rig_with(delay_s);
        let lines = rig.open(OpenSession { clean_start, level, ..opening("a") }).1;
        assert_eq!(wills(&lines), expected, "delay {delay_s}, clean start {clean_start}");
        assert_eq!(wills(&rig.tick(60_000)), 0);
    }
}

// req: WILL-05
#[test]
fn a_refused_connection_never_produces_a_will() {
    let mut rig = Rig::new();
    rig.open(OpenSession { identity: "alice", ..opening("a") });
    let thief = OpenSession { identity: "bob", ..with_will(0) };
    assert_eq!(rig.run(Command::OpenSession(thief)).len(), 1);
    let lines = rig.open(OpenSession { identity: "alice", ..opening("a") }).1;
    assert_eq!(wills(&lines), 0);
}

#[test]
fn a_will_that_overflows_another_session_fires_that_ones_will_too() {
    let limits = Limits { queue_count_max: 0, ..Limits::default() };
    let mut rig = Rig::with_limits(limits);
    let (full, _) = rig.open(OpenSession { will: Some(will(60)), ..opening("full") });
    rig.run(full.subscribe("will", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    rig.lose(full);
    let (link, _) = rig.open(with_will(0));
    let lines = rig.lose(link);
    assert_eq!(
        lines,
        [
            "append @0 will=gone q1 Will of a/2 seq 1",
            "ended full epoch 1 Overflowed",
            "append @1 will=gone q1 Will of full/1 seq 2"
        ]
    );
}

// req: WILL-06
//
#[test]
fn a_will_waits_for_a_client_that_the_server_cut_off() {
    let (mut rig, link) = rig_with(0);
    assert_eq!(rig.run(link.cut_off(60)), [""; 0]);
    assert_eq!(wills(&rig.tick(59_999)), 0);
    assert_eq!(wills(&rig.tick(1)), 1, "it has not returned");
    assert_eq!(wills(&rig.tick(60_000)), 0, "and only once");
    assert!(rig.machine.session_view("a").is_some(), "the session itself goes on");
    // A longer delay of its own is not cut short.
    let (mut rig, link) = rig_with(90);
    rig.run(link.cut_off(60));
    assert_eq!(wills(&rig.tick(89_999)), 0);
    assert_eq!(wills(&rig.tick(1)), 1);
}

// req: WILL-06
//
#[test]
fn a_client_that_was_cut_off_and_returns_takes_its_will_back_however_it_returns() {
    for clean_start in [false, true] {
        for expiry_s in [0, 5, 1_000] {
            let mut rig = Rig::new();
            let (link, _) = rig.open(OpenSession { expiry_s, ..with_will(0) });
            if expiry_s == 0 {
                // Nothing was stored; the node tells what it leaves.
                let left =
                    LeaveWill { client_id: "a", identity: "", will: will(0), will_grace_s: 60 };
                assert_eq!(rig.run(Command::LeaveWill(left)), [""; 0]);
            } else {
                assert_eq!(rig.run(link.cut_off(60)), [""; 0]);
            }
            assert_eq!(wills(&rig.tick(30_000)), 0);
            let again = OpenSession { clean_start, expiry_s, ..opening("a") };
            let (_, lines) = rig.open(again);
            let is_resumed = lines.iter().any(|line| line.starts_with("resumed"));
            assert_eq!(is_resumed, !clean_start && expiry_s == 1_000, "{lines:?}");
            assert_eq!(wills(&lines) + wills(&rig.tick(100_000)), 0, "{lines:?}");
        }
    }
}

#[test]
fn a_stranger_does_not_take_back_what_another_left() {
    let mut rig = Rig::new();
    let left = LeaveWill { client_id: "a", identity: "alice", will: will(0), will_grace_s: 60 };
    rig.run(Command::LeaveWill(left));
    let (_, lines) = rig.open(OpenSession { identity: "bob", ..opening("a") });
    assert_eq!(wills(&lines), 1, "{lines:?}");
    assert!(only(&lines, "opened").len() == 1, "its session was over: {lines:?}");
}

#[test]
fn a_transient_session_leaves_nothing_but_its_will() {
    let mut rig = Rig::new();
    let left = LeaveWill { client_id: "a", identity: "alice", will: will(0), will_grace_s: 60 };
    rig.run(Command::LeaveWill(left));
    rig.run(Command::LeaveWill(left));
    assert_eq!(rig.machine.statistics().counters.stale_commands, 1, "once is enough");
    let lines = rig.tick(60_000);
    assert_eq!(wills(&lines), 1);
    assert_eq!(only(&lines, "ended"), ["ended a epoch 1 Expired"]);
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.sessions, statistics.deadlines), (0, 0));
}

#[test]
fn a_deferred_will_can_be_taken_back_by_the_rules() {
    let (mut rig, link) = rig_with(0);
    rig.run(link.cut_off(60));
    assert_eq!(rig.machine.waiting_wills().count(), 1);
    assert_eq!(rig.run(link.lost(false)), [""; 0]);
    assert_eq!(wills(&rig.tick(60_000)), 0);
}
