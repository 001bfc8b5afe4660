//! The journal on a real directory, with its own threads.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod harness;

use std::sync::Arc;

use bytes::Bytes;
use harness::{Scratch, apply, group, keys, telling};
use quantumqtt_journal::{FileDisk, Group, Journal, JournalError, JournalOptions};

fn options() -> JournalOptions {
    JournalOptions { segment_bytes: 1 << 20, ..JournalOptions::new(1) }
}

/// Turns the crank until the group has applied as many entries.
fn drive(
    group: &mut Group,
    journal: &Journal,
    woken: &std::sync::mpsc::Receiver<usize>,
    count: usize,
) -> Vec<Bytes> {
    let mut applied = Vec::new();
    group.advance(journal).unwrap();
    while applied.len() < count {
        woken.recv().unwrap();
        group.advance(journal).unwrap();
        applied.extend(apply(group));
    }
    applied
}

// req: LOG-12
#[test]
fn entries_come_out_after_the_disk_and_again_after_a_restart() {
    let scratch = Scratch::new("restart");
    let payloads: Vec<Bytes> = (0..500).map(|n| Bytes::from(format!("entry {n}"))).collect();
    for round in 0..3 {
        let disk = Arc::new(FileDisk::new(scratch.path()).unwrap());
        let (wake, woken) = telling();
        let (journal, mut recovered) = Journal::open(disk, options(), &keys(), wake).unwrap();
        assert!(journal.recovery().clean);
        let mut group = group(&journal, &mut recovered, 5);
        let before = drive(&mut group, &journal, &woken, round * payloads.len());
        let expected = std::iter::repeat_n(payloads.clone(), round).flatten();
        assert_eq!(before, expected.collect::<Vec<_>>());
        for payload in &payloads {
            group.propose(payload.clone()).unwrap();
        }
        assert_eq!(drive(&mut group, &journal, &woken, payloads.len()), payloads);
        journal.stop().unwrap();
    }
}

#[test]
fn a_directory_in_use_is_refused() {
    let scratch = Scratch::new("locked");
    let disk = Arc::new(FileDisk::new(scratch.path()).unwrap());
    let open = || Journal::open(disk.clone(), options(), &keys(), telling().0);
    let first = open().unwrap();
    assert!(matches!(open(), Err(JournalError::Locked { .. })));
    drop(first);
    open().unwrap();
}
