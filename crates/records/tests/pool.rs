//! Reader threads: bounded, in order, and everybody gets an answer.

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use quantumqtt_records::limits::{POINTS_MAX, POOL_REQUESTS_MAX};
use quantumqtt_records::{
    Answer, Ask, Disk, Error, LogReader, Manifest, Range, ReaderPool, RecordLog, Reply, Result,
    SimDisk,
};
use support::{Owned, append, open, seal};

const RECORDS: u64 = 20_000;

fn log() -> RecordLog {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let mut log = open(&disk, &Manifest::default()).expect("a new log");
    let records: Vec<Owned> = (0..RECORDS).map(|at| Owned::plain(at, &[0; 50])).collect();
    append(&mut log, 0, &records).expect("dense");
    seal(&mut log).expect("sealed");
    log
}

fn ask(
    pool: &ReaderPool,
    reader: &LogReader,
    offsets: Vec<u64>,
    answers: &Sender<Result<Answer>>,
) -> Result<()> {
    let answers = answers.clone();
    pool.submit(reader, Ask::Points(offsets), 300_000, move |answer| {
        answers.send(answer).expect("the test waits for it");
    })
}

fn rows(answer: &Answer) -> Vec<u64> {
    match &answer.reply {
        Reply::Rows(rows) => rows.rows.iter().map(quantumqtt_records::Row::offset).collect(),
        Reply::Batches(_) | Reply::Passage(_) => panic!("points were asked for"),
    }
}

#[test]
fn a_thousand_sessions_resume_within_the_budget() {
    const SESSIONS: u64 = 1_000;
    const BUDGET: usize = 2_000_000;
    let log = log();
    let pool = ReaderPool::start(2, BUDGET).expect("threads");
    let (send, answers): (_, Receiver<Result<Answer>>) = channel();
    for session in 0..SESSIONS {
        let offsets = (0..20).map(|at| (session * 17 + at * 331) % RECORDS);
        let mut offsets: Vec<u64> = offsets.collect();
        offsets.sort_unstable();
        ask(&pool, &log.reader(), offsets, &send).expect("there is room");
    }
    // Answers are held for a while, as deliveries that wait for their clients would.
    let mut held = std::collections::VecDeque::new();
    for _ in 0..SESSIONS {
        let answer = answers.recv().expect("everybody is answered").expect("readable");
        assert!(rows(&answer).is_sorted());
        assert!(pool.bytes_out() <= BUDGET + 2 * 300_000, "{}", pool.bytes_out());
        held.push_back(answer);
        if held.len() > 3 {
            held.pop_front();
        }
    }
    held.clear();
    assert_eq!(pool.bytes_out(), 0);
    assert_eq!(pool.waiting_count(), 0);
}

#[test]
fn ranges_are_read_too_and_errors_arrive_like_answers() {
    let log = log();
    let pool = ReaderPool::start(1, 1_000_000).expect("threads");
    let (send, answers) = channel();
    let reader = log.reader();
    pool.submit(&reader, Ask::Range(Range::from(0)), 200_000, {
        let send: Sender<Result<Answer>> = send.clone();
        move |answer| send.send(answer).expect("the test waits for it")
    })
    .expect("there is room");
    let answer = answers.recv().expect("answered").expect("readable");
    let Reply::Batches(batches) = &answer.reply else { panic!("a range was asked for") };
    assert!(batches.next > 0 && batches.next < RECORDS, "as much as was allowed");
    ask(&pool, &reader, vec![RECORDS], &send).expect("there is room");
    let error = answers.recv().expect("answered").expect_err("not written yet");
    assert!(matches!(error, Error::NotYet { offset: RECORDS, .. }));
}

#[test]
fn a_full_row_refuses_and_an_end_answers_who_waits() {
    let log = log();
    let pool = ReaderPool::start(1, 1_000_000).expect("threads");
    let reader = log.reader();
    let (send, answers) = channel();
    let many = ask(&pool, &reader, (0..=POINTS_MAX as u64).collect(), &send);
    assert!(matches!(many, Err(Error::TooMany { most: POINTS_MAX, .. })));
    // The only thread is kept busy by the first completion until this test lets it go.
    let (let_go, wait) = channel::<()>();
    let (entered, inside) = channel();
    pool.submit(&reader, Ask::Points(vec![0]), 1, move |_| {
        entered.send(()).expect("the test waits for it");
        wait.recv().expect("the test lets it go");
    })
    .expect("there is room");
    inside.recv().expect("entered");
    for _ in 0..POOL_REQUESTS_MAX {
        ask(&pool, &reader, vec![1], &send).expect("there is room");
    }
    let full = ask(&pool, &reader, vec![1], &send);
    assert!(matches!(full, Err(Error::TooMany { most: POOL_REQUESTS_MAX, .. })));
    let ending = std::thread::spawn(move || drop(pool));
    for _ in 0..POOL_REQUESTS_MAX {
        let answer = answers.recv().expect("everybody is answered");
        assert!(matches!(answer, Err(Error::Stopped)));
    }
    let_go.send(()).expect("it waits");
    ending.join().expect("ended");
}
