//! What a partition of many sessions weighs, and what its checkpoint costs.
//!
//! ```text
//! cargo run --release -p quantumqtt-machine --example checkpoint -- 100000 10
//! ```
//!
//! Prints bytes per session and per subscription (the growth of resident memory, so everything is
//! in it), then how long the steps of a checkpoint take while publishes go on below it, what those
//! publishes cost with and without it, and how long reading back takes.

#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]
#![expect(clippy::disallowed_methods, reason = "a measurement looks at the clock and at /proc")]
#![expect(clippy::disallowed_types, reason = "a measurement looks at the clock")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use quantumqtt_machine::{
    CHUNK_BYTES_MAX, Command, ConnectionLost, EXPIRY_NEVER_S, Effect, Entry, EntryBuilder,
    EntryHeader, Limits, Machine, OpenSession, Origin, Publish, Restorer, Source, Subscribe,
    SubscribeFilter, SubscriptionOptions,
};
use quantumqtt_wire::QoS;

/// One buffer's worth, so that a step stays well below a millisecond.
const STEP_BYTES: usize = 256 << 10;
const PUBLISHES_BETWEEN: u64 = 20;
const BUCKETS: u32 = 256;

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.split_whitespace().next().and_then(|digits| digits.parse::<u64>().ok()).expect("digits")
        * 1024
}

struct Bench {
    machine: Machine,
    builder: EntryBuilder,
    effects: Vec<Effect>,
}

impl Bench {
    fn apply(&mut self, command: &Command<'_>) -> Duration {
        self.builder.push(command).expect("room for one");
        let entry = self.builder.finish(&EntryHeader { now_ms: 1, ..EntryHeader::default() });
        let entry = Entry::parse(entry).expect("our own entry");
        self.effects.clear();
        let before = Instant::now();
        self.machine.apply(&entry, &mut self.effects).expect("our own entry");
        before.elapsed()
    }

    fn open(&mut self, number: u64) {
        self.apply(&Command::OpenSession(OpenSession {
            origin: Origin { node: 1, shard: 0, connection: number },
            client_id: &format!("device-{number:07}"),
            identity: "",
            level: 5,
            clean_start: false,
            expiry_s: EXPIRY_NEVER_S,
            receive_maximum: 100,
            maximum_packet_bytes: u32::MAX,
            will: None,
        }));
    }

    fn subscribe(&mut self, number: u64, filters: u64) {
        let texts: Vec<String> =
            (0..filters).map(|filter| format!("house/{number:07}/sensor/{filter}")).collect();
        let options = SubscriptionOptions::with_qos(QoS::AtLeastOnce);
        self.apply(&Command::Subscribe(Subscribe {
            origin: Origin::default(),
            client_id: &format!("device-{number:07}"),
            session_epoch: number + 1,
            packet_id: 1,
            subscription_id: None,
            filters: texts
                .iter()
                .map(|filter| SubscribeFilter { filter, options, refused: None })
                .collect(),
        }));
    }

    fn lose(&mut self, number: u64) {
        self.apply(&Command::ConnectionLost(ConnectionLost {
            client_id: &format!("device-{number:07}"),
            session_epoch: number + 1,
            fire_will: false,
            expiry_s: None,
            will_grace_s: 0,
        }));
    }

    fn publish(&mut self, number: u64, sensor: u64) -> Duration {
        self.apply(&Command::Publish(Publish {
            origin: Origin::default(),
            client_id: "publisher",
            session_epoch: 0,
            incarnation: 0,
            packet_id: 1,
            qos: QoS::AtLeastOnce,
            retain: false,
            dup: false,
            captured: false,
            dedupe: None,
            source: Source::Mqtt,
            expiry_s: None,
            topic: &format!("house/{number:07}/sensor/{sensor}"),
            properties: b"",
            payload: &[7; 64],
        }))
    }
}

/// The value below which that share of all stands.
fn quantile(sorted: &[Duration], share: u32) -> Duration {
    let place = (sorted.len() as u64 * u64::from(share) / 1000) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn say(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let [half, most, max] = [500, 990, 1000].map(|share| quantile(&times, share));
    println!("{what}: {} times, p50 {half:?}, p99 {most:?}, max {max:?}", times.len());
}

fn main() {
    let mut arguments = std::env::args().skip(1).map_while(|text| text.parse::<u64>().ok());
    let sessions = arguments.next().unwrap_or(100_000);
    let filters = arguments.next().unwrap_or(10);
    let mut bench = Bench {
        machine: Machine::new(0, Limits::default()),
        builder: EntryBuilder::new(),
        effects: Vec::new(),
    };
    let empty = resident_bytes();
    (0..sessions).for_each(|number| bench.open(number));
    let opened = resident_bytes();
    (0..sessions).for_each(|number| bench.subscribe(number, filters));
    let subscribed = resident_bytes();
    println!(
        "{sessions} sessions: {} bytes each; {filters} subscriptions in each: {} bytes each",
        (opened - empty) / sessions,
        (subscribed - opened) / (sessions * filters).max(1)
    );
    (0..sessions).filter(|number| number % 2 == 0).for_each(|number| bench.lose(number));

    let mut walk = 0_u64;
    let mut next = || {
        walk = walk.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (walk >> 33) % sessions
    };
    let idle = (0..200_000).map(|_| bench.publish(next(), 0)).collect();
    say("a publish with nothing beside it", idle);
    let digest = bench.machine.digest();
    bench.machine.begin_checkpoint(1);
    let (mut steps, mut beside, mut chunks) = (Vec::new(), Vec::new(), Vec::<Bytes>::new());
    loop {
        let before = Instant::now();
        let Some(chunk) = bench.machine.next_chunk(STEP_BYTES) else { break };
        steps.push(before.elapsed());
        chunks.push(chunk);
        beside.extend((0..PUBLISHES_BETWEEN).map(|_| bench.publish(next(), 1)));
    }
    let written: usize = chunks.iter().map(Bytes::len).sum();
    let whole: Duration = steps.iter().sum();
    println!("a checkpoint of {written} bytes in {whole:?}; one of {BUCKETS} buckets would stop");
    println!("whoever writes to it first for {:?}", whole / BUCKETS);
    say("a step of the checkpoint", steps);
    say("a publish beside it", beside);

    let before = Instant::now();
    let mut restorer = Restorer::new();
    for chunk in &chunks {
        restorer.push(chunk).expect("our own chunk");
    }
    let again = restorer.finish().expect("our own chunks").machine;
    println!("read back and proved in {:?}", before.elapsed());
    assert_eq!(again.digest(), digest);
    assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES_MAX));
}
