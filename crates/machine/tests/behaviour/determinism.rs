//! The same log gives the same state and the same effects, however it is cut and whenever it is
//! read; and whatever is asked, the state stays sound.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quantumqtt_machine::{
    AckKind, Command, DEDUPE_HORIZON_MS, DedupeKey, Effect, Entry, EntryBuilder, EntryHeader,
    Limits, Machine, OpenSession, Overflow, Publish, RetainHandling, SubscriptionOptions,
};
use quantumqtt_wire::QoS;

use crate::rig::{Link, PARTITION, Rig, entry_of, opening, origin, publishing, will};

const CLIENTS: [&str; 3] = ["a", "b", "c"];
const TOPICS: [&str; 4] = ["t", "t/u", "v", "will"];
const FILTERS: [&str; 6] = ["t", "#", "t/+", "$share/g/t", "$share/g/#", "will"];

const KEYS: [DedupeKey<'static>; 3] = [
    DedupeKey { identity: "", key: "0" },
    DedupeKey { identity: "", key: "1" },
    DedupeKey { identity: "ada", key: "0" },
];

/// What a client might do next; epochs are filled in from what it was last told, mostly.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Open {
        client: usize,
        clean_start: bool,
        expiry_s: u32,
        receive_maximum: u16,
        will: Option<u32>,
    },
    Lose {
        client: usize,
        fire_will: bool,
    },
    Subscribe {
        client: usize,
        filter: usize,
        options: SubscriptionOptions,
    },
    Unsubscribe {
        client: usize,
        filter: usize,
    },
    Publish {
        client: usize,
        topic: usize,
        qos: QoS,
        packet_id: u16,
        retain: bool,
        expiry_s: Option<u32>,
        payload: &'static str,
        key: Option<usize>,
    },
    Release {
        client: usize,
        packet_id: u16,
    },
    Ack {
        client: usize,
        kind: AckKind,
        packet_id: u16,
    },
    Stale {
        client: usize,
        packet_id: u16,
    },
    Tick,
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)]
}

fn options() -> impl Strategy<Value = SubscriptionOptions> {
    let handling = prop_oneof![
        Just(RetainHandling::Send),
        Just(RetainHandling::SendIfNew),
        Just(RetainHandling::DoNotSend)
    ];
    (qos(), any::<bool>(), any::<bool>(), handling).prop_map(
        |(qos, no_local, retain_as_published, retain_handling)| SubscriptionOptions {
            qos,
            no_local,
            retain_as_published,
            retain_handling,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS.len();
    let kind = prop_oneof![Just(AckKind::PubAck), Just(AckKind::PubRec), Just(AckKind::PubComp)];
    let expiry_s = prop_oneof![Just(0_u32), 1..20_u32, Just(u32::MAX)];
    let publish = (
        client.clone(),
        0..TOPICS.len(),
        qos(),
        1..4_u16,
        prop::bool::weighted(0.2),
        proptest::option::weighted(0.3, 0..20_u32),
        prop_oneof![Just(""), Just("x"), Just("yy")],
        proptest::option::weighted(0.2, 0..KEYS.len()),
    );
    prop_oneof![
        3 => (client.clone(), prop::bool::weighted(0.2), expiry_s, 1..4_u16,
              proptest::option::of(0..9_u32))
            .prop_map(|(client, clean_start, expiry_s, receive_maximum, will)| {
                Step::Open { client, clean_start, expiry_s, receive_maximum, will }
            }),
        2 => (client.clone(), any::<bool>())
            .prop_map(|(client, fire_will)| Step::Lose { client, fire_will }),
        4 => (client.clone(), 0..FILTERS.len(), options())
            .prop_map(|(client, filter, options)| Step::Subscribe { client, filter, options }),
        1 => (client.clone(), 0..FILTERS.len())
            .prop_map(|(client, filter)| Step::Unsubscribe { client, filter }),
        8 => publish.prop_map(|(client, topic, qos, packet_id, retain, expiry_s, payload, key)| {
            Step::Publish { client, topic, qos, packet_id, retain, expiry_s, payload, key }
        }),
        2 => (client.clone(), 1..4_u16)
            .prop_map(|(client, packet_id)| Step::Release { client, packet_id }),
        6 => (client.clone(), kind, 1..6_u16)
            .prop_map(|(client, kind, packet_id)| Step::Ack { client, kind, packet_id }),
        1 => (client, 1..4_u16).prop_map(|(client, packet_id)| Step::Stale { client, packet_id }),
        1 => Just(Step::Tick),
    ]
}

pub(crate) fn limits() -> impl Strategy<Value = Limits> {
    let overflow = prop_oneof![
        Just(Overflow::ExpireSession),
        Just(Overflow::DropOldest),
        Just(Overflow::DropNewest)
    ];
    (1..5_u16, 0..6_u32, 0..12_u64, 1..5_u32, overflow).prop_map(
        |(window_max, queue_count_max, queue_bytes_max, subscriptions_max, overflow)| Limits {
            window_max,
            queue_count_max,
            queue_bytes_max,
            subscriptions_max,
            received_max: 2,
            retained_bytes_max: 8,
            overflow,
        },
    )
}

/// A log with its times, made by clients that believe what they are told.
pub(crate) type Log = Vec<(Command<'static>, u64)>;

struct Clients {
    links: [Link; CLIENTS.len()],
    connections: u64,
}

impl Clients {
    fn new() -> Self {
        let links = CLIENTS.map(|client_id| Link {
            client_id,
            origin: origin(0),
            epoch: 0,
            incarnation: 0,
        });
        Self { links, connections: 0 }
    }

    fn command(&mut self, step: &Step) -> Command<'static> {
        match *step {
            Step::Open { client, clean_start, expiry_s, receive_maximum, will: delay_s } => {
                self.connections += 1;
                Command::OpenSession(OpenSession {
                    origin: origin(self.connections),
                    clean_start,
                    expiry_s,
                    receive_maximum,
                    will: delay_s.map(will),
                    ..opening(CLIENTS[client])
                })
            }
            Step::Lose { client, fire_will } => self.links[client].lost(fire_will),
            Step::Subscribe { client, filter, options } => {
                self.links[client].subscribe(FILTERS[filter], options)
            }
            Step::Unsubscribe { client, filter } => {
                self.links[client].unsubscribe(&[FILTERS[filter]])
            }
            Step::Publish { client, topic, qos, packet_id, retain, expiry_s, payload, key } => {
                let packet_id = if qos == QoS::AtMostOnce { 0 } else { packet_id };
                let publish = self.links[client].publish(packet_id, qos, TOPICS[topic], payload);
                let dedupe = key.filter(|_| qos != QoS::AtMostOnce).map(|key| KEYS[key]);
                Command::Publish(Publish { retain, expiry_s, dedupe, ..publish })
            }
            Step::Release { client, packet_id } => self.links[client].release(packet_id),
            Step::Ack { client, kind, packet_id } => self.links[client].ack(kind, packet_id),
            Step::Stale { client, packet_id } => {
                let link = Link { epoch: u64::MAX, ..self.links[client] };
                Command::Publish(link.publish(packet_id, QoS::ExactlyOnce, "t", "stale"))
            }
            Step::Tick => Command::Tick,
        }
    }

    fn learn(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::SessionOpened(opened) = effect {
                let link = self.links.iter_mut().find(|link| *link.client_id == *opened.client_id);
                let link = link.unwrap();
                link.origin = opened.origin;
                link.epoch = opened.session_epoch;
                link.incarnation = opened.incarnation;
            }
        }
    }
}

/// Plays the steps one command per entry; returns the log and what each command did.
pub(crate) fn play(limits: Limits, steps: &[(Step, u64)]) -> (Log, Vec<Vec<Effect>>, Machine) {
    let mut rig = Rig::with_limits(limits);
    let mut clients = Clients::new();
    let mut log = Vec::new();
    let mut results = Vec::new();
    for (step, later_ms) in steps {
        rig.now_ms += later_ms;
        let command = clients.command(step);
        let effects = rig.apply(command.clone());
        assert_eq!(rig.machine.check_invariants(), Ok(()), "after {command:?}");
        clients.learn(&effects);
        log.push((command, rig.now_ms));
        results.push(effects);
    }
    (log, results, rig.machine)
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let later_ms = prop_oneof![40 => Just(0_u64), 10 => 1..4_000_u64, 1 => Just(DEDUPE_HORIZON_MS)];
    proptest::collection::vec((step(), later_ms), 1..80)
}

/// Offsets dense, and on each connection no packet id sent twice while it is in use.
fn check_effects(log: &Log, results: &[Vec<Effect>]) -> Result<(), TestCaseError> {
    let mut next_offset = 0;
    let mut in_use: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for ((command, _), effects) in log.iter().zip(results) {
        if let Command::ClientAck(ack) = command {
            for ids in in_use.values_mut() {
                ids.retain(|id| *id != ack.packet_id);
            }
        }
        for effect in effects {
            match effect {
                Effect::Append(record) => {
                    prop_assert_eq!(record.offset, next_offset);
                    next_offset += 1;
                }
                Effect::Deliver(deliver) => {
                    prop_assert_eq!(deliver.packet_id.is_none(), deliver.qos == QoS::AtMostOnce);
                    let ids = in_use.entry(deliver.origin.connection).or_default();
                    if let Some(packet_id) = deliver.packet_id {
                        prop_assert!(packet_id != 0 && !ids.contains(&packet_id));
                        ids.push(packet_id);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // `play` checks the invariants after every command.
    // req: DET-01
    // req: DET-02
    #[test]
    fn the_same_log_gives_the_same_state_and_the_same_effects(
        limits in limits(), steps in steps(), cut in any::<prop::sample::Index>(),
    ) {
        let (log, results, machine) = play(limits, &steps);
        check_effects(&log, &results)?;

        // Again from its bytes, a prefix first and the rest later.
        let mut replayed = Machine::new(PARTITION, limits);
        let cut = cut.index(log.len());
        for (part, expected) in [(&log[..cut], &results[..cut]), (&log[cut..], &results[cut..])] {
            for ((command, now_ms), expected) in part.iter().zip(expected) {
                let mut effects = Vec::new();
                let entry = entry_of(std::slice::from_ref(command), *now_ms);
                replayed.apply(&entry, &mut effects).unwrap();
                prop_assert_eq!(&effects, expected);
            }
        }
        prop_assert_eq!(replayed.digest(), machine.digest());
        prop_assert_eq!(replayed.statistics(), machine.statistics());
    }

    // req: DET-01
    #[test]
    fn entry_boundaries_change_nothing(
        limits in limits(),
        steps in proptest::collection::vec(step(), 1..80),
        sizes in proptest::collection::vec(1..9_usize, 80),
    ) {
        let steps: Vec<(Step, u64)> = steps.into_iter().map(|step| (step, 0)).collect();
        let (log, results, machine) = play(limits, &steps);
        let mut batched = Machine::new(PARTITION, limits);
        let mut effects = Vec::new();
        let mut commands = log.iter().map(|(command, _)| command).peekable();
        for size in sizes {
            let mut builder = EntryBuilder::new();
            for command in commands.by_ref().take(size) {
                builder.push(command).unwrap();
            }
            let header =
                EntryHeader { partition: PARTITION, now_ms: log[0].1, ..EntryHeader::default() };
            let entry = Entry::parse(builder.finish(&header)).unwrap();
            batched.apply(&entry, &mut effects).unwrap();
            if commands.peek().is_none() {
                break;
            }
        }
        prop_assert_eq!(batched.digest(), machine.digest());
        prop_assert_eq!(effects, results.concat());
    }
}

#[test]
fn a_machine_may_be_handed_to_the_thread_that_owns_it() {
    fn takes_what_may_move<T: Send>(_: T) {}
    takes_what_may_move(Machine::new(PARTITION, Limits::default()));
}

/// A property is worth what its cases reach: every counter of a rare path must have moved.
#[test]
fn the_random_walks_reach_every_rare_path() {
    let mut runner = TestRunner::deterministic();
    let mut sums = BTreeMap::new();
    for _ in 0..300 {
        let limits = limits().new_tree(&mut runner).unwrap().current();
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let counters = play(limits, &steps).2.statistics().counters;
        for (name, count) in [
            ("stale commands", counters.stale_commands),
            ("duplicate publishes", counters.duplicate_publishes),
            ("conflicting duplicates", counters.conflicting_duplicates),
            ("repeated keys", counters.deduplicated_publishes),
            ("refused publishes", counters.publishes_refused),
            ("expired messages", counters.expired_messages),
            ("overflow drops", counters.overflow_dropped),
            ("offline drops", counters.offline_qos0_dropped),
            ("unserved shares", counters.share_unserved),
            ("discarded sessions", counters.sessions_discarded),
            ("closed sessions", counters.sessions_closed),
            ("expired sessions", counters.sessions_expired),
            ("overflowed sessions", counters.sessions_overflowed),
            ("wills", counters.wills_published),
        ] {
            *sums.entry(name).or_insert(0) += count;
        }
    }
    let unseen: Vec<_> = sums.iter().filter(|(_, count)| **count == 0).collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?}");
}

// req: DET-05
#[test]
fn the_digest_does_not_show_in_which_order_things_arrived() {
    let filters = ["b/#", "a", "c/+/d", "a/b", "#"];
    let topics = ["z", "a/b", "m", "a"];
    let state = |turn: usize| {
        let mut rig = Rig::new();
        let link = rig.connect("a");
        for place in 0..filters.len() {
            let filter = filters[(place + turn) % filters.len()];
            rig.run(link.subscribe(filter, SubscriptionOptions::with_qos(QoS::AtMostOnce)));
        }
        for place in 0..topics.len() {
            let topic = topics[(place + turn) % topics.len()];
            let publish = publishing(1, QoS::AtMostOnce, topic, "x");
            rig.run(Command::Publish(Publish { retain: true, ..publish }));
        }
        // Removed again: a message carries its offset, which is where the order rightly shows.
        for place in 0..topics.len() {
            let topic = topics[(place + turn) % topics.len()];
            let publish = publishing(1, QoS::AtMostOnce, topic, "");
            rig.run(Command::Publish(Publish { retain: true, ..publish }));
        }
        rig.machine.digest()
    };
    let first = state(0);
    for turn in 1..filters.len() {
        assert_eq!(state(turn), first, "turn {turn}");
    }
}

// req: DET-05
#[test]
fn the_digest_shows_every_part_of_the_state() {
    let mut rig = Rig::new();
    let mut seen = vec![rig.machine.digest()];
    let link = rig.connect_to("a", "t", QoS::ExactlyOnce);
    let commands = [
        Command::Publish(publishing(1, QoS::ExactlyOnce, "t", "x")),
        link.ack(AckKind::PubRec, 1),
        link.ack(AckKind::PubComp, 1),
        Command::Publish(link.publish(1, QoS::ExactlyOnce, "u", "x")),
        link.release(1),
        link.subscribe("$share/g/s", SubscriptionOptions::with_qos(QoS::AtMostOnce)),
        Command::Publish(Publish { retain: true, ..publishing(1, QoS::AtMostOnce, "r", "x") }),
        link.unsubscribe(&["t"]),
        link.lost(true),
    ];
    for command in commands {
        rig.run(command.clone());
        let digest = rig.machine.digest();
        assert!(!seen.contains(&digest), "{command:?} left no trace");
        seen.push(digest);
    }
}

/// Two logs that leave equal states but for one part.
fn digests(one: impl Fn(&mut Rig), other: impl Fn(&mut Rig)) -> [u128; 2] {
    let (mut left, mut right) = (Rig::new(), Rig::new());
    one(&mut left);
    other(&mut right);
    assert_eq!(left.machine.statistics(), right.machine.statistics(), "they differ in size too");
    [left.machine.digest(), right.machine.digest()]
}

// req: DET-05
#[test]
fn one_small_difference_is_another_digest() {
    let open = |packet_id| {
        move |rig: &mut Rig| {
            let link = rig.connect("a");
            rig.run(Command::Publish(link.publish(packet_id, QoS::ExactlyOnce, "t", "x")));
        }
    };
    let served = |topic| {
        move |rig: &mut Rig| {
            rig.connect_to("a", "$share/g/+", QoS::AtMostOnce);
            rig.connect_to("b", "$share/g/+", QoS::AtMostOnce);
            // What matches nothing leaves the cursor; all else that it changes is the same.
            rig.run(Command::Publish(publishing(0, QoS::AtMostOnce, topic, "x")));
        }
    };
    let opened = |open: OpenSession<'static>| move |rig: &mut Rig| drop(rig.open(open));
    let identity = OpenSession { identity: "alice", ..opening("a") };
    let level = OpenSession { level: 4, ..opening("a") };
    let with_will = |delay_s| OpenSession { will: Some(will(delay_s)), ..opening("a") };
    let keyed = |identity, key| {
        move |rig: &mut Rig| {
            let dedupe = Some(DedupeKey { identity, key });
            let publish = publishing(1, QoS::AtLeastOnce, "t", "x");
            rig.run(Command::Publish(Publish { dedupe, ..publish }));
        }
    };
    for [left, right] in [
        digests(open(1), open(2)),
        digests(served("t"), served("t/u")),
        digests(opened(opening("a")), opened(identity)),
        digests(opened(opening("a")), opened(level)),
        digests(opened(with_will(1)), opened(with_will(2))),
        digests(keyed("", "k"), keyed("", "l")),
        digests(keyed("", "k"), keyed("ada", "k")),
    ] {
        assert_ne!(left, right);
    }
}
