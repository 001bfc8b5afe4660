//! A chunk of the first format, as it was written then: it must stay readable, and what we write
//! today must be the same bytes, or the format has changed without its number.

mod support;

use std::fmt::Write as _;
use std::sync::Arc;

use quantumqtt_records::{ChunkKind, Disk, Keys, Manifest, Options, RecordLog, Retention, SimDisk};
use support::{Owned, append, directory, identity, read_all, read_points, seal, shown};

const GOLDEN: &str = include_str!("../../../tests/golden/records/chunks.txt");
const SALT: [u8; 16] = *b"golden salt 0001";

/// One record with everything, some with nothing, values that repeat and values that count up.
fn records() -> Vec<Owned> {
    let mut records: Vec<Owned> =
        (0..6).map(|number| Owned::plain(number, format!("payload {number}").as_bytes())).collect();
    records[2].content_type = Some("text/plain".into());
    records[2].response_topic = Some("answers/2".into());
    records[2].correlation_data = Some(vec![0, 255, 2]);
    records[2].user_properties =
        vec![("k".into(), "1".into()), ("k".into(), "zwei \u{1F980}".into())];
    records[2].expiry_s = Some(u32::MAX);
    records[2].payload_format = Some(1);
    records[2].retain = true;
    records[3].client_id = None;
    records[3].qos = 2;
    records[3].source = quantumqtt_records::Source::Will;
    records[3].numbers = [None; 5];
    records[4].numbers[3] = Some(77);
    records
}

/// The same log every time: one chunk of the log, one of kept rows.
fn write() -> (SimDisk, Manifest) {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let keys = support::keys().with_fixed_salt(SALT);
    let mut log = open(&disk, keys, &Manifest::default());
    append(&mut log, 0, &records()[..4]).expect("dense");
    seal(&mut log).expect("sealed");
    append(&mut log, 4, &records()[4..]).expect("dense");
    seal(&mut log).expect("sealed");
    let some = Retention { bytes: Some(1), age_ms: None };
    let job = log.plan_retention(0, &some, &vec![1, 2].into()).expect("the first chunk goes");
    log.publish_rewrite(job.execute().expect("rewritten"));
    (sim, log.manifest())
}

fn open(disk: &Arc<dyn Disk>, keys: Keys, manifest: &Manifest) -> RecordLog {
    let options = Options::default();
    RecordLog::open(disk.clone(), directory(), identity(), keys, options, manifest)
        .expect("opens")
        .0
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string");
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(digits).collect()
}

fn name(id: u64) -> String {
    format!("{}/{id:016x}.chunk", directory())
}

/// The files as lines of the golden page: what it is, then its bytes.
fn page(sim: &SimDisk, manifest: &Manifest) -> String {
    let mut lines = vec![format!("manifest {}", hex(&manifest.encode()))];
    for chunk in &manifest.chunks {
        let kind = if chunk.kind == ChunkKind::Log { "log" } else { "kept" };
        let bytes = sim.bytes(&name(chunk.id)).expect("a listed chunk");
        lines.push(format!("{kind} {}", hex(&bytes)));
    }
    lines.join("\n")
}

fn golden_lines() -> Vec<(&'static str, Vec<u8>)> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("two words")).map(|(a, b)| (a, unhex(b))).collect()
}

#[test]
fn today_the_same_bytes_are_written() {
    let (sim, manifest) = write();
    let page = page(&sim, &manifest);
    let golden: Vec<&str> = GOLDEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(page, golden.join("\n"), "a change of format takes a new number and a new page");
}

// req: LOG-40
#[test]
fn the_bytes_of_then_are_read() {
    let lines = golden_lines();
    assert_eq!(lines[0].0, "manifest");
    let manifest = Manifest::decode(&lines[0].1).expect("a manifest");
    let sim = SimDisk::new();
    for (chunk, (_, bytes)) in manifest.chunks.iter().zip(&lines[1..]) {
        sim.put(&name(chunk.id), bytes);
    }
    let disk: Arc<dyn Disk> = Arc::new(sim);
    let log = open(&disk, support::keys(), &manifest);
    assert_eq!(read_all(&log.reader(), 4).expect("readable"), shown(4, &records()[4..]));
    let kept = read_points(&log.reader(), &[1, 2]).expect("kept");
    assert_eq!(kept, vec![(1, records()[1].clone()), (2, records()[2].clone())]);
}
