//! Bytes that change at rest, keys and directories that do not belong together.
#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "the names are ours")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::collections::BTreeMap;
use std::sync::Arc;

use harness::world::World;
use harness::{Scratch, keys, silent};
use quantumqtt_journal::{
    Crash, Disk, FixedKeys, Floors, Group, GroupOptions, Journal, JournalError, JournalOptions,
    KeyError, KeyProvider, LocalKeyFile, Refusal, SimDisk, dump, inspect,
};

/// A log of three groups in several segments; `clean` says whether it was stopped in order.
fn written(clean: bool) -> World {
    let mut world = World::new(5, 3);
    world.checkpoint_every = 0;
    world.payload_max = 600;
    let mut life = world.open().unwrap();
    for _ in 0..150 {
        world.step(&mut life).unwrap();
    }
    world.settle(&mut life).unwrap();
    if clean {
        life.journal.stop().unwrap();
    } else {
        drop(life);
        world.disk.crash(Crash::Clean);
    }
    world
}

fn segments(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let paths = disk.paths().into_iter().filter(|path| path.ends_with(".seg"));
    paths.map(|path| (path.clone(), disk.read(&path).unwrap())).collect()
}

fn try_open(disk: &SimDisk, options: &JournalOptions) -> Result<Journal, JournalError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::open(disk, options.clone(), &keys(), silent()).map(|(journal, _)| journal)
}

/// Where records stand: nothing else in a segment means anything.
fn record_ranges(disk: &SimDisk) -> Vec<(String, u64, u64)> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let report = inspect(&disk, &keys(), &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let found = report
        .segments
        .iter()
        .map(|segment| (format!("wal/{:016x}.seg", segment.sequence), 4096, segment.used));
    found.collect()
}

/// Quarantine is per group: the others are whole, and take more.
fn healthy_groups_go_on(world: &World) {
    let opened = Journal::open(world.disk(), world.options.clone(), &keys(), silent());
    let (journal, recovered) = opened.unwrap();
    for recovered in recovered {
        let (id, healthy) = (recovered.id(), recovered.quarantined().is_none());
        let mut group = Group::start(recovered, GroupOptions::new(0));
        if !healthy {
            let refused = Err(Refusal::Quarantined { group: id });
            assert_eq!(group.propose(vec![1].into()).map(drop), refused);
            assert_eq!(group.stage(&journal).map(drop), refused);
            assert!(group.status().quarantined.is_some());
            continue;
        }
        group.propose(vec![1].into()).unwrap();
        let mut applied = Vec::new();
        while applied.len() <= world.users[&id].proposed.len() {
            group.advance(&journal).unwrap();
            journal.pump().unwrap();
            applied.extend(harness::apply(&mut group));
        }
        assert_eq!(applied.pop().unwrap(), vec![1]);
        assert_eq!(applied, world.users[&id].proposed);
    }
}

// req: LOG-19, LOG-20, LOG-21, LOG-23
#[test]
fn a_flipped_bit_below_the_watermark_is_never_passed_over() {
    let mut world = written(true);
    let ranges = record_ranges(&world.disk);
    assert!(ranges.len() > 1, "several segments");
    let whole = world.disk.fork();
    let (mut refused, mut quarantined, mut harmless) = (0, 0, 0);
    for (path, from, to) in ranges {
        for offset in (from..to).step_by(71) {
            world.disk = whole.fork();
            world.disk.flip(&path, offset, 1 << (offset % 8)).unwrap();
            let before = segments(&world.disk);
            let checked: Arc<dyn Disk> = Arc::new(world.disk.clone());
            let report = inspect(&checked, &keys(), &mut |_| {}).unwrap();
            match try_open(&world.disk, &world.options) {
                Err(JournalError::Damaged(damage)) => {
                    assert!(path.contains(&format!("{:016x}", damage.segment)), "{damage}");
                    assert!(!report.is_sound());
                    refused += 1;
                }
                Err(other) => panic!("{path} {offset}: {other}"),
                Ok(journal) => {
                    let named = &journal.recovery().quarantined;
                    assert_eq!(named.is_empty(), report.is_sound(), "{path} {offset}");
                    if named.is_empty() {
                        // Padding between batches: everything is there.
                        drop(journal);
                        world.open().unwrap();
                        harmless += 1;
                    } else {
                        drop(journal);
                        healthy_groups_go_on(&world);
                        quarantined += 1;
                    }
                }
            }
            for (path, bytes) in before {
                let now = world.disk.read(&path).unwrap();
                assert!(bytes.starts_with(&now), "{path} was overwritten");
            }
        }
    }
    assert!(refused > 10 && quarantined > 10, "{refused} {quarantined} {harmless}");
}

// req: LOG-20
#[test]
fn a_damaged_tail_above_the_watermark_is_cut() {
    let mut world = written(false);
    let proved = world.users.clone();
    let whole = world.disk.fork();
    let (path, _, end) = record_ranges(&whole).pop().unwrap();
    // Two more batches: the second one's mark proves the first, nothing proves the second.
    let mut life = world.open().unwrap();
    for _ in 0..2 {
        let replica = life.replicas.get_mut(&1).unwrap();
        replica.group.propose(vec![9; 300].into()).unwrap();
        world.users.get_mut(&1).unwrap().proposed.push(vec![9; 300].into());
        world.settle(&mut life).unwrap();
    }
    drop(life);
    world.disk.crash(Crash::Clean);
    let whole = world.disk.fork();
    let (last, _, until) = record_ranges(&whole).pop().unwrap();
    assert_ne!((path, end), (last.clone(), until));
    let mut cuts = 0;
    for offset in until - 300..until {
        world.disk = whole.fork();
        world.disk.flip(&last, offset, 0x40).unwrap();
        let journal = try_open(&world.disk, &world.options).unwrap();
        assert!(journal.recovery().quarantined.is_empty());
        let cut = journal.recovery().cut.clone().expect("the last batch does not count");
        assert!(cut.offset <= offset, "{cut}");
        drop(journal);
        // Everything the later mark proves is there; the rest is a prefix of what was proposed.
        world.users.get_mut(&1).unwrap().acknowledged = proved[&1].acknowledged + 1;
        world.open().unwrap();
        world.users = proved.clone();
        let user = world.users.get_mut(&1).unwrap();
        user.proposed.extend([vec![9; 300].into(), vec![9; 300].into()]);
        cuts += 1;
    }
    assert_eq!(cuts, 300);
}

#[test]
fn old_records_under_a_new_header_are_nothing() {
    let mut world = written(true);
    drop(world.open().unwrap());
    let files: Vec<_> = segments(&world.disk).into_iter().collect();
    let (newest, mut bytes) = files.last().unwrap().clone();
    bytes[4096..].copy_from_slice(&files[0].1[4096..]);
    world.disk.crash(Crash::Clean);
    world.disk.put(&newest, &bytes);
    let life = world.open().unwrap();
    assert!(life.journal.recovery().cut.is_some());
}

// req: LOG-18
#[test]
fn a_recovered_segment_is_never_written_again_and_salts_differ() {
    let mut world = World::new(77, 2);
    let mut known: BTreeMap<Vec<u8>, String> = BTreeMap::new();
    for _ in 0..25 {
        let before = segments(&world.disk);
        world.disk.power_off_at(world.disk.operations() + 30 + world.dice.below(60));
        world.live(100);
        world.crash();
        for (path, bytes) in segments(&world.disk) {
            let salt = bytes[32..48].to_vec();
            let owner = known.entry(salt).or_insert_with(|| path.clone());
            assert_eq!(*owner, path, "two segments share a salt");
            if let Some(old) = before.get(&path) {
                // Its unused rest may be given back.
                assert!(old.starts_with(&bytes), "{path} was written after it was recovered");
            }
        }
    }
}

#[test]
fn keys_nodes_and_formats_that_do_not_fit_are_named() {
    let world = written(true);
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    let open = |options: &JournalOptions, keys: &dyn KeyProvider| {
        let opened = Journal::open(disk.clone(), options.clone(), keys, silent());
        opened.map(drop).unwrap_err()
    };
    let wrong = open(&world.options, &FixedKeys::new([8; 32]));
    assert!(matches!(wrong, JournalError::WrongKey { .. }), "{wrong}");
    assert!(wrong.hint().contains("key file"));
    let foreign = open(&JournalOptions { node_id: 2, ..world.options.clone() }, &keys());
    assert!(matches!(foreign, JournalError::ForeignNode { found: 1, wanted: 2, .. }), "{foreign}");
    let zero = open(&JournalOptions { node_id: 0, ..world.options.clone() }, &keys());
    assert!(matches!(zero, JournalError::Option { option: "node_id", .. }));
    let (path, mut bytes) = segments(&world.disk).pop_last().unwrap();
    for at in [0, 2048] {
        bytes[at + 8] = 9;
        let crc = crc32c::crc32c(&bytes[at..at + 252]);
        bytes[at + 252..at + 256].copy_from_slice(&crc.to_le_bytes());
    }
    world.disk.put(&path, &bytes);
    let newer = open(&world.options, &keys());
    assert!(matches!(newer, JournalError::NewerFormat { found: 9, known: 1, .. }), "{newer}");
}

#[test]
fn a_missing_segment_is_damage() {
    let mut world = written(true);
    world.open().unwrap().journal.stop().unwrap();
    let paths: Vec<_> = segments(&world.disk).into_keys().collect();
    assert!(paths.len() > 2);
    for missing in &paths[1..paths.len() - 1] {
        let disk = world.disk.fork();
        disk.remove(missing).unwrap();
        let why = try_open(&disk, &world.options).map(drop).unwrap_err();
        assert!(matches!(why, JournalError::Damaged(_)), "{why}");
    }
}

/// A floor keeps the log below the checkpoint; what it kept must not go unnoticed.
// req: LOG-30
#[test]
fn a_missing_segment_that_a_floor_held_is_damage() {
    let mut world = World::new(9, 1);
    world.checkpoint_every = 0;
    let mut life = world.open().unwrap();
    for _ in 0..200 {
        world.step(&mut life).unwrap();
    }
    world.write_checkpoint(&mut life, 1).unwrap();
    let replica = life.replicas.get_mut(&1).unwrap();
    let checkpoint = replica.checkpoints.last().unwrap();
    let floors = Floors::none().hold("reader", 3);
    replica.group.compact(&life.journal, checkpoint, &floors).unwrap();
    for _ in 0..20 {
        world.step(&mut life).unwrap();
    }
    world.settle(&mut life).unwrap();
    life.journal.stop().unwrap();
    let paths: Vec<_> = segments(&world.disk).into_keys().collect();
    assert!(paths.len() > 2);
    world.disk.remove(&paths[0]).unwrap();
    let why = try_open(&world.disk, &world.options).map(drop).unwrap_err();
    assert!(matches!(why, JournalError::Damaged(_)), "{why}");
}

// req: LOG-24
#[test]
fn a_changed_checkpoint_is_refused_and_the_one_before_is_used() {
    let mut world = World::new(21, 1);
    world.checkpoint_every = 0;
    let mut life = world.open().unwrap();
    for _ in 0..2 {
        for _ in 0..40 {
            world.step(&mut life).unwrap();
        }
        world.write_checkpoint(&mut life, 1).unwrap();
    }
    life.journal.stop().unwrap();
    let whole = world.disk.fork();
    let mut paths: Vec<_> = whole.paths();
    paths.retain(|path| path.starts_with("checkpoints/"));
    let newest = paths.iter().rfind(|path| path.ends_with(".json")).unwrap().clone();
    let index = newest.rsplit_once('/').unwrap().1[..16].to_owned();
    for path in paths.iter().filter(|path| path.contains(&index)) {
        let length = whole.read(path).unwrap().len() as u64;
        let step = if path.ends_with(".json") { 5 } else { 97 };
        for offset in (0..length).step_by(step) {
            world.disk = whole.fork();
            world.disk.flip(path, offset, 2).unwrap();
            // Nothing was compacted: the older checkpoint and the log give the same state.
            let life = world.open().unwrap();
            assert_eq!(life.journal.recovery().checkpoints_refused.len(), 1, "{path} {offset}");
        }
    }
}

#[test]
fn a_dump_tells_every_payload_in_order() {
    let world = written(true);
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    let mut payloads: BTreeMap<u64, Vec<bytes::Bytes>> = BTreeMap::new();
    let mut last = 0;
    dump(&disk, &keys(), &mut |record| {
        assert!(record.lsn >= last);
        last = record.lsn;
        let found = record.payloads.into_iter().filter(|payload| !payload.is_empty());
        payloads.entry(record.group).or_default().extend(found);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    for (id, user) in &world.users {
        assert_eq!(payloads[id], user.proposed);
    }
}

// hardening is the directory's: a key others can read is no key.
#[test]
fn the_key_file_is_made_once_and_a_loose_one_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("keys");
    let path = scratch.path().join("keys/node.key");
    let key = |opened: Result<LocalKeyFile, KeyError>| {
        let opened = opened.unwrap();
        format!("{:?}", opened.epoch_key(1).map(|_| opened.path().to_owned()))
    };
    let made = key(LocalKeyFile::open_or_create(&path));
    assert_eq!(key(LocalKeyFile::open_or_create(&path)), made);
    let found = path.metadata().unwrap().permissions();
    assert_eq!(found.mode() & 0o777, 0o600);
    let set = |mode| {
        path.metadata().map(|found| {
            let mut permissions = found.permissions();
            permissions.set_mode(mode);
            permissions
        })
    };
    harness::set_permissions(&path, set(0o640).unwrap());
    assert!(matches!(LocalKeyFile::open_or_create(&path), Err(KeyError::Loose { .. })));
    harness::set_permissions(&path, set(0o600).unwrap());
    let link = scratch.path().join("link.key");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(LocalKeyFile::open_or_create(&link), Err(KeyError::NotPlain { .. })));
    let epoch = LocalKeyFile::open(&path).unwrap().epoch_key(2);
    assert!(matches!(epoch, Err(KeyError::UnknownEpoch { epoch: 2 })));
}
