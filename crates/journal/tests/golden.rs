//! Bytes of earlier releases: they stay readable, and today's writer still writes them.
//!
//! Trailing zeros are not stored. `cargo test -p quantumqtt-journal --test golden -- --ignored`
//! renders the files of the current format anew; do that only with a new format number.
#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "the names are ours")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "golden files are files")]

mod harness;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use harness::keys;
use harness::world::World;
use quantumqtt_journal::{Crash, Disk, JournalError, inspect};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1")
}

fn payload(number: u64) -> Bytes {
    Bytes::from(format!("golden {number}: {}", "·".repeat((number % 7) as usize * 20)))
}

/// A small log with everything in it: two groups, two segments, a checkpoint.
fn write() -> World {
    let mut world = World::new(2026, 2);
    for life in 0..2 {
        let mut life_now = world.open().unwrap();
        for number in 0..12 {
            let id = 1 + number % 2;
            let replica = life_now.replicas.get_mut(&id).unwrap();
            let payload = payload(life * 12 + number);
            replica.group.propose(payload.clone()).unwrap();
            world.users.get_mut(&id).unwrap().proposed.push(payload);
            if number % 3 == 0 {
                world.settle(&mut life_now).unwrap();
            }
        }
        if life == 0 {
            world.write_checkpoint(&mut life_now, 1).unwrap();
        }
        world.settle(&mut life_now).unwrap();
        life_now.journal.stop().unwrap();
    }
    world
}

fn stored(world: &World) -> Vec<(String, Vec<u8>)> {
    let kept = |path: &String| path.starts_with("wal/") || path.starts_with("checkpoints/");
    let paths = world.disk.paths().into_iter().filter(kept);
    let bytes = paths.filter(|path| !path.ends_with(".spare")).map(|path| {
        let mut bytes = world.disk.read(&path).unwrap();
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        (path, bytes)
    });
    bytes.collect()
}

/// The golden files on a disk of their own, as whole segments again.
fn golden() -> World {
    let world = World::new(1, 2);
    for (path, _) in stored(&write()) {
        let mut bytes = std::fs::read(folder().join(path.replace('/', "_"))).unwrap();
        if path.ends_with(".seg") {
            bytes.resize(64 << 10, 0);
        }
        world.disk.put(&path, &bytes);
    }
    world
}

#[test]
fn todays_writer_writes_the_golden_bytes() {
    for (path, bytes) in stored(&write()) {
        let golden = std::fs::read(folder().join(path.replace('/', "_"))).unwrap();
        assert!(golden == bytes, "{path} changed: a new format needs a new number");
    }
}

// req: LOG-40
#[test]
fn golden_bytes_are_read_and_gone_on_with() {
    let mut world = golden();
    for (id, user) in &mut world.users {
        let mine = (0..24).filter(|number| 1 + number % 2 == *id);
        user.proposed = mine.map(payload).collect();
        user.acknowledged = user.proposed.len();
    }
    let life = world.open().unwrap();
    assert!(life.journal.recovery().clean);
    assert_eq!(life.replicas[&1].checkpoints[0].state_digest(), b"digest");
    drop(life);
    world.disk.crash(Crash::Clean);
    assert!(world.live(30));
}

#[test]
fn damaged_golden_bytes_are_named() {
    let world = golden();
    let path = "wal/0000000000000001.seg";
    world.disk.flip(path, 4200, 1).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    let report = inspect(&disk, &keys(), &mut |_| {}).unwrap();
    assert_eq!(report.damages[0].segment, 1);
    let mut world = world;
    let opened = world.open().err().unwrap();
    assert!(matches!(opened, harness::world::End::Disk(JournalError::Damaged(_))), "{opened:?}");
}

#[test]
#[ignore = "renders the golden files of a new format"]
fn render() {
    std::fs::create_dir_all(folder()).unwrap();
    for (path, bytes) in stored(&write()) {
        std::fs::write(folder().join(path.replace('/', "_")), bytes).unwrap();
    }
}
