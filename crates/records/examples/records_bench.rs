//! What the message log costs: `cargo run --release -p quantumqtt-records --example records_bench`.
//!
//! Every figure names its durability: appends are memory only (the replicated log has synced the
//! record before), sealed bytes are synced. `records_bench START_RECORDS FOLDER` measures the start
//! of a large log in a folder that must be empty.

#![allow(clippy::print_stdout)] // it talks to a person
#![allow(clippy::cast_precision_loss)] // figures for people

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use quantumqtt_records::{
    Disk, FileDisk, Identity, Keys, Manifest, Options, Range, Record, RecordLog, SealWhen,
};

type Failure = Box<dyn std::error::Error>;

const DIRECTORY: &str = "log";

struct Bench {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

fn open(disk: &Arc<dyn Disk>, manifest: &Manifest) -> Result<RecordLog, Failure> {
    let identity = Identity { tenant: "default".into(), partition: 0 };
    let keys = Keys::new(1, [9; 32]);
    let options = Options::default();
    Ok(RecordLog::open(disk.clone(), DIRECTORY, identity, keys, options, manifest)?.0)
}

/// Bytes that no encoding of ours can shorten, different for each record.
fn payload(bytes: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..bytes + 4096).map(|_| next()).collect()
}

/// Fills a log with `count` records of `bytes`, from `publishers` clients in turn; what append
/// alone took, and what sealing took on top.
fn fill(
    log: &mut RecordLog,
    count: u64,
    bytes: usize,
    publishers: u64,
) -> Result<(Duration, Duration), Failure> {
    const BATCH: u64 = 64;
    let noise = payload(bytes);
    let clients: Vec<String> = (0..publishers).map(|at| format!("sensor-{at:05}")).collect();
    let topics: Vec<String> =
        (0..publishers).map(|at| format!("plant/hall-3/{at:05}/temp")).collect();
    let (mut appending, mut sealing) = (Duration::ZERO, Duration::ZERO);
    let mut offset = 0;
    while offset < count {
        let from = Instant::now();
        for _ in 0..64 {
            let entry = (offset..count.min(offset + BATCH)).map(|offset| {
                let publisher = (offset % publishers) as usize;
                let at = offset as usize % 4096;
                Record {
                    client_id: Some(&clients[publisher]),
                    incarnation: Some(1),
                    session_epoch: Some(1),
                    publish_seq: Some(offset / publishers),
                    routing_epoch: Some(1),
                    ..Record::bare(
                        offset,
                        1_700_000_000_000 + offset / 500,
                        &topics[publisher],
                        &noise[at..at + bytes],
                    )
                }
            });
            offset += log.append(entry)?.added;
        }
        appending += from.elapsed();
        let from = Instant::now();
        if let Some(job) = log.plan_seal(SealWhen::Full) {
            log.publish_seal(job.execute()?);
        }
        sealing += from.elapsed();
    }
    let from = Instant::now();
    if let Some(job) = log.plan_seal(SealWhen::Now) {
        log.publish_seal(job.execute()?);
    }
    Ok((appending, sealing + from.elapsed()))
}

fn per(elapsed: Duration, count: u64) -> f64 {
    elapsed.as_secs_f64() * 1e6 / count as f64
}

impl Bench {
    fn fresh(&self) -> Result<RecordLog, Failure> {
        let directory = self.folder.join(DIRECTORY);
        if directory.exists() {
            std::fs::remove_dir_all(directory)?;
        }
        open(&self.disk, &Manifest::default())
    }

    fn appends(&self) -> Result<(), Failure> {
        println!("payload  publishers  append us  + seal and sync us  file / payload  after merge");
        for (bytes, count) in [(64, 2_000_000), (100, 2_000_000), (1024, 300_000), (8192, 40_000)] {
            for publishers in [1, 1000] {
                let mut log = self.fresh()?;
                let (appending, sealing) = fill(&mut log, count, bytes, publishers)?;
                let paid = (count * bytes as u64) as f64;
                let sealed = log.statistics().chunk_bytes as f64 / paid;
                while let Some(job) = log.plan_merge() {
                    log.publish_rewrite(job.execute()?);
                }
                let merged = log.statistics().chunk_bytes as f64 / paid;
                println!(
                    "{bytes:>7}  {publishers:>10}  {:>9.3}  {:>18.3}  {sealed:>14.3}  \
                     {merged:>11.3}",
                    per(appending, count),
                    per(sealing, count),
                );
            }
        }
        Ok(())
    }

    fn reads(&self) -> Result<(), Failure> {
        const COUNT: u64 = 2_000_000;
        for publishers in [1, 1000] {
            let mut log = self.fresh()?;
            fill(&mut log, COUNT, 100, publishers)?;
            let log = open(&self.disk, &log.manifest())?;
            let from = Instant::now();
            let mut rows = 0;
            for batch in log.reader().stream(Range::from(0)) {
                rows += batch?.num_rows() as u64;
            }
            let seconds = from.elapsed().as_secs_f64();
            println!(
                "sequential read, 100 B, {publishers} publishers, all columns, one thread: \
                 {:.2} M records/s",
                rows as f64 / seconds / 1e6
            );
        }
        self.points(COUNT)
    }

    fn points(&self, count: u64) -> Result<(), Failure> {
        let mut log = self.fresh()?;
        fill(&mut log, count, 100, 1000)?;
        let log = open(&self.disk, &log.manifest())?;
        let reader = log.reader();
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 20) % count
        };
        let from = Instant::now();
        for _ in 0..20_000 {
            reader.read_points(&[random()], 1)?;
        }
        println!("random read of one record: {:.1} us", per(from.elapsed(), 20_000));
        // As the reader threads do it: everybody takes a step, then everybody the next.
        let mut sessions: Vec<Vec<u64>> = (0..200)
            .map(|session| (0..1000).rev().map(|at| session + at * 1000).collect())
            .collect();
        let from = Instant::now();
        let before = reader.blocks_read();
        let mut rows = 0;
        while sessions.iter().any(|left| !left.is_empty()) {
            for left in sessions.iter_mut().filter(|left| !left.is_empty()) {
                let step: Vec<u64> = left.iter().rev().take(16).copied().collect();
                let found = reader.read_points(&step, 1 << 20)?.rows.len();
                rows += found as u64;
                left.truncate(left.len() - found);
            }
        }
        println!(
            "200 queues of 1000 references, one record in 1000, resumed together: \
             {:.2} M records/s, {} blocks read",
            rows as f64 / from.elapsed().as_secs_f64() / 1e6,
            reader.blocks_read() - before
        );
        let all: Vec<u64> = (0..1_000_000).collect();
        let from = Instant::now();
        for offsets in all.chunks(4096) {
            let mut left = offsets;
            while !left.is_empty() {
                left = &left[reader.read_points(left, 4 << 20)?.rows.len()..];
            }
        }
        println!(
            "one queue of a million references resumed: {:.2} M records/s",
            1.0 / from.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// The other way to store a block: Arrow's own stream format, one message per block.
    fn against_ipc(&self) -> Result<(), Failure> {
        for (bytes, count) in [(64, 200_000), (1024, 50_000), (8192, 10_000)] {
            let mut log = self.fresh()?;
            fill(&mut log, count, bytes, 1000)?;
            let ours = log.statistics().chunk_bytes as f64;
            let batches: Vec<RecordBatch> =
                log.reader().stream(Range::from(0)).collect::<Result<_, _>>()?;
            let from = Instant::now();
            let schema = batches[0].schema();
            let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
            for batch in &batches {
                writer.write(batch)?;
            }
            let theirs = writer.into_inner()?.len() as f64;
            let paid = (count * bytes as u64) as f64;
            println!(
                "{bytes} B: own blocks {:.3} x payload, Arrow IPC {:.3} x, \
                 writing IPC {:.3} us each",
                ours / paid,
                theirs / paid,
                per(from.elapsed(), count)
            );
        }
        Ok(())
    }

    fn start(&self, count: u64) -> Result<(), Failure> {
        let mut log = self.fresh()?;
        fill(&mut log, count, 100, 1000)?;
        let manifest = log.manifest();
        drop(log);
        let from = Instant::now();
        let log = open(&self.disk, &manifest)?;
        let opened = from.elapsed();
        log.reader().read(&Range::from(count / 2), 1)?;
        println!(
            "start with {count} records of 100 B in {} chunks ({} MB): {:.1} ms, \
             first read {:.1} ms",
            manifest.chunks.len(),
            log.statistics().chunk_bytes / 1_000_000,
            opened.as_secs_f64() * 1e3,
            from.elapsed().as_secs_f64() * 1e3
        );
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let start_records = arguments.next().map_or(Ok(10_000_000), |count| count.parse())?;
    let folder = arguments.next().map_or_else(
        || std::env::temp_dir().join(format!("records-bench-{}", std::process::id())),
        PathBuf::from,
    );
    std::fs::create_dir_all(&folder)?;
    let bench = Bench { disk: Arc::new(FileDisk::new(&folder)), folder };
    bench.appends()?;
    bench.reads()?;
    bench.against_ipc()?;
    bench.start(start_records)?;
    std::fs::remove_dir_all(&bench.folder)?;
    Ok(())
}
