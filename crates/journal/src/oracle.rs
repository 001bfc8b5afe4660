//! The same operations into our log and into raft-engine, and the same answers after each restart.
//!
//! `just wal-oracle` runs it: raft-engine takes longer to compile than the gate has patience.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use raft::eraftpb::{Entry, HardState};
use raft_engine::{Config, Engine, LogBatch, MessageExt};

use crate::body::{CheckpointMark, put_entry, put_u64};
use crate::crypto::SALT_BYTES;
use crate::disk::Disk;
use crate::format::RecordKind;
use crate::journal::{GroupSpec, Journal};
use crate::keys::FixedKeys;
use crate::manifest::Manifest;
use crate::members::Members;
use crate::options::{Drive, JournalOptions, NoClock};
use crate::recovery::{KeyRing, recover};
use crate::sim_disk::{Crash, SimDisk, SimEntropy};
use crate::writer::put_hard_state;

const GROUPS: u64 = 4;
const STATE_KEY: &[u8] = b"state";

struct Known;

impl MessageExt for Known {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// What both logs must agree upon, as the generator needs it to stay within Raft's rules.
#[derive(Default, Clone)]
struct Shape {
    compacted: u64,
    last: u64,
    term: u64,
    terms: BTreeMap<u64, u64>,
}

struct Pair {
    dice: u64,
    disk: SimDisk,
    engine: Engine,
    shapes: BTreeMap<u64, Shape>,
}

fn options(seed: u64) -> JournalOptions {
    JournalOptions {
        segment_bytes: 64 << 10,
        drive: Drive::Pump,
        entropy: Arc::new(SimEntropy::new(seed)),
        clock: Arc::new(NoClock),
        ..JournalOptions::new(1)
    }
}

fn keys() -> FixedKeys {
    FixedKeys::new([5; 32])
}

impl Pair {
    fn below(&mut self, bound: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 9) % bound
    }

    fn append(&mut self, journal: &Journal, group: u64) {
        let mut shape = self.shapes[&group].clone();
        let back = self.below(4).min(shape.last - shape.compacted);
        let first = shape.last + 1 - back;
        // A suffix is replaced only by a later term.
        shape.term = shape.term.max(1) + u64::from(back > 0 || self.below(10) == 0);
        let count = 1 + self.below(5);
        let entries: Vec<Entry> = (first..first + count)
            .map(|index| {
                let data = Bytes::from(vec![index as u8; self.below(900) as usize]);
                Entry { index, term: shape.term, data, ..Entry::default() }
            })
            .collect();
        let mut stager = journal.stager(group, 0);
        let place = (first, shape.term, count as u16);
        stager.push(RecordKind::Entries, place, |out| {
            put_u64(out, 0);
            for entry in &entries {
                put_entry(out, entry);
            }
        });
        stager.finish_unwatched();
        let mut batch = LogBatch::default();
        batch.add_entries::<Known>(group, &entries).unwrap();
        self.engine.write(&mut batch, true).unwrap();
        shape.last = first + count - 1;
        shape.terms.split_off(&first);
        shape.terms.extend((first..=shape.last).map(|index| (index, shape.term)));
        self.shapes.insert(group, shape);
    }

    fn vote(&mut self, journal: &Journal, group: u64) {
        let shape = self.shapes.get_mut(&group).unwrap();
        shape.term += 1;
        let state = HardState { term: shape.term, vote: group + 7, ..HardState::default() };
        let mut stager = journal.stager(group, 0);
        stager.push(RecordKind::HardState, (0, state.term, 0), |out| {
            put_hard_state(out, state.vote, 0);
        });
        stager.finish_unwatched();
        let mut batch = LogBatch::default();
        batch.put_message(group, STATE_KEY.to_vec(), &state).unwrap();
        self.engine.write(&mut batch, true).unwrap();
    }

    fn compact(&mut self, journal: &Journal, group: u64) {
        let shape = self.shapes[&group].clone();
        // raft-engine keeps no trace of a group whose entries are all gone.
        if shape.last <= shape.compacted + 1 {
            return;
        }
        let index = shape.compacted + 1 + self.below(shape.last - shape.compacted - 1);
        let term = shape.terms[&index];
        publish(&self.disk, journal, group, (index, term));
        let mark = CheckpointMark {
            index,
            term,
            compacted_index: index,
            compacted_term: term,
            members: Members::voters(&[1]),
        };
        let mut stager = journal.stager(group, 0);
        stager.push(RecordKind::Checkpoint, (index, term, 0), |out| mark.encode(out));
        stager.finish_unwatched();
        self.engine.compact_to(group, index + 1);
        self.shapes.get_mut(&group).unwrap().compacted = index;
    }

    fn life(&mut self, seed: u64, steps: u64) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let opened = Journal::open(disk, options(seed), &keys(), Arc::new(|_| {}));
        let (journal, recovered) = opened.unwrap();
        if recovered.is_empty() {
            for id in 1..=GROUPS {
                let spec = GroupSpec { id, members: Members::voters(&[1]), key_domain: 0 };
                journal.create_group(&spec).unwrap();
            }
        }
        for _ in 0..steps {
            let group = 1 + self.below(GROUPS);
            match self.below(12) {
                0 => self.vote(&journal, group),
                1 => self.compact(&journal, group),
                2 | 3 => drop(journal.pump().unwrap()),
                _ => self.append(&journal, group),
            }
        }
        journal.pump().unwrap();
        drop(journal);
        self.disk.crash(Crash::Clean);
    }

    fn compare(&self) {
        let keys = keys();
        let replay = recover(&self.disk, &mut KeyRing::new(&keys), 1).unwrap().replay;
        for (&group, row) in &replay.rows {
            let log = &replay.logs[&group];
            let (first, last) = (row.compacted_index + 1, row.last_index + 1);
            let mut theirs: Vec<Entry> = Vec::new();
            if last > first {
                self.engine
                    .fetch_entries_to::<Known>(group, first, last, None, &mut theirs)
                    .unwrap();
            }
            assert!(log.entries.iter().eq(theirs.iter()), "group {group} differs");
            let state: Option<HardState> = self.engine.get_message(group, STATE_KEY).unwrap();
            let state = state.unwrap_or_default();
            assert_eq!((row.vote, row.vote != 0), (state.vote, state.vote != 0));
            assert_eq!(self.shapes[&group].last, row.last_index);
        }
        assert_eq!(replay.rows.len() as u64, GROUPS);
    }
}

/// A checkpoint without chunks: the log must have one where it is cut.
fn publish(disk: &SimDisk, journal: &Journal, group: u64, (index, term): (u64, u64)) {
    let manifest = Manifest {
        node: 1,
        group,
        index,
        term,
        members: Members::voters(&[1]),
        schema: 1,
        key_epoch: 1,
        salt: [0; SALT_BYTES],
        chunks: Vec::new(),
        state_digest: Vec::new(),
    };
    let path = format!("checkpoints/{group:016x}/{index:016x}.json");
    let text = manifest.encode(journal.signer());
    disk.put(&path, b"");
    disk.open(&path).unwrap().write_at(0, &[IoSlice::new(text.as_bytes())]).unwrap();
    disk.open(&path).unwrap().sync_data().unwrap();
}

#[test]
fn our_log_and_raft_engine_remember_the_same() {
    for seed in 1..=8 {
        let name = format!("qmq-oracle-{}-{seed}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let dir = directory.to_str().unwrap().to_owned();
        let open = || Engine::open(Config { dir: dir.clone(), ..Config::default() }).unwrap();
        let shapes = (1..=GROUPS).map(|id| (id, Shape::default())).collect();
        let mut pair =
            Pair { dice: seed * 77 + 1, disk: SimDisk::new(seed), engine: open(), shapes };
        for life in 0..5 {
            pair.life(seed * 10 + life, 300);
            drop(pair.engine);
            pair.engine = open();
            pair.compare();
        }
        drop(pair);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
