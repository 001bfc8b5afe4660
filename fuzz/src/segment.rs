//! Invariant: whatever became of the files of a log, reading them refuses, reports, or is right.
//!
//! Input: a choice, then bytes. 0 makes them a whole segment; 1 makes them edits of a log of two
//! segments that was written here: which file, where, and what is flipped; 2 cuts files short; 3
//! makes them the body of a record, as it comes out of its seal. Reading never panics, and a log
//! that passes for sound holds entries that were written, in their order, and no others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use quantumqtt_journal::{
    Disk, Drive, FixedKeys, Group, GroupOptions, GroupSpec, Journal, JournalOptions, Members,
    SimDisk, SimEntropy, dump, fuzzing, inspect, replayable,
};

const GROUP: u64 = 1;
const SEGMENT_BYTES: u64 = 64 * 1024;
const ENTRIES: u8 = 40;
const ENTRY_BYTES: usize = 2_000;

type Files = BTreeMap<String, Vec<u8>>;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    match choice % 4 {
        0 => look(&BTreeMap::from([(segment_name(1), rest.to_vec())])),
        1 => {
            let mut files = written().clone();
            for edit in rest.chunks_exact(4) {
                let place = usize::from(u16::from_le_bytes([edit[1], edit[2]]));
                if let Some(byte) = file_at(&mut files, edit[0]).get_mut(place) {
                    *byte ^= edit[3];
                }
            }
            look(&files);
        }
        2 => {
            let mut files = written().clone();
            for cut in rest.chunks_exact(3) {
                let length = usize::from(u16::from_le_bytes([cut[1], cut[2]]));
                file_at(&mut files, cut[0]).truncate(length);
            }
            look(&files);
        }
        _ => {
            if let [kind, count, body @ ..] = rest {
                fuzzing::read_body(*kind, u16::from(*count), body);
            }
        }
    }
}

fn look(files: &Files) {
    let sim = SimDisk::new(1);
    sim.make_dir("wal").expect("a fresh disk");
    for (name, content) in files {
        sim.put(name, content);
    }
    let disk: Arc<dyn Disk> = Arc::new(sim);
    let report = inspect(&disk, &keys(), &mut |_| {});
    let mut found = Vec::new();
    let mut each = |record: quantumqtt_journal::DumpedRecord| {
        found.extend(record.payloads.into_iter().filter(|payload| !payload.is_empty()));
        ControlFlow::Continue(())
    };
    let dumped = dump(&disk, &keys(), &mut each);
    let originals: Vec<Bytes> = (0..ENTRIES).map(payload).collect();
    assert!(originals.starts_with(&found), "what was never written came out");
    if report.is_ok_and(|report| report.is_sound() && !report.segments.is_empty()) {
        assert!(dumped.is_ok(), "sound, and cannot be dumped: {dumped:?}");
    }
    // A start's own look is stricter; what it takes must be a beginning of what was written.
    if let Ok(Some(found)) = replayable(&disk, &keys(), GROUP) {
        let entries: Vec<Bytes> = found.entries.into_iter().map(|(_, data)| data).collect();
        assert!(originals.starts_with(&entries), "a start would apply what was never written");
    }
}

fn file_at(files: &mut Files, number: u8) -> &mut Vec<u8> {
    let count = files.len();
    files.values_mut().nth(usize::from(number) % count).expect("there are files")
}

fn segment_name(sequence: u64) -> String {
    format!("wal/{sequence:016x}.seg")
}

fn keys() -> FixedKeys {
    FixedKeys::new([7; 32])
}

fn payload(number: u8) -> Bytes {
    vec![number | 0x80; ENTRY_BYTES].into()
}

/// The files of a log of two segments, written once.
fn written() -> &'static Files {
    static WRITTEN: OnceLock<Files> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let sim = SimDisk::new(1);
        let options = JournalOptions {
            segment_bytes: SEGMENT_BYTES,
            drive: Drive::Pump,
            entropy: Arc::new(SimEntropy::new(1)),
            ..JournalOptions::new(1)
        };
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let opened = Journal::open(disk, options, &keys(), Arc::new(|_| {}));
        let (journal, _) = opened.expect("an empty disk");
        let spec = GroupSpec { id: GROUP, members: Members::voters(&[1]), key_domain: 0 };
        let recovered = journal.create_group(&spec).expect("the first group");
        let mut group = Group::start(recovered, GroupOptions::new(0));
        for number in 0..ENTRIES {
            while group.propose(payload(number)).is_err() {
                turn(&mut group, &journal);
            }
            turn(&mut group, &journal);
        }
        drop(group);
        journal.stop().expect("a disk that works");
        let names = sim.paths().into_iter().filter(|name| name.ends_with(".seg"));
        let files: Files =
            names.map(|name| (name.clone(), sim.read(&name).expect("it is listed"))).collect();
        assert_eq!(files.len(), 2, "two segments");
        files
    })
}

fn turn(group: &mut Group, journal: &Journal) {
    group.advance(journal).expect("nothing is wrong here");
    journal.pump().expect("a disk that works");
    group.advance(journal).expect("nothing is wrong here");
    for committed in group.take_committed() {
        group.applied(committed.index);
    }
}
