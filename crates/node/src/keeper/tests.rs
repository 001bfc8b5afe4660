//! The keeper on a disk that can be hurt: what readers see, what checkpoints hear, what ends it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use quantumqtt_machine::{Message, Record, Source};
use quantumqtt_records::{Identity, Keys, Options, ReaderPool, SimDisk};
use quantumqtt_wire::QoS;

use super::*;
use crate::message_log::MessageLog;

const KEY: [u8; 32] = [7; 32];
const DIRECTORY: &str = "log";

/// A keeper, the end of it that everybody else has, and what stands for the journal and the shard.
struct Kept {
    disk: SimDisk,
    intake: Arc<Intake>,
    log: MessageLog,
    synced: Arc<AtomicU64>,
    rung: Receiver<()>,
    next: u64,
    _keeper: KeeperThread,
}

fn open(disk: &SimDisk, manifest: &Manifest) -> RecordLog {
    let identity = Identity { tenant: "default".into(), partition: 0 };
    let (disk, keys) = (Arc::new(disk.clone()), Keys::new(1, KEY));
    let options = Options { chunk_bytes: 4_096, ..Options::default() };
    RecordLog::open(disk, DIRECTORY, identity, keys, options, manifest).unwrap().0
}

fn keep(retention: Retention) -> Kept {
    let disk = SimDisk::new();
    let log = open(&disk, &Manifest::default());
    let intake = Arc::new(Intake::new());
    let synced = Arc::new(AtomicU64::new(u64::MAX));
    let (ring, rung) = channel();
    let handle =
        MessageLog::new(log.reader(), ReaderPool::start(1, 1 << 20).unwrap(), intake.clone());
    let is_synced = synced.clone();
    let keeping = Keeping {
        log,
        intake: intake.clone(),
        is_synced: Box::new(move |lsn| is_synced.load(Ordering::SeqCst) >= lsn),
        routing_epoch: 1,
        retention,
        clock: Clock::start(),
        ring: Box::new(move || {
            let _ = ring.send(());
        }),
    };
    let keeper = KeeperThread::start(keeping).unwrap();
    Kept { disk, intake, log: handle, synced, rung, next: 0, _keeper: keeper }
}

impl Kept {
    /// Some committed records of a hundred bytes or so, written up to `lsn`.
    fn commit(&mut self, count: u64, lsn: Lsn) {
        let record = |offset| Record {
            offset,
            ts_ms: 1_000 + offset,
            message: Arc::new(Message {
                offset,
                accepted_ms: 1_000 + offset,
                expiry_s: None,
                qos: QoS::AtLeastOnce,
                topic: format!("t/{offset}").into(),
                properties: Bytes::new(),
                payload: Bytes::from(vec![offset as u8; 100]),
            }),
            retain: false,
            captured: false,
            source: Source::Mqtt,
            client_id: "c".into(),
            incarnation: 0,
            session_epoch: 0,
            publish_seq: offset + 1,
            publisher: None,
        };
        let mut records: Vec<Record> = (self.next..self.next + count).map(record).collect();
        self.next += count;
        self.intake.hand_over(&mut records, lsn);
        assert!(records.is_empty());
    }

    fn end(&self) -> u64 {
        self.log.bounds().unwrap().end
    }
}

// req: LOG-30
#[test]
fn a_checkpoints_list_ends_with_what_was_committed_before_it() {
    let mut kept = keep(Retention::default());
    let mut lists = Vec::new();
    for _ in 0..5 {
        kept.commit(70, 1);
        lists.push(kept.intake.mark());
        kept.commit(3, 1);
    }
    assert_eq!(kept.end(), 5 * 73);
    for (at, list) in (0..).zip(lists) {
        let manifest = list.recv().unwrap();
        assert_eq!(manifest.end, at * 73 + 70, "neither less nor more");
        // What is on the list is on the disk, whatever happens now.
        let reopened = open(&kept.disk.after_power_cut(at), &manifest);
        assert_eq!(reopened.statistics().end, manifest.end);
    }
}

#[test]
fn readers_see_nothing_that_a_power_cut_may_take_back() {
    let mut kept = keep(Retention::default());
    kept.synced.store(5, Ordering::SeqCst);
    kept.commit(10, 5);
    assert_eq!(kept.end(), 10);
    kept.commit(10, 6);
    let (told, hears) = channel();
    kept.log.catch_up(move || {
        let _ = told.send(());
    });
    assert!(hears.recv_timeout(Duration::from_millis(20)).is_err(), "it is not synced");
    assert_eq!(kept.log.reader().bounds().end, 10);
    kept.synced.store(6, Ordering::SeqCst);
    hears.recv().unwrap();
    assert_eq!(kept.log.reader().bounds().end, 20);
}

#[test]
fn a_full_disk_is_waited_for_and_loses_nothing() {
    let mut kept = keep(Retention::default());
    kept.commit(70, 1);
    kept.disk.fail_after(1, ErrorKind::StorageFull);
    assert!(kept.intake.mark().recv().is_err(), "this checkpoint is given up");
    assert_eq!(kept.intake.failure(), None);
    kept.commit(1, 1);
    assert_eq!(kept.intake.mark().recv().unwrap().end, 71, "the next one is not");
    assert_eq!(kept.end(), 71);
}

// req: LOG-16
#[test]
fn a_disk_that_fails_ends_the_log_and_rings() {
    let mut kept = keep(Retention::default());
    kept.commit(70, 1);
    kept.disk.fail_after(2, ErrorKind::Other);
    assert!(kept.intake.mark().recv().is_err());
    kept.rung.recv().unwrap();
    let why = kept.intake.failure().unwrap();
    assert!(why.contains("cannot"), "{why}");
    let asked = kept.log.bounds().unwrap_err();
    assert!(asked.to_string().contains(&why), "{asked}");
    kept.commit(1, 1); // goes nowhere, and nobody waits for it
    assert!(kept.log.catch_up_and_wait().is_err());
}

#[test]
fn what_is_too_much_goes_and_its_files_go_with_the_next_checkpoint() {
    let mut kept = keep(Retention { age_ms: None, bytes: Some(8_192) });
    let list = loop {
        kept.commit(70, 1);
        let list = kept.intake.mark().recv().unwrap();
        if list.earliest > 0 {
            break list;
        }
    };
    let before = kept.disk.files();
    kept.intake.ask(Item::Cut(list.clone()));
    while before.iter().all(|name| kept.disk.files().contains(name)) {
        kept.log.catch_up_and_wait().unwrap();
    }
    assert_eq!(open(&kept.disk.after_power_cut(0), &list).statistics().end, list.end);
    assert!(kept.log.bounds().unwrap().earliest > 0);
}
