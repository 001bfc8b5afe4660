//! Where lifetimes end side by side: will and session, subscription and delivery, message and
//! restart. Each has crashed some broker (CVE-2019-11778, CVE-2024-8376, Mosquitto 3702), mostly
//! once in many rounds. `unsafe` is forbidden here, so what a sanitizer would look for in C is a
//! broken invariant: all of them are checked in every round.

use quantumqtt_machine::{AckKind, Command, OpenSession, Publish, SubscriptionOptions};
use quantumqtt_wire::QoS;

use crate::rig::{Rig, only, opening, publishing, will};

const ROUNDS: u32 = 1_000;

/// Lives the same rounds in two machines: the second stands for the first one after a restart.
fn live_twice(round: impl Fn(&mut Rig, u32)) -> Rig {
    let (mut first, mut restarted) = (Rig::new(), Rig::new());
    for rig in [&mut first, &mut restarted] {
        for number in 0..ROUNDS {
            round(rig, number);
            assert_eq!(rig.machine.check_invariants(), Ok(()), "round {number}");
        }
    }
    assert_eq!(restarted.machine.digest(), first.machine.digest());
    restarted
}

/// The packet id of the one line that begins with `word`.
fn only_id(lines: &[String], word: &str) -> u16 {
    let found = only(lines, word);
    assert_eq!(found.len(), 1, "{lines:?}");
    let id = found[0].split('#').nth(1).unwrap();
    id.split_whitespace().next().unwrap().parse().unwrap()
}

// hardening: lifetimes
// req: WILL-10
#[test]
fn a_thousand_takeovers_during_a_will_delay() {
    let rig = live_twice(|rig, number| {
        let open = OpenSession { will: Some(will(5)), expiry_s: 60, ..opening("a") };
        let (link, _) = rig.open(open);
        rig.lose(link);
        rig.now_ms += u64::from(number % 5) * 1_000;
        // Back before the delay is over: by resuming, by starting anew, or twice at once.
        let clean_start = number % 3 == 0;
        let published = |lines: &[String]| only(lines, "append").len();
        let back = rig.open(OpenSession { clean_start, ..open }).1;
        assert_eq!(published(&back), usize::from(clean_start), "round {number}: {back:?}");
        if number % 2 == 0 {
            assert_eq!(published(&rig.open(open).1), 0, "round {number}");
        }
        assert_eq!(published(&rig.tick(0)), 0, "round {number}");
    });
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.sessions, statistics.counters.wills_published), (1, 334));
}

// hardening: lifetimes
// req: SUB-06
#[test]
fn a_thousand_filters_are_unsubscribed_during_delivery() {
    let rig = live_twice(|rig, number| {
        let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
        let publish = |payload| Command::Publish(publishing(9, QoS::ExactlyOnce, "t", payload));
        let begun = only_id(&rig.run(publish("begun")), "publish");
        let is_received = number % 2 == 0;
        if is_received {
            rig.run(link.ack(AckKind::PubRec, begun));
        }
        rig.run(link.unsubscribe(&["t"]));
        assert_eq!(only(&rig.run(publish("too late")), "publish"), [""; 0], "round {number}");
        rig.lose(link);
        // What had begun goes on after the return, without the filter that began it.
        let (again, lines) = rig.open(opening("a"));
        let resent = if is_received { "pubrel" } else { "publish" };
        assert_eq!(only_id(&lines, resent), begun, "round {number}");
        if !is_received {
            rig.run(again.ack(AckKind::PubRec, begun));
        }
        rig.run(again.ack(AckKind::PubComp, begun));
        rig.lose(again);
    });
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.subscriptions, statistics.in_flight, statistics.queued), (0, 0, 0));
}

// hardening: lifetimes
// req: SES-23
#[test]
fn a_thousand_messages_expire_in_a_queue_that_is_then_restarted() {
    let rig = live_twice(|rig, number| {
        let link = rig.connect_to("a", "t", QoS::AtLeastOnce);
        rig.lose(link);
        for (expiry_s, payload) in [(1 + number % 3, "short"), (1_000, "long")] {
            let waiting = publishing(9, QoS::AtLeastOnce, "t", payload);
            rig.run(Command::Publish(Publish { expiry_s: Some(expiry_s), ..waiting }));
        }
        rig.tick(3_000);
        let (again, lines) = rig.open(OpenSession { receive_maximum: 1, ..opening("a") });
        let delivered = only_id(&lines, "publish");
        assert!(lines.iter().any(|line| line.contains("t=long")), "round {number}: {lines:?}");
        rig.run(again.ack(AckKind::PubAck, delivered));
        rig.lose(again);
    });
    let statistics = rig.machine.statistics();
    assert_eq!((statistics.queued, statistics.queued_bytes, statistics.in_flight), (0, 0, 0));
}

// hardening: deep-topics
#[test]
fn sixty_five_thousand_levels_are_stored_and_come_back_from_the_log() {
    let work = || {
        let (topic, filter) = ("/".repeat(65_000), format!("{}#", "+/".repeat(32_000)));
        let build = |rig: &mut Rig| {
            let link = rig.connect("a");
            rig.run(link.subscribe(&filter, SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
            rig.lose(link);
            let retained = publishing(9, QoS::AtLeastOnce, &topic, "deep");
            rig.run(Command::Publish(Publish { retain: true, ..retained }));
        };
        let (mut before, mut restarted) = (Rig::new(), Rig::new());
        build(&mut before);
        build(&mut restarted);
        assert_eq!(restarted.machine.digest(), before.machine.digest());
        assert_eq!(restarted.machine.statistics().retained, 1);
        let (link, lines) = restarted.open(opening("a"));
        assert_eq!(only(&lines, "publish").len(), 1, "it waited");
        restarted.run(link.unsubscribe(&[&filter]));
        assert_eq!(restarted.machine.statistics().subscriptions, 0);
    };
    // Any recursion per level would overflow this stack.
    std::thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap().join().unwrap();
}
