//! How fast the log takes entries, beside what the disk itself can do.
//!
//! `cargo run --release -p quantumqtt-journal --example wal_bench -- DIRECTORY [SECONDS]`
//!
//! One group with one voter, payloads of 64 bytes, as many entries per turn as the column says; an
//! entry is counted when it was taken as committed, after its sync.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a benchmark measures time"
)]
#![allow(clippy::print_stdout, reason = "its table is what it is for")]
#![allow(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quantumqtt_journal::{
    Disk, FileDisk, FixedKeys, Group, GroupOptions, GroupSpec, Journal, JournalOptions, Members,
};

const PAYLOAD: [u8; 64] = [0x5A; 64];
const PROBES: usize = 1000;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2);
    let scratch = directory.join(format!("wal-bench-{}", std::process::id()));
    let (p50, p99) = probe(&scratch);
    println!("directory {}, payload {} B", directory.display(), PAYLOAD.len());
    println!("raw 4 KiB write + fdatasync, pre-zeroed: p50 {p50} µs, p99 {p99} µs");
    println!("batch   entries/s   CPU µs/entry   turn p50 µs   turn p99 µs   syncs/s");
    for batch in [1, 16, 64, 256] {
        measure(&scratch, batch, Duration::from_secs(seconds));
    }
    let _ = std::fs::remove_dir_all(&scratch);
}

/// The disk alone: what every turn has to pay at least.
fn probe(scratch: &Path) -> (u128, u128) {
    let disk = FileDisk::new(scratch).expect("a directory that can be written");
    let file = disk.create("probe").expect("a new file");
    file.zero(0, 4 << 20).expect("room");
    file.sync_data().expect("a disk that syncs");
    let page = [1_u8; 4096];
    let mut times: Vec<u128> = (0..PROBES)
        .map(|turn| {
            let from = Instant::now();
            let offset = (turn as u64 % 1024) * 4096;
            file.write_at(offset, &[std::io::IoSlice::new(&page)]).expect("a write");
            file.sync_data().expect("a sync");
            from.elapsed().as_micros()
        })
        .collect();
    times.sort_unstable();
    (times[PROBES / 2], times[PROBES * 99 / 100])
}

fn measure(scratch: &Path, batch: usize, length: Duration) {
    let directory = scratch.join(format!("batch-{batch}"));
    let disk = Arc::new(FileDisk::new(directory).expect("a directory"));
    let (sender, woken) = channel();
    let wake = Arc::new(move |token| {
        // Nobody listens any more when the measurement is over.
        let _ = sender.send(token);
    });
    let keys = FixedKeys::new([3; 32]);
    let opened = Journal::open(disk, JournalOptions::new(1), &keys, wake);
    let (journal, _) = opened.expect("a new journal");
    let spec = GroupSpec { id: 1, members: Members::voters(&[1]), key_domain: 0 };
    let group = journal.create_group(&spec).expect("a new group");
    let mut group = Group::start(group, GroupOptions::new(0));
    let payload = Bytes::from_static(&PAYLOAD);
    let mut turns = Vec::new();
    let (cpu, start) = (cpu_us(), Instant::now());
    let mut entries = 0;
    while start.elapsed() < length {
        let from = Instant::now();
        if group.is_leader() {
            for _ in 0..batch {
                group.propose(payload.clone()).expect("a leader with nothing under way");
            }
        }
        group.advance(&journal).expect("a healthy journal");
        let mut taken = 0;
        while taken < batch {
            woken.recv().expect("the writer lives");
            group.advance(&journal).expect("a healthy journal");
            let mut last = None;
            for entry in group.take_committed() {
                last = Some(entry.index);
                taken += 1;
            }
            if let Some(last) = last {
                group.applied(last);
            }
        }
        entries += taken;
        turns.push(from.elapsed().as_micros());
    }
    let elapsed = start.elapsed().as_secs_f64();
    turns.sort_unstable();
    let at = |share: usize| turns[turns.len() * share / 100];
    println!(
        "{batch:>5} {:>11.0} {:>14.2} {:>13} {:>13} {:>9.0}",
        entries as f64 / elapsed,
        (cpu_us() - cpu) as f64 / entries as f64,
        at(50),
        at(99),
        journal.statistics().syncs as f64 / elapsed
    );
    journal.stop().expect("a healthy journal");
}

/// CPU time of this process, its threads together.
fn cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1000
}
