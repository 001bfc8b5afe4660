//! What owner and readers of one log see, case by case.

mod support;

use std::io;
use std::sync::Arc;

use quantumqtt_records::limits::PAYLOAD_BYTES_MAX;
use quantumqtt_records::{
    Bounds, Columns, Disk, Error, Manifest, Options, Range, RecordLog, Retention, SealWhen, SimDisk,
};
use support::{
    Owned, append, directory, expired, identity, keys, open, read_all, read_points, seal, shown,
};

fn plain(from: u64, count: u64) -> Vec<Owned> {
    (from..from + count).map(|number| Owned::plain(number, &number.to_le_bytes())).collect()
}

/// A log with `chunks` chunks of 100 records each, and nothing in the tail.
fn chunked(chunks: u64) -> (SimDisk, Arc<dyn Disk>, RecordLog, Vec<Owned>) {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    let records = plain(0, chunks * 100);
    for chunk in 0..chunks {
        let from = chunk as usize * 100;
        append(&mut log, from as u64, &records[from..from + 100]).expect("dense");
        seal(&mut log).expect("sealed");
    }
    (sim, disk, log, records)
}

#[test]
fn records_are_read_from_the_open_block_the_tail_and_chunks_alike() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    let reader = log.reader();
    assert_eq!(reader.bounds(), Bounds { earliest: 0, end: 0 });
    let records = plain(0, 5_000);
    append(&mut log, 0, &records).expect("dense");
    assert_eq!(read_all(&reader, 0).expect("readable"), shown(0, &records));
    assert_eq!(read_all(&reader, 4_998).expect("readable"), shown(4_998, &records[4_998..]));
    seal(&mut log).expect("sealed");
    let more = plain(5_000, 10);
    append(&mut log, 5_000, &more).expect("dense");
    let all = [records, more].concat();
    assert_eq!(read_all(&reader, 0).expect("readable"), shown(0, &all));
    assert_eq!(reader.bounds(), Bounds { earliest: 0, end: 5_010 });
    let points = [0, 1, 700, 4_999, 5_000, 5_009];
    let found = read_points(&reader, &points).expect("readable");
    assert_eq!(found, points.map(|at| (at, all[at as usize].clone())).to_vec());
}

#[test]
fn a_read_ends_where_it_was_told_to() {
    let (_, _, log, records) = chunked(3);
    let range = Range { end: 150, ..Range::from(95) };
    let step = log.reader().read(&range, usize::MAX).expect("readable");
    let found: Vec<_> = step.batches.iter().flat_map(support::records_of).collect();
    assert_eq!(found, shown(95, &records[95..150]));
    assert_eq!(step.next, 150);
    let beyond = log.reader().read(&Range::from(300), 1).expect("nothing there yet");
    assert_eq!((beyond.batches.len(), beyond.next), (0, 300));
}

#[test]
fn only_wanted_columns_and_topics_are_read() {
    let (_, _, log, records) = chunked(2);
    let topics: quantumqtt_records::TopicChoice =
        Arc::new(|topic: &str| topic == "plant/3/temperature");
    let columns = Columns::named(["payload", "offset"]).expect("they exist");
    let range = Range { columns, topics: Some(topics), ..Range::from(0) };
    let step = log.reader().read(&range, usize::MAX).expect("readable");
    let wanted = records.iter().filter(|record| record.topic == "plant/3/temperature").count();
    assert_eq!(step.batches.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>(), wanted);
    assert_eq!(step.batches[0].num_columns(), 2);
    assert_eq!(step.next, 200, "rows that were left out are behind us too");
}

#[test]
fn a_gap_and_a_repeat_that_differs_stop_the_owner() {
    let (_, _, mut log, records) = chunked(1);
    append(&mut log, 100, &plain(100, 5)).expect("dense");
    let gap = append(&mut log, 106, &plain(106, 1));
    assert!(matches!(gap, Err(Error::Gap { expected: 105, found: 106 })), "{gap:?}");
    for at in [3, 102] {
        let mut changed = plain(at, 1);
        changed[0].retain = true;
        let refused = append(&mut log, at, &changed);
        assert!(matches!(refused, Err(Error::Conflict { offset }) if offset == at), "{refused:?}");
    }
    assert_eq!(append(&mut log, 0, &records).expect("equal"), 0, "repeats change nothing");
    assert_eq!(log.statistics().end, 105);
}

#[test]
fn sixteen_mebibytes_are_one_record_in_a_block_of_its_own() {
    let (_, disk, mut log, _) = chunked(1);
    let mut large = plain(100, 3);
    large[1].payload = (0..PAYLOAD_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    append(&mut log, 100, &large).expect("dense");
    seal(&mut log).expect("sealed");
    let manifest = log.manifest();
    drop(log);
    let log = open(&disk, &manifest).expect("reopened");
    let found = read_points(&log.reader(), &[100, 101, 102]).expect("readable");
    assert!(found.iter().map(|(_, record)| record).eq(&large), "all three, as they were");
    let mut over = plain(103, 1);
    over[0].payload = vec![0; PAYLOAD_BYTES_MAX + 1];
    let mut log = log;
    let refused = append(&mut log, 103, &over);
    assert!(matches!(refused, Err(Error::TooLarge { offset: 103, .. })));
}

#[test]
fn what_retention_dropped_is_expired_and_what_is_referred_to_is_kept() {
    let (_, disk, mut log, records) = chunked(4);
    let referenced: Arc<[u64]> = vec![5, 99, 100, 250].into();
    let newest = Retention { bytes: Some(1), age_ms: None };
    let job = log.plan_retention(u64::MAX, &newest, &referenced).expect("three chunks go");
    log.publish_rewrite(job.execute().expect("rewritten"));
    let reader = log.reader();
    assert_eq!(reader.bounds().earliest, 300, "the last chunk alone has more than a byte");
    assert_eq!(expired(reader.read(&Range::from(7), 1)), (7, 300));
    assert_eq!(expired(reader.read_points(&[6], 1)), (6, 7));
    let kept = read_points(&reader, &referenced).expect("kept");
    let expected = referenced.iter().map(|at| (*at, records[*at as usize].clone()));
    assert_eq!(kept, expected.collect::<Vec<_>>());

    let manifest = log.manifest();
    let reopened = open(&disk, &manifest).expect("reopened");
    assert_eq!(read_points(&reopened.reader(), &referenced).expect("kept").len(), 4);
    drop(reopened);
    let fewer: Arc<[u64]> = vec![100].into();
    let job = log.plan_thinning(&fewer).expect("most of it is of no use");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.statistics().kept_records, 1);
    let none: Arc<[u64]> = vec![].into();
    let job = log.plan_thinning(&none).expect("all of it is of no use");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.statistics().kept_count, 0);
    assert!(log.plan_thinning(&none).is_none());
}

#[test]
fn age_drops_whole_chunks_in_order_and_a_clock_that_jumped_holds_them_back() {
    let (_, _, mut log, _) = chunked(3);
    let none: Arc<[u64]> = vec![].into();
    let age = Retention { age_ms: Some(50), bytes: None };
    let base = 1_700_000_000_000;
    assert!(log.plan_retention(base + 99 + 50, &age, &none).is_none(), "just not old enough");
    let job = log.plan_retention(base + 99 + 51, &age, &none).expect("the first chunk");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.reader().bounds().earliest, 100);
    // A record from a clock that ran ahead keeps its chunk, and those behind it, until then.
    let mut ahead = plain(300, 1);
    ahead[0].now_ms = base + 1_000_000;
    append(&mut log, 300, &ahead).expect("dense");
    seal(&mut log).expect("sealed");
    append(&mut log, 301, &plain(301, 1)).expect("dense");
    seal(&mut log).expect("sealed");
    let job = log.plan_retention(base + 500_000, &age, &none).expect("all before it");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.reader().bounds().earliest, 300);
    assert!(log.plan_retention(base + 500_000, &age, &none).is_none());
}

#[test]
fn retention_smaller_than_a_chunk_leaves_one_chunk_and_the_tail() {
    let (_, _, mut log, _) = chunked(2);
    append(&mut log, 200, &plain(200, 1)).expect("dense");
    let none: Arc<[u64]> = vec![].into();
    let much = Retention { bytes: Some(10_000), age_ms: None };
    assert!(log.plan_retention(0, &much, &none).is_none(), "less than asked for never stays");
    let little = Retention { bytes: Some(2_000), age_ms: None };
    let job = log.plan_retention(0, &little, &none).expect("the first chunk");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.reader().bounds(), Bounds { earliest: 100, end: 201 });
}

#[test]
fn a_hold_stops_retention_until_it_is_released() {
    let (_, _, mut log, _) = chunked(3);
    let none: Arc<[u64]> = vec![].into();
    let all = Retention { age_ms: Some(0), bytes: None };
    log.hold("audit", 150).expect("there is room");
    assert_eq!(log.statistics().held_from, 150);
    let job = log.plan_retention(u64::MAX, &all, &none).expect("the first chunk");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.reader().bounds().earliest, 100);
    assert!(log.plan_retention(u64::MAX, &all, &none).is_none());
    assert_eq!(expired(log.hold("late", 99)), (99, 100));
    assert!(log.release("audit"));
    assert!(!log.release("audit"));
    let job = log.plan_retention(u64::MAX, &all, &none).expect("all of them");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(log.reader().bounds(), Bounds { earliest: 300, end: 300 });
    assert_eq!(log.manifest().end, 300);
}

#[test]
fn merging_changes_nothing_a_reader_sees() {
    let (_, disk, mut log, records) = chunked(9);
    let reader = log.reader();
    let before = log.statistics();
    while let Some(job) = log.plan_merge() {
        log.publish_rewrite(job.execute().expect("rewritten"));
        assert_eq!(read_all(&reader, 0).expect("readable"), shown(0, &records));
    }
    let after = log.statistics();
    assert!(after.chunk_count < before.chunk_count, "{} chunks", after.chunk_count);
    assert!(after.chunk_bytes < before.chunk_bytes, "one frame instead of several");
    let log = open(&disk, &log.manifest()).expect("reopened");
    assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &records));
}

#[test]
fn a_file_goes_only_when_a_durable_list_and_every_reader_let_it() {
    let (sim, disk, mut log, records) = chunked(4);
    let old = log.manifest();
    let job = log.plan_merge().expect("four of a size");
    assert!(log.plan_merge().is_none(), "one rewrite at a time");
    log.publish_rewrite(job.execute().expect("rewritten"));
    assert_eq!(sim.files().len(), 5);
    assert!(log.plan_sweep(&old).is_none(), "the durable list still names them");
    assert!(log.plan_sweep(&log.manifest()).is_none(), "the job still reads them");
    drop(job);
    let reopened = open(&disk, &old).expect("the old list still opens");
    assert_eq!(read_all(&reopened.reader(), 0).expect("readable"), shown(0, &records));
    drop(reopened);
    // Opening by the old list removed what it does not name, as it should; the sweep by the new
    // one is asked of a log that made its merge again.
    let mut log = open(&disk, &old).expect("reopened");
    let job = log.plan_merge().expect("four of a size");
    log.publish_rewrite(job.execute().expect("rewritten"));
    drop(job);
    let manifest = log.manifest();
    let sweep = log.plan_sweep(&manifest).expect("four files");
    assert_eq!(sweep.file_count(), 4);
    sweep.execute().expect("removed");
    assert_eq!(sim.files().len(), 1);
    assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &records));
}

#[test]
fn times_are_found_though_clocks_jump() {
    let (_, _, mut log, _) = chunked(3);
    let base = 1_700_000_000_000;
    let mut jumped = plain(300, 3);
    jumped[0].now_ms = base + 50;
    jumped[1].now_ms = base + 9_000;
    jumped[2].now_ms = base + 10;
    append(&mut log, 300, &jumped).expect("dense");
    let reader = log.reader();
    for (after_ms, offset) in [(0, 0), (1, 1), (150, 150), (299, 299), (300, 301), (9_001, 303)] {
        assert_eq!(reader.offset_for_time(base + after_ms).expect("readable"), offset);
    }
    assert_eq!(reader.offset_for_time(0).expect("readable"), 0);
    assert_eq!(reader.offset_for_time(u64::MAX).expect("readable"), 303);
}

#[test]
fn an_offset_not_written_yet_is_said() {
    let (_, _, log, _) = chunked(1);
    let early = log.reader().read_points(&[99, 100], 1 << 20).expect("the first is there");
    assert_eq!(early.rows.len(), 1);
    let error = log.reader().read_points(&[100], 1 << 20);
    assert!(matches!(error, Err(Error::NotYet { offset: 100, end: 100 })), "{error:?}");
}

#[test]
fn a_full_disk_fails_the_job_and_nothing_else() {
    for failing in 0..5 {
        let (sim, disk, mut log, mut records) = chunked(1);
        records.extend(plain(100, 50));
        append(&mut log, 100, &records[100..]).expect("dense");
        sim.fail_after(failing, io::ErrorKind::StorageFull);
        let error = seal(&mut log).expect_err("creating, writing, syncing, renaming, syncing");
        let full = matches!(&error, Error::Disk { source, .. }
            if source.kind() == io::ErrorKind::StorageFull);
        assert!(full, "{error:?}");
        assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &records));
        seal(&mut log).expect("there is room again");
        assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &records));
        let log = open(&disk, &log.manifest()).expect("reopened");
        assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &records));
    }
}

#[test]
fn blocks_that_many_refer_to_are_read_once() {
    let (_, disk, log, _) = chunked(2);
    let log = open(&disk, &log.manifest()).expect("reopened");
    let reader = log.reader();
    for from in 0..50 {
        read_points(&reader, &[from, from + 50, from + 100]).expect("readable");
    }
    assert_eq!(reader.blocks_read(), 2);
    assert!(reader.cached_bytes() > 0);
}

#[test]
fn cached_blocks_stay_within_their_budget() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let options = Options { cache_bytes: 200_000, ..support::small() };
    let open = |manifest: &Manifest| {
        RecordLog::open(disk.clone(), directory(), identity(), keys(), options, manifest)
            .expect("opens")
            .0
    };
    let mut log = open(&Manifest::default());
    append(&mut log, 0, &plain(0, 20_000)).expect("dense");
    seal(&mut log).expect("sealed");
    let reader = log.reader();
    for at in (0..20_000).step_by(97) {
        read_points(&reader, &[at]).expect("readable");
        assert!(reader.cached_bytes() <= 200_000);
    }
}

#[test]
fn a_tail_that_is_not_worth_a_chunk_waits_for_more() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    assert!(log.plan_seal(SealWhen::Now).is_none(), "there is nothing");
    append(&mut log, 0, &plain(0, 10)).expect("dense");
    assert!(log.plan_seal(SealWhen::Full).is_none());
    let job = log.plan_seal(SealWhen::Now).expect("ten records");
    assert!(log.plan_seal(SealWhen::Now).is_none(), "one seal at a time");
    // What comes meanwhile is not lost, and not sealed twice.
    append(&mut log, 10, &plain(10, 10)).expect("dense");
    log.publish_seal(job.execute().expect("sealed"));
    assert_eq!(log.manifest().end, 10);
    assert_eq!(read_all(&log.reader(), 0).expect("readable"), shown(0, &plain(0, 20)));
    seal(&mut log).expect("sealed");
    assert_eq!(log.manifest().end, 20);
}
