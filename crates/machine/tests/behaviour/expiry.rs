//! Time, as far as the log tells it.

use quantumqtt_machine::{Command, OpenSession, Publish, SubscriptionOptions};
use quantumqtt_wire::QoS;

use crate::rig::{Rig, only, opening, publishing};

fn limited(expiry_s: u32, payload: &str) -> Command<'_> {
    Command::Publish(Publish {
        expiry_s: Some(expiry_s),
        ..publishing(9, QoS::AtLeastOnce, "t", payload)
    })
}

// req: DET-04
//
#[test]
fn a_session_expires_by_tick_and_by_nothing_else_that_passes() {
    let mut rig = Rig::new();
    let (link, _) = rig.open(OpenSession { expiry_s: 10, ..opening("a") });
    assert_eq!(rig.machine.next_deadline_ms(), None, "a connected session does not expire");
    rig.lose(link);
    rig.now_ms += 20_000;
    assert_eq!(only(&rig.open(opening("b")).1, "ended"), [""; 0]);
    assert_eq!(rig.tick(0), ["ended a epoch 1 Expired"]);
}

// req: SES-11
#[test]
fn a_client_that_returns_too_late_finds_nothing_even_without_a_tick() {
    let mut rig = Rig::new();
    let (link, _) = rig.open(OpenSession { expiry_s: 10, ..opening("a") });
    rig.lose(link);
    rig.now_ms += 10_000;
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines, ["ended a epoch 1 Expired", "opened c2 a epoch 2 incarnation 2 []"]);
    assert_eq!(rig.tick(60_000), [""; 0]);
}

// req: SES-11
#[test]
fn a_session_that_never_expires_has_no_deadline() {
    let mut rig = Rig::new();
    let link = rig.connect("a");
    rig.lose(link);
    assert_eq!(rig.machine.next_deadline_ms(), None);
    assert_eq!(rig.tick(u64::from(u32::MAX) * 1_000), [""; 0]);
    assert_eq!(rig.machine.statistics().sessions, 1);
}

// req: SES-23
#[test]
fn a_waiting_message_expires_with_its_own_time_or_its_sessions() {
    let mut rig = Rig::new();
    let (link, _) = rig.open(OpenSession { expiry_s: 100, ..opening("a") });
    rig.run(link.subscribe("t", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    rig.lose(link);
    for (expiry_s, payload) in [(5, "short"), (60, "long"), (1_000, "longer")] {
        rig.run(limited(expiry_s, payload));
    }
    rig.now_ms += 5_000;
    let (link, lines) = rig.open(OpenSession { expiry_s: 100, receive_maximum: 1, ..opening("a") });
    assert_eq!(lines[1..], ["publish c2 #1 t=long q1 expires 55"]);
    rig.lose(link);
    rig.tick(100_000);
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.queued, statistics.queued_bytes, statistics.in_flight), (0, 0, 0));
}

#[test]
fn an_exchange_that_has_begun_is_finished_after_its_message_expired() {
    let mut rig = Rig::new();
    let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
    rig.run(limited(5, "x"));
    rig.lose(link);
    rig.now_ms += 60_000;
    let (_, lines) = rig.open(opening("a"));
    assert_eq!(lines[1..], ["publish c2 #1 t=x q1 dup expires 0"]);
}

// req: DET-02
#[test]
fn a_leader_whose_clock_is_behind_does_not_turn_time_back() {
    let mut rig = Rig::new();
    let (link, _) = rig.open(OpenSession { expiry_s: 10, ..opening("a") });
    let ahead_ms = rig.now_ms;
    rig.now_ms = 5;
    rig.lose(link);
    assert_eq!(rig.machine.statistics().now_ms, ahead_ms);
    assert_eq!(rig.machine.next_deadline_ms(), Some(ahead_ms + 10_000));
}
