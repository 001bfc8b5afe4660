//! Wills: published, delayed, cancelled, deleted.

use quantumqtt_machine::{Command, Limits, OpenSession, SubscriptionOptions, Will};
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
    let session = rig.machine.session("a").unwrap();
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
