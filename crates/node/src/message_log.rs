//! The message log of a running node, as everybody but its keeper sees it.
//!
//! The shard that owns the partition hands over what was committed, once per turn, and goes on; it
//! never appends, seals or waits. The keeper (`keeper.rs`) appends when enough has gathered, or at
//! once when somebody wants to see the end. So readers ask to be caught up before they look: from
//! then on everything that was committed before the question is there.
//!
//! What was handed over and is in no chunk yet is memory. When there is too much of it publishers
//! are held (`pressure.rs`) until a chunk was written. When the disk fails, the keeper says so here
//! and rings the partition's owner, which stops the node: it never guesses.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use quantumqtt_journal::Lsn;
use quantumqtt_machine::Record;
use quantumqtt_records::limits::TAIL_BYTES_MAX;
use quantumqtt_records::{Bounds, LogReader, LogStatistics, Manifest, ReaderPool};

use crate::keeper::Done;
use crate::limits::{RECORD_OVERHEAD_BYTES, RECORDS_GATHERED_BYTES};

/// What was committed in some turns, in order.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) records: Vec<Record>,
    pub(crate) bytes: u64,
    /// All of it is written up to here; it is for readers once that is synced, too.
    pub(crate) lsn: Lsn,
}

/// What the keeper is asked, in the order in which it was asked.
pub(crate) enum Item {
    Records(Gathered),
    /// A checkpoint of the state as it is now: it needs a list that ends exactly here.
    Mark(Sender<Manifest>),
    /// Somebody wants to know that all before this is there.
    CatchUp(Box<dyn FnOnce() + Send>),
    /// The checkpoint with this list is durable, and the replicated log is cut behind it.
    Cut(Manifest),
}

#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) items: VecDeque<Item>,
    /// Jobs on the disk that ended.
    pub(crate) done: Vec<Done>,
    gathered_bytes: u64,
    pub(crate) is_urgent: bool,
    pub(crate) is_stopping: bool,
    /// How often the log has grown.
    growths: u64,
    pub(crate) statistics: LogStatistics,
}

impl Desk {
    /// The keeper takes what there is.
    pub(crate) fn take(&mut self) -> (VecDeque<Item>, Vec<Done>) {
        self.is_urgent = false;
        self.gathered_bytes = 0;
        (std::mem::take(&mut self.items), std::mem::take(&mut self.done))
    }
}

/// Where shards, readers and jobs put what the keeper is to do.
pub(crate) struct Intake {
    pub(crate) desk: Mutex<Desk>,
    pub(crate) work: Condvar,
    grown: Condvar,
    /// Handed over and not appended.
    gathered_bytes: AtomicU64,
    /// Appended and in no chunk.
    tail_bytes: AtomicU64,
    is_behind: AtomicBool,
    /// Somebody waits for the end to move.
    watchers: AtomicUsize,
    has_failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            desk: Mutex::default(),
            work: Condvar::new(),
            grown: Condvar::new(),
            gathered_bytes: AtomicU64::new(0),
            tail_bytes: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
            watchers: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    /// What was committed since the last time, in order; `records` is empty afterwards.
    pub(crate) fn hand_over(&self, records: &mut Vec<Record>, lsn: Lsn) {
        if records.is_empty() {
            return;
        }
        let weigh = |record: &Record| record.message.weight_bytes() + RECORD_OVERHEAD_BYTES;
        let bytes: u64 = records.iter().map(weigh).sum();
        let unsealed = self.gathered_bytes.fetch_add(bytes, Ordering::AcqRel)
            + bytes
            + self.tail_bytes.load(Ordering::Acquire);
        if unsealed >= TAIL_BYTES_MAX {
            self.is_behind.store(true, Ordering::Release);
        }
        let is_urgent = {
            let mut desk = self.desk.lock();
            if let Some(Item::Records(last)) = desk.items.back_mut() {
                last.records.append(records);
                last.bytes += bytes;
                last.lsn = lsn;
            } else {
                let records = std::mem::take(records);
                desk.items.push_back(Item::Records(Gathered { records, bytes, lsn }));
            }
            desk.gathered_bytes += bytes;
            let is_urgent = desk.gathered_bytes >= RECORDS_GATHERED_BYTES
                || self.watchers.load(Ordering::SeqCst) > 0;
            let was_urgent = std::mem::replace(&mut desk.is_urgent, is_urgent);
            desk.is_urgent |= was_urgent;
            is_urgent && !was_urgent
        };
        if is_urgent {
            self.work.notify_one();
        }
    }

    pub(crate) fn ask(&self, item: Item) {
        let mut desk = self.desk.lock();
        if self.has_failed() {
            return; // whoever waits for an answer sees that it will not come
        }
        desk.items.push_back(item);
        desk.is_urgent = true;
        drop(desk);
        self.work.notify_one();
    }

    /// A job has ended, on whichever thread it ran.
    pub(crate) fn report(&self, done: Done) {
        let mut desk = self.desk.lock();
        desk.done.push(done);
        desk.is_urgent = true;
        drop(desk);
        self.work.notify_one();
    }

    /// So much of what was handed over has been appended.
    pub(crate) fn appended(&self, bytes: u64) {
        self.gathered_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// How the log stands now; true if publishers that were held may go on.
    pub(crate) fn publish(&self, statistics: LogStatistics) -> bool {
        self.tail_bytes.store(statistics.tail_bytes, Ordering::Release);
        let mut desk = self.desk.lock();
        if desk.statistics.end != statistics.end {
            desk.growths += 1;
            self.grown.notify_all();
        }
        desk.statistics = statistics;
        drop(desk);
        let unsealed = statistics.tail_bytes + self.gathered_bytes.load(Ordering::Acquire);
        unsealed <= TAIL_BYTES_MAX / 2 && self.is_behind.swap(false, Ordering::AcqRel)
    }

    /// Whether more waits for chunks than memory is meant for.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// The log takes nothing more, for good.
    pub(crate) fn fail(&self, why: String) {
        self.failure.lock().get_or_insert(why);
        self.has_failed.store(true, Ordering::SeqCst);
        let mut desk = self.desk.lock();
        let dropped = std::mem::take(&mut desk.items);
        self.grown.notify_all();
        drop(desk);
        drop(dropped); // whoever waits for one of them hears that nobody will answer
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    pub(crate) fn failure(&self) -> Option<String> {
        if self.has_failed() { self.failure.lock().clone() } else { None }
    }

    /// Asks for the list of a log that ends where it ends now.
    pub(crate) fn mark(&self) -> Receiver<Manifest> {
        let (to_checkpoint, manifest) = channel();
        self.ask(Item::Mark(to_checkpoint));
        manifest
    }
}

/// The message log is kept no longer: its disk failed, or the node has stopped.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the message log has stopped: {0}")]
pub struct LogStopped(String);

/// See the head of this file.
pub struct MessageLog {
    reader: LogReader,
    pool: ReaderPool,
    intake: Arc<Intake>,
}

impl fmt::Debug for MessageLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLog").field("log", self.reader.identity()).finish_non_exhaustive()
    }
}

impl MessageLog {
    pub(crate) fn new(reader: LogReader, pool: ReaderPool, intake: Arc<Intake>) -> Self {
        Self { reader, pool, intake }
    }

    /// Reads what is there; waits for the disk, so shards ask the pool instead.
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    /// Threads that read for those who must not wait.
    pub fn pool(&self) -> &ReaderPool {
        &self.pool
    }

    /// `then` runs, on the keeper's thread, once everything that was committed before this call can
    /// be read; if the log has stopped it is dropped instead. Waits for nothing.
    pub fn catch_up(&self, then: impl FnOnce() + Send + 'static) {
        self.intake.ask(Item::CatchUp(Box::new(then)));
    }

    /// Returns once everything that was committed before can be read. Never call it on a shard.
    pub fn catch_up_and_wait(&self) -> Result<(), LogStopped> {
        let (told, hears) = channel();
        // A receiver that is gone wants to know nothing.
        self.catch_up(move || {
            let _ = told.send(());
        });
        hears.recv().map_err(|_| LogStopped(self.intake.failure().unwrap_or_default()))
    }

    /// Where the log begins and ends, with everything that was committed before the call.
    pub fn bounds(&self) -> Result<Bounds, LogStopped> {
        self.catch_up_and_wait()?;
        Ok(self.reader.bounds())
    }

    /// Waits until the log ends behind `position`, or the time is up; whether it does.
    pub fn wait(&self, position: u64, within: Duration) -> Result<bool, LogStopped> {
        let until = Instant::now() + within;
        let _watching = Watching::new(&self.intake.watchers);
        loop {
            let growths = self.intake.desk.lock().growths;
            if self.bounds()?.end > position {
                return Ok(true);
            }
            let mut desk = self.intake.desk.lock();
            if desk.growths == growths && self.intake.grown.wait_until(&mut desk, until).timed_out()
            {
                return Ok(false);
            }
        }
    }

    /// Figures as of the last append or job.
    pub fn statistics(&self) -> LogStatistics {
        self.intake.desk.lock().statistics
    }
}

/// Counts who waits, so that whoever grows the log knows to hurry.
struct Watching<'a>(&'a AtomicUsize);

impl<'a> Watching<'a> {
    fn new(watchers: &'a AtomicUsize) -> Self {
        watchers.fetch_add(1, Ordering::SeqCst);
        Self(watchers)
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
