//! A checkpoint is the state of one moment, to the byte; what is read back goes on as if nothing
//! had happened; and nothing else is ever read back.

use std::fmt::Write;

use bytes::Bytes;
use proptest::prelude::*;
use quantumqtt_machine::{
    AckKind, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, ChunkHeader, Command, Counters, DedupeKey, Effect,
    Limits, Machine, OpenSession, Publish, RestoreError, RestoreFault, Restored, Restorer,
    Statistics, SubscriptionOptions,
};
use quantumqtt_wire::QoS;
use xxhash_rust::xxh3::xxh3_128;

use crate::determinism::{limits, play, steps};
use crate::golden::check_golden;
use crate::rig::{PARTITION, Rig, entry_of, only, opening, publishing, will};

const INDEX: u64 = 4_711;

fn take_all(machine: &mut Machine, bytes_max: usize) -> Vec<Bytes> {
    std::iter::from_fn(|| machine.next_chunk(bytes_max)).collect()
}

pub(crate) fn checkpoint(machine: &mut Machine, bytes_max: usize) -> Vec<Bytes> {
    machine.begin_checkpoint(INDEX);
    take_all(machine, bytes_max)
}

pub(crate) fn restore(chunks: &[Bytes]) -> Result<Restored, RestoreError> {
    let mut restorer = Restorer::new();
    for chunk in chunks {
        restorer.push(chunk)?;
    }
    restorer.finish()
}

fn restored(chunks: &[Bytes]) -> Machine {
    let Restored { machine, index } = restore(chunks).unwrap();
    assert_eq!(index, INDEX);
    assert_eq!(machine.check_invariants(), Ok(()));
    machine
}

/// Counters are of one process; everything else must come back.
fn sizes(machine: &Machine) -> (Statistics, Option<u64>) {
    let statistics = Statistics { counters: Counters::default(), ..machine.statistics() };
    (statistics, machine.next_deadline_ms())
}

fn apply(machine: &mut Machine, command: &Command<'_>, now_ms: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    machine.apply(&entry_of(std::slice::from_ref(command), now_ms), &mut effects).unwrap();
    effects
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    // req: DET-01
    // req: DET-05
    #[test]
    fn a_restored_machine_goes_on_as_the_first_does(
        limits in limits(), steps in steps(), cut in any::<prop::sample::Index>(),
        bytes_max in CHUNK_BYTES_MIN..2_000_usize,
    ) {
        let (log, results, machine) = play(limits, &steps);
        let cut = cut.index(log.len());
        let mut first = Machine::new(PARTITION, limits);
        for (command, now_ms) in &log[..cut] {
            apply(&mut first, command, *now_ms);
        }
        let chunks = checkpoint(&mut first, bytes_max);
        prop_assert!(chunks.iter().all(|chunk| chunk.len() <= bytes_max));
        let mut second = restored(&chunks);
        prop_assert_eq!(second.digest(), first.digest());
        prop_assert_eq!(sizes(&second), sizes(&first));
        prop_assert_eq!(second.limits(), first.limits());
        prop_assert_eq!(checkpoint(&mut second, bytes_max), chunks, "one state, one spelling");
        for ((command, now_ms), expected) in log[cut..].iter().zip(&results[cut..]) {
            prop_assert_eq!(&apply(&mut second, command, *now_ms), expected, "{:?}", command);
        }
        prop_assert_eq!(second.digest(), machine.digest());
        prop_assert_eq!(sizes(&second), sizes(&machine));
    }

    // The chunks are taken whenever it pleases, one or several between any two commands.
    // req: DET-01
    #[test]
    fn what_is_applied_meanwhile_does_not_show(
        limits in limits(), steps in steps(), cut in any::<prop::sample::Index>(),
        pace in proptest::collection::vec(0..3_usize, 80),
    ) {
        let (log, results, machine) = play(limits, &steps);
        let cut = cut.index(log.len());
        let (mut still, mut busy) =
            (Machine::new(PARTITION, limits), Machine::new(PARTITION, limits));
        for (command, now_ms) in &log[..cut] {
            apply(&mut still, command, *now_ms);
            apply(&mut busy, command, *now_ms);
        }
        let digest = busy.digest();
        let expected = checkpoint(&mut still, CHUNK_BYTES_MIN);
        busy.begin_checkpoint(INDEX);
        let mut chunks = Vec::new();
        for (((command, now_ms), expected), takes) in
            log[cut..].iter().zip(&results[cut..]).zip(pace)
        {
            prop_assert_eq!(&apply(&mut busy, command, *now_ms), expected);
            for _ in 0..takes {
                chunks.extend(busy.next_chunk(CHUNK_BYTES_MIN));
            }
        }
        chunks.extend(take_all(&mut busy, CHUNK_BYTES_MIN));
        prop_assert_eq!(&chunks, &expected, "two machines, the same log, the same chunks");
        prop_assert_eq!(restored(&chunks).digest(), digest);
        prop_assert_eq!(busy.digest(), machine.digest(), "looking changes nothing");
        prop_assert_eq!(busy.statistics(), machine.statistics());
    }
}

/// One of everything a partition may hold.
pub(crate) fn full_house() -> Rig {
    let mut rig = Rig::with_limits(Limits { window_max: 2, ..Limits::default() });
    let exactly = SubscriptionOptions::with_qos(QoS::ExactlyOnce);
    let open = OpenSession { identity: "alice", will: Some(will(30)), ..opening("panel") };
    let (panel, _) = rig.open(open);
    rig.run(panel.subscribe("lamp/#", exactly));
    rig.run(panel.subscribe("$share/workers/job/+", exactly));
    let worker = rig.connect_to("worker", "$share/workers/job/+", QoS::AtLeastOnce);
    let away = rig.open(OpenSession { expiry_s: 3_600, will: Some(will(60)), ..opening("away") }).0;
    rig.run(away.subscribe("#", SubscriptionOptions { no_local: true, ..exactly }));
    let large = "x".repeat(600);
    let publishes = [
        Publish { retain: true, ..publishing(1, QoS::AtLeastOnce, "lamp/state", "off") },
        Publish { retain: true, expiry_s: Some(90), ..publishing(2, QoS::ExactlyOnce, "v", "9") },
        publishing(3, QoS::ExactlyOnce, "job/1", "dig"),
        panel.publish(4, QoS::ExactlyOnce, "job/2", "paint"),
        Publish { expiry_s: Some(7), ..publishing(5, QoS::AtLeastOnce, "lamp/set", "on") },
        Publish { properties: b"\x01\x01", ..publishing(6, QoS::ExactlyOnce, "lamp/b", &large) },
        publishing(7, QoS::ExactlyOnce, "lamp/c", "last"),
    ];
    for publish in publishes {
        rig.run(Command::Publish(publish));
        rig.now_ms += 10;
    }
    rig.run(panel.ack(AckKind::PubRec, 2));
    rig.run(worker.ack(AckKind::PubAck, 1));
    rig.lose(away);
    rig
}

// req: SES-08
#[test]
fn one_of_everything_comes_back() {
    let mut rig = full_house();
    let chunks = checkpoint(&mut rig.machine, CHUNK_BYTES_MIN);
    let machine = restored(&chunks);
    let ids: Vec<&str> = machine.client_ids().collect();
    assert_eq!(ids, ["away", "panel", "worker"]);
    for id in ids {
        assert_eq!(machine.session_view(id), rig.machine.session_view(id));
    }
    assert!(machine.waiting_wills().eq(rig.machine.waiting_wills()));
    let large = chunks.iter().map(Bytes::len).sum::<usize>();
    assert!((1_200..2_400).contains(&large), "a message is written once: {large}");
    assert!(machine.next_deadline_ms().is_some_and(|at_ms| at_ms < rig.now_ms + 90_000));
    rig.machine = machine;
    assert_eq!(only(&rig.tick(60_000), "append"), ["append @7 will=gone q1 Will of away/3 seq 8"]);
    assert_eq!(only(&rig.tick(3_540_000), "ended").len(), 1);
}

#[test]
fn messages_that_wait_for_many_are_one_message_again() {
    let mut rig = Rig::new();
    for client_id in ["a", "b", "c", "d"] {
        let link = rig.connect_to(client_id, "t", QoS::AtLeastOnce);
        rig.lose(link);
    }
    rig.run(Command::Publish(publishing(1, QoS::AtLeastOnce, "t", &"y".repeat(10_000))));
    let chunks = checkpoint(&mut rig.machine, CHUNK_BYTES_MAX);
    assert!(chunks.iter().map(Bytes::len).sum::<usize>() < 11_000);
    rig.machine = restored(&chunks);
    let deliver = |rig: &mut Rig, client_id| {
        rig.apply(Command::OpenSession(opening(client_id))).into_iter().find_map(|effect| {
            if let Effect::Deliver(deliver) = effect { Some(deliver.message) } else { None }
        })
    };
    let (one, other) = (deliver(&mut rig, "a").unwrap(), deliver(&mut rig, "d").unwrap());
    assert!(std::sync::Arc::ptr_eq(&one, &other));
}

#[test]
fn an_empty_machine_is_two_chunks() {
    let mut machine = Machine::new(PARTITION, Limits::default());
    assert_eq!(machine.next_chunk(CHUNK_BYTES_MAX), None);
    let chunks = checkpoint(&mut machine, 0);
    assert_eq!((chunks.len(), machine.checkpoint_index()), (2, None));
    assert_eq!(restored(&chunks).digest(), machine.digest());
}

#[test]
fn a_checkpoint_that_begins_again_forgets_the_one_before() {
    let mut rig = full_house();
    rig.machine.begin_checkpoint(1);
    rig.machine.next_chunk(CHUNK_BYTES_MIN);
    rig.tick(1_000_000);
    rig.machine.begin_checkpoint(2);
    assert_eq!(rig.machine.checkpoint_index(), Some(2));
    let later = take_all(&mut rig.machine, CHUNK_BYTES_MIN);
    assert_eq!(restore(&later).unwrap().machine.digest(), rig.machine.digest());
    rig.machine.begin_checkpoint(3);
    rig.machine.abandon_checkpoint();
    assert_eq!(rig.machine.next_chunk(CHUNK_BYTES_MIN), None);
}

/// The fault, and in which chunk it was found.
fn fault_of(chunks: &[Bytes]) -> (u32, RestoreFault) {
    let error = restore(chunks).expect_err("this is no checkpoint");
    (error.chunk, error.fault)
}

// req: LOG-27
#[test]
fn a_row_of_chunks_is_whole_and_in_order_or_refused() {
    let mut rig = full_house();
    let chunks = checkpoint(&mut rig.machine, 300);
    let count = chunks.len() as u32;
    assert!(count > 4);
    for missing in 0..chunks.len() {
        let mut fewer = chunks.clone();
        fewer.remove(missing);
        let found = missing as u32 + 1;
        let expected = if found == count {
            (found - 1, RestoreFault::CutOff)
        } else {
            (found - 1, RestoreFault::WrongNumber { expected: found - 1, found })
        };
        assert_eq!(fault_of(&fewer), expected);
    }
    let mut swapped = chunks.clone();
    swapped.swap(1, 2);
    assert_eq!(fault_of(&swapped), (1, RestoreFault::WrongNumber { expected: 1, found: 2 }));
    let mut longer = chunks.clone();
    longer.push(chunks[0].clone());
    assert_eq!(fault_of(&longer), (count, RestoreFault::Trailing));
    rig.machine.begin_checkpoint(INDEX + 1);
    let mut mixed = take_all(&mut rig.machine, 300);
    mixed.splice(1.., chunks[1..].iter().cloned());
    assert_eq!(fault_of(&mixed), (1, RestoreFault::OtherCheckpoint));
    assert_eq!(fault_of(&[]), (0, RestoreFault::CutOff));
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let mut rig = full_house();
    let chunks = checkpoint(&mut rig.machine, 2_000);
    for (number, chunk) in chunks.iter().enumerate() {
        for at in (0..chunk.len()).filter(|at| *at < 64 || at % 37 == 0) {
            let mut damaged = chunks.clone();
            let mut bytes = chunk.to_vec();
            bytes[at] ^= 1 << (at % 8);
            damaged[number] = Bytes::from(bytes);
            let error = restore(&damaged).expect_err("a flipped bit");
            assert!(error.chunk as usize <= number, "{error}");
            damaged[number] = chunk.slice(..at);
            assert_eq!(restore(&damaged).unwrap_err().chunk as usize, number);
        }
    }
}

#[test]
fn an_error_says_where() {
    let mut rig = full_house();
    let mut chunks = checkpoint(&mut rig.machine, 300);
    let mut bytes = chunks[2].to_vec();
    bytes[4] = 9;
    chunks[2] = Bytes::from(bytes);
    let error = restore(&chunks).unwrap_err();
    assert_eq!(
        error.to_string(),
        "checkpoint cannot be restored: chunk 2, byte 4: format 9 is none this build reads"
    );
}

#[test]
fn what_was_in_flight_is_repeated_after_a_restart() {
    let (mut before, mut after) = (full_house(), full_house());
    after.machine = restored(&checkpoint(&mut after.machine, 512));
    for client_id in ["panel", "away", "worker"] {
        let identity = if client_id == "panel" { "alice" } else { "" };
        let open = OpenSession { identity, receive_maximum: 1, ..opening(client_id) };
        assert_eq!(after.open(open).1, before.open(open).1);
    }
}

/// A checkpoint as text: the digest, then a chunk in hexadecimal on each line.
fn text_of(format: u8, machine: &mut Machine) -> String {
    let mut text = format!(
        "# One of everything a partition holds, chunk by chunk: tests/behaviour/checkpoint.rs.\n\
         # A later release reads this file of format {format} and gets this state.\n\
         digest {:032x}\n",
        machine.digest()
    );
    for chunk in checkpoint(machine, 400) {
        text.push_str("chunk ");
        chunk.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

fn unhex(digits: &str) -> Bytes {
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}

// A state without keys is still written as the first release wrote it.
// req: DET-05
#[test]
fn the_checkpoint_of_every_release_is_read_for_ever() {
    check_golden("checkpoint_1.txt", &text_of(1, &mut full_house().machine));
    is_read_back(include_str!("../../../../tests/golden/machine/checkpoint_1.txt"));
    let mut rig = full_house();
    keep_keys(&mut rig);
    check_golden("checkpoint_2.txt", &text_of(2, &mut rig.machine));
    is_read_back(include_str!("../../../../tests/golden/machine/checkpoint_2.txt"));
}

fn keep_keys(rig: &mut Rig) {
    for (packet_id, identity, key) in [(8, "", "ä"), (9, "ada", "run-7/0"), (10, "ada", "ä")] {
        let dedupe = Some(DedupeKey { identity, key });
        let publish = Publish { dedupe, ..publishing(packet_id, QoS::AtLeastOnce, "x", "once") };
        rig.run(Command::Publish(publish));
        rig.now_ms += 10;
    }
}

fn is_read_back(stored: &str) {
    let chunks: Vec<Bytes> =
        stored.lines().filter_map(|line| line.strip_prefix("chunk ")).map(unhex).collect();
    let machine = restored(&chunks);
    let digest = stored.lines().find_map(|line| line.strip_prefix("digest ")).unwrap();
    assert_eq!(format!("{:032x}", machine.digest()), digest);
}

/// A first chunk of these bytes, its sum valid.
fn sealed(items: &[u8], is_last: bool) -> Bytes {
    ChunkHeader { partition: PARTITION, index: INDEX, number: 0, is_last }.seal(items)
}

// req: WIRE-21
// hardening: stored-lengths
#[test]
fn lengths_that_lie_are_not_believed() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    for (name, items) in [
        ("an item", [&[1_u8][..], &huge].concat()),
        ("a text in an item", [&[3_u8, 10][..], &huge].concat()),
        ("no item at all", vec![200, 0]),
        (
            "a length that is no number",
            vec![1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ),
    ] {
        let error = restore(&[sealed(&items, true)]).expect_err(name);
        assert_eq!((error.chunk, error.offset), (0, 28), "{name}: {error}");
    }
}

// req: SUB-12
#[test]
fn whose_turn_it_was_is_what_is_stored() {
    let mut rig = Rig::new();
    for client_id in ["a", "b", "c"] {
        rig.connect_to(client_id, "$share/g/t", QoS::AtMostOnce);
    }
    let publish = || Command::Publish(publishing(0, QoS::AtMostOnce, "t", "x"));
    rig.run(publish());
    let expected = checkpoint(&mut rig.machine, CHUNK_BYTES_MAX);
    rig.machine.begin_checkpoint(INDEX);
    // Another time and offset stand in the header only, which is written already.
    rig.run(publish());
    let chunks = take_all(&mut rig.machine, CHUNK_BYTES_MAX);
    assert_eq!(chunks, expected);
    rig.machine = restored(&chunks);
    assert_eq!(only(&rig.run(publish()), "publish"), ["publish c2 t=x q0"]);
}

/// A checkpoint of two chunks, its items changed and its counts kept, the digest as it should be.
fn forged(chunks: &[Bytes], change: impl FnOnce(&mut Vec<u8>)) -> Vec<Bytes> {
    let [items, end] = chunks else { panic!("items and end expected") };
    let body = |chunk: &Bytes| chunk[28..chunk.len() - 16].to_vec();
    let (mut items, mut end) = (body(items), body(end));
    change(&mut items);
    let digest_at = end.len() - 16;
    end[digest_at..].copy_from_slice(&xxh3_128(&items).to_le_bytes());
    let header = ChunkHeader { partition: PARTITION, index: INDEX, number: 0, is_last: false };
    let last = ChunkHeader { number: 1, is_last: true, ..header };
    vec![header.seal(&items), last.seal(&end)]
}

#[test]
fn a_state_that_can_never_have_been_is_refused_however_well_it_is_sealed() {
    let mut rig = Rig::new();
    let open = OpenSession { receive_maximum: 1, ..opening("a") };
    let (link, _) = rig.open(open);
    rig.run(link.subscribe("t", SubscriptionOptions::with_qos(QoS::AtLeastOnce)));
    for packet_id in 1..=2 {
        rig.run(Command::Publish(publishing(packet_id, QoS::AtLeastOnce, "t", "x")));
    }
    let chunks = checkpoint(&mut rig.machine, CHUNK_BYTES_MAX);
    assert_eq!(forged(&chunks, |_| {}), chunks);
    // Next packet id 2, window of 1; one subscription, one in flight, one that waits.
    let window = [2, 1, 1, 1, 1, 0, 0];
    let roomy = forged(&chunks, |items| {
        let at = items.windows(7).position(|seven| seven == window).unwrap();
        items[at + 1] = 2;
    });
    assert_eq!(fault_of(&roomy).1, RestoreFault::Unsound("nothing waits while there is room"));
}

// req: LOG-27
#[test]
fn another_digest_than_the_announced_one_is_refused() {
    let mut rig = full_house();
    let chunks = checkpoint(&mut rig.machine, CHUNK_BYTES_MAX);
    let other = forged(&chunks, |_| {})[1].clone();
    let mut body = other[28..other.len() - 16].to_vec();
    *body.last_mut().unwrap() ^= 1;
    let last = ChunkHeader { partition: PARTITION, index: INDEX, number: 1, is_last: true };
    let fault = fault_of(&[chunks[0].clone(), last.seal(&body)]).1;
    assert!(matches!(fault, RestoreFault::WrongDigest { .. }), "{fault:?}");
}
