//! Bits flip, files are cut, swapped and made up: an error with offsets, never other bytes.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use quantumqtt_records::{
    Disk, Error, Identity, Keys, Manifest, Range, RecordLog, Retention, SimDisk,
};
use support::{Owned, append, directory, identity, keys, open, read_all, seal, shown, small};

const RECORDS: u64 = 900;

fn records() -> Vec<Owned> {
    (0..RECORDS).map(|number| Owned::plain(number, &[number as u8; 300])).collect()
}

/// One chunk with several blocks.
fn one_chunk() -> (SimDisk, Manifest, String) {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    append(&mut log, 0, &records()).expect("dense");
    seal(&mut log).expect("sealed");
    let name = format!("{}/{}", directory(), "0000000000000001.chunk");
    (sim, log.manifest(), name)
}

/// Reads all there is: what came before the damage, and what was said about it.
fn read_until_error(log: &RecordLog) -> (u64, Option<Error>) {
    let reader = log.reader();
    let mut range = Range::from(0);
    loop {
        match reader.read(&range, 1) {
            Ok(step) if step.next == range.start => return (range.start, None),
            Ok(step) => {
                let found: Vec<_> = step.batches.iter().flat_map(support::records_of).collect();
                let (from, until) = (range.start as usize, step.next as usize);
                assert_eq!(found, shown(range.start, &records()[from..until]), "other bytes");
                range.start = step.next;
            }
            Err(error) => return (range.start, Some(error)),
        }
    }
}

// hardening: stored-lengths
#[test]
fn a_flipped_bit_anywhere_is_told_and_never_served() {
    let (sim, manifest, name) = one_chunk();
    let bytes = sim.bytes(&name).expect("the chunk");
    let (mut refused, mut damaged) = (0, 0);
    let ends = (0..200).chain(bytes.len() - 700..bytes.len());
    for at in ends.chain((200..bytes.len() - 700).step_by(3_001)) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        sim.put(&name, &flipped);
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        match open(&disk, &manifest) {
            Err(Error::DamagedChunk { chunk: 1, first: 0, last, .. }) => {
                assert_eq!(last, RECORDS - 1);
                refused += 1;
            }
            Err(Error::NewerFormat { .. } | Error::UnknownKey { .. }) => refused += 1,
            Err(other) => panic!("byte {at}: {other:?}"),
            Ok(log) => {
                let (served, error) = read_until_error(&log);
                match error {
                    Some(Error::DamagedBlock { chunk: 1, first, last }) => {
                        assert_eq!(served, first, "all before the damage was served");
                        // Asking for what comes after it is allowed, and answered.
                        let after = read_all(&log.reader(), last + 1).expect("undamaged");
                        assert_eq!(after.len() as u64, RECORDS - last - 1);
                        damaged += 1;
                    }
                    other => panic!("byte {at}: nobody noticed: {other:?}"),
                }
            }
        }
    }
    assert!(refused > 200 && damaged > 60, "{refused} refused, {damaged} damaged blocks");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (sim, manifest, name) = one_chunk();
    let bytes = sim.bytes(&name).expect("the chunk");
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    for length in (0..bytes.len()).step_by(3_989).chain(bytes.len() - 40..bytes.len()) {
        sim.put(&name, &bytes[..length]);
        let refused = open(&disk, &manifest);
        assert!(matches!(refused, Err(Error::DamagedChunk { chunk: 1, .. })), "{length}");
    }
    disk.remove(&name).expect("removed");
    let refused = open(&disk, &manifest).expect_err("the list names a file that is not there");
    assert!(refused.to_string().contains("missing"), "{refused}");
}

#[test]
fn a_chunk_of_another_log_or_under_another_key_does_not_open() {
    let (sim, manifest, _) = one_chunk();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let open = |identity: Identity, keys: Keys| {
        RecordLog::open(disk.clone(), directory(), identity, keys, small(), &manifest)
    };
    let tenant = Identity { tenant: "other".into(), ..identity() };
    let partition = Identity { partition: 4, ..identity() };
    for identity in [tenant, partition] {
        let refused = open(identity, keys());
        assert!(matches!(refused, Err(Error::DamagedChunk { .. })), "{refused:?}");
    }
    let refused = open(identity(), Keys::new(1, [8; 32]));
    assert!(matches!(refused, Err(Error::DamagedChunk { .. })), "{refused:?}");
    let refused = open(identity(), Keys::new(2, support::KEY));
    assert!(matches!(refused, Err(Error::UnknownKey { epoch: 1 })), "{refused:?}");
    // A newer key beside the old one changes nothing for what is there.
    let (log, _) = open(identity(), keys().with(2, [8; 32])).expect("both keys");
    assert_eq!(log.reader().bounds().end, RECORDS);
}

#[test]
fn chunks_sealed_under_several_keys_are_one_log() {
    let (sim, manifest, _) = one_chunk();
    let disk: Arc<dyn Disk> = Arc::new(sim);
    let rotated = keys().with(2, [8; 32]);
    let open = |keys: Keys, manifest: &Manifest| {
        RecordLog::open(disk.clone(), directory(), identity(), keys, small(), manifest)
    };
    let (mut log, _) = open(rotated.clone(), &manifest).expect("both keys");
    let more: Vec<Owned> = (RECORDS..RECORDS + 9).map(|at| Owned::plain(at, b"new")).collect();
    append(&mut log, RECORDS, &more).expect("dense");
    seal(&mut log).expect("sealed");
    let all = [records(), more].concat();
    let manifest = log.manifest();
    let (log, _) = open(rotated, &manifest).expect("both keys");
    assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &all));
    let refused = open(keys(), &manifest);
    assert!(matches!(refused, Err(Error::UnknownKey { epoch: 2 })), "{refused:?}");
}

#[test]
fn damage_stops_what_needs_it_and_nothing_else() {
    let (sim, manifest, name) = one_chunk();
    let mut bytes = sim.bytes(&name).expect("the chunk");
    bytes[300] ^= 1; // in the first block
    sim.put(&name, &bytes);
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut log = open(&disk, &manifest).expect("footers are whole");
    let reader = log.reader();
    let late: Vec<u64> = vec![RECORDS - 1];
    assert_eq!(reader.read_points(&late, 1).expect("undamaged").rows.len(), 1);
    assert!(matches!(reader.verify_chunk(1), Err(Error::DamagedBlock { first: 0, .. })));
    // Retention needs the first block only if something refers to it.
    let old = Retention { age_ms: Some(0), bytes: None };
    let needed: Arc<[u64]> = vec![3].into();
    let job = log.plan_retention(u64::MAX, &old, &needed).expect("all of it");
    let error = job.execute().expect_err("the row at offset 3 cannot be moved");
    assert!(matches!(error, Error::DamagedBlock { chunk: 1, first: 0, .. }));
    log.abandon_rewrite(&error);
    assert_eq!(log.statistics().suspect_count, 1);
    assert_eq!(sim.files().len(), 1, "nothing half-made is left");
    let job = log.plan_retention(u64::MAX, &old, &late.into()).expect("all of it");
    log.publish_rewrite(job.execute().expect("the damaged block is not needed"));
    assert_eq!(log.reader().read_points(&[RECORDS - 1], 1).expect("kept").rows.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // hardening: announced-length
    #[test]
    fn made_up_files_neither_panic_nor_open(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
        // Where the trailer says the footer is, and how long.
        position in prop_oneof![0..400_u64, any::<u64>()],
        length in prop_oneof![0..400_u64, any::<u64>()],
        is_dressed in any::<bool>(),
    ) {
        if is_dressed && bytes.len() >= 96 {
            bytes[..12].copy_from_slice(b"QMQchunk\x01\0\x01\0");
            bytes[12..16].copy_from_slice(&3_u32.to_le_bytes());
            bytes[16..24].copy_from_slice(&1_u64.to_le_bytes());
            bytes[24..28].copy_from_slice(&1_u32.to_le_bytes());
            let end = bytes.len() - 32;
            bytes[end..end + 8].copy_from_slice(&position.to_le_bytes());
            bytes[end + 8..end + 16].copy_from_slice(&length.to_le_bytes());
            bytes[end + 16..end + 24].copy_from_slice(b"QMQc-end");
        }
        let (sim, manifest, name) = one_small_chunk();
        sim.put(&name, &bytes);
        let disk: Arc<dyn Disk> = Arc::new(sim);
        prop_assert!(open(&disk, &manifest).is_err());
    }
}

fn one_small_chunk() -> (SimDisk, Manifest, String) {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    append(&mut log, 0, &records()[..2]).expect("dense");
    seal(&mut log).expect("sealed");
    (sim, log.manifest(), format!("{}/{}", directory(), "0000000000000001.chunk"))
}
