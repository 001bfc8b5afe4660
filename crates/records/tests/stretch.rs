//! A stretch: records one by one, of chosen topics, and never past what has expired.

mod support;

use std::sync::Arc;

use quantumqtt_records::{
    Disk, LogReader, Manifest, RecordLog, Retention, SimDisk, Start, Stretch, TopicChoice,
};
use support::{Owned, append, expired, open, seal};

const BASE_MS: u64 = 1_700_000_000_000;
const CHUNK: u64 = 100;

/// Three chunks and a tail; the topic of a record is its number modulo seven.
fn log() -> RecordLog {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    for chunk in 0..4 {
        let numbers = chunk * CHUNK..(chunk + 1) * CHUNK;
        let records: Vec<Owned> =
            numbers.map(|number| Owned::plain(number, &number.to_le_bytes())).collect();
        append(&mut log, chunk * CHUNK, &records).expect("dense");
        if chunk < 3 {
            seal(&mut log).expect("sealed");
        }
    }
    log
}

fn stretch(start: Start) -> Stretch {
    let topics: TopicChoice = Arc::new(|topic| topic == "plant/3/temperature");
    Stretch { start, end: u64::MAX, topics, rows_max: 5 }
}

/// Every step from `start` on: the offsets it brought.
fn steps(reader: &LogReader, start: Start) -> Vec<Vec<u64>> {
    let mut steps = Vec::new();
    let mut next = stretch(start);
    loop {
        let passage = reader.read_stretch(&next, 1).expect("readable");
        assert!(passage.rows.len() <= 5);
        if next.start == Start::At(passage.next) {
            return steps;
        }
        steps.push(passage.rows.iter().map(quantumqtt_records::Row::offset).collect());
        next.start = Start::At(passage.next);
    }
}

#[test]
fn steps_together_are_every_record_of_the_topic_once_and_in_order() {
    let log = log();
    for start in [0, 1, 3, 4, 99, 100, 250, 399, 400] {
        let seen = steps(&log.reader(), Start::At(start)).concat();
        assert_eq!(seen, (start..400).filter(|at| at % 7 == 3).collect::<Vec<_>>(), "{start}");
    }
}

#[test]
fn it_begins_at_the_beginning_at_a_time_or_at_an_offset() {
    let log = log();
    let first = |start| steps(&log.reader(), start).concat().first().copied();
    assert_eq!(first(Start::Earliest), Some(3));
    assert_eq!(first(Start::Since(0)), Some(3));
    assert_eq!(first(Start::Since(BASE_MS + 4)), Some(10));
    assert_eq!(first(Start::Since(BASE_MS + 1_000)), None);
    let one = log.reader().read_stretch(&Stretch { end: 4, ..stretch(Start::At(3)) }, 1);
    let one = one.expect("readable");
    assert_eq!((one.rows.len(), one.next), (1, 4), "an end is an end");
}

#[test]
fn what_has_expired_is_an_error_for_whoever_named_it_and_for_nobody_else() {
    let mut log = log();
    let none: Arc<[u64]> = vec![].into();
    let age = Retention { age_ms: Some(50), bytes: None };
    let job = log.plan_retention(BASE_MS + 99 + 51, &age, &none).expect("the first chunk goes");
    log.publish_rewrite(job.execute().expect("rewritten"));
    let reader = log.reader();
    assert_eq!(expired(reader.read_stretch(&stretch(Start::At(7)), 1)), (7, 100));
    for start in [Start::Earliest, Start::Since(BASE_MS)] {
        assert_eq!(steps(&reader, start).concat().first(), Some(&101));
    }
}
