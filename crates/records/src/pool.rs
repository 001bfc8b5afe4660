//! Threads that read the log for those who must not wait for a disk.
//!
//! # Rules
//!
//! - A request is put into a bounded row and the caller goes on. If the row is full the request
//!   comes back at once, and the caller asks again later: nothing is queued without a bound.
//! - An answer arrives by the caller's own closure, on a reader thread. It should hand the answer
//!   over and ring, no more.
//! - An answer holds memory: the blocks its rows lie in. What all answers in the world may hold is
//!   bounded; a thread waits until enough of them were dropped. A single request is given at least
//!   one block however tight it is, or it would never get on: so a thousand sessions that resume
//!   at once take turns, and the bound is passed by at most one block per thread. Whoever holds an
//!   answer must not wait for another one before dropping it.
//! - Requests for one log that wait together are served in the order of their offsets, so that the
//!   blocks they share are read once while they are in the cache.
//!
//! # Locks
//!
//! `Row::waiting` guards requests, permits and the sign to stop. It is never held while reading.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::limits::{POINTS_MAX, POOL_REQUESTS_MAX, POOL_SWEEP_MAX};
use crate::reader::{Batches, LogReader, Passage, Range, Rows, Start, Stretch};

/// What is wanted of a log.
#[derive(Debug, Clone)]
pub enum Ask {
    /// The records at these rising offsets, for whoever holds references.
    Points(Vec<u64>),
    /// A stretch of the log.
    Range(Range),
    /// A stretch of the log, record by record.
    Stretch(Stretch),
}

impl Ask {
    fn first_offset(&self) -> u64 {
        match self {
            Self::Points(offsets) => offsets.first().copied().unwrap_or(0),
            Self::Range(range) => range.start,
            Self::Stretch(Stretch { start: Start::At(offset), .. }) => *offset,
            Self::Stretch(_) => 0,
        }
    }
}

/// What was read.
#[derive(Debug)]
pub enum Reply {
    /// For [`Ask::Points`].
    Rows(Rows),
    /// For [`Ask::Range`].
    Batches(Batches),
    /// For [`Ask::Stretch`].
    Passage(Passage),
}

/// A reply with the memory it was allowed; dropping it lets others have that.
#[derive(Debug)]
pub struct Answer {
    /// What was read.
    pub reply: Reply,
    _permit: Permit,
}

type Completion = Box<dyn FnOnce(Result<Answer>) + Send>;

struct Request {
    reader: LogReader,
    ask: Ask,
    bytes_max: usize,
    complete: Completion,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    bytes_out: usize,
    stopping: bool,
}

struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    bytes_max: usize,
}

/// The right to hold so many bytes of answers.
struct Permit {
    queue: Arc<Queue>,
    bytes: usize,
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Permit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.waiting.lock().bytes_out -= self.bytes;
        self.queue.changed.notify_all();
    }
}

/// See the head of this file.
pub struct ReaderPool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for ReaderPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.len();
        formatter.debug_struct("ReaderPool").field("threads", &threads).finish_non_exhaustive()
    }
}

impl ReaderPool {
    /// Starts `threads` threads whose answers hold at most `bytes_max` at once.
    pub fn start(threads: usize, bytes_max: usize) -> std::io::Result<Self> {
        let waiting = Mutex::new(Waiting::default());
        let queue = Arc::new(Queue { waiting, changed: Condvar::new(), bytes_max });
        let mut pool = Self { queue, threads: Vec::with_capacity(threads) };
        for number in 0..threads.max(1) {
            let queue = pool.queue.clone();
            let name = format!("qmq-records-{number}");
            pool.threads.push(thread::Builder::new().name(name).spawn(move || serve(&queue))?);
        }
        Ok(pool)
    }

    /// Asks for something; `complete` is called with it on a reader thread, exactly once. An error
    /// here means that it will not be.
    pub fn submit(
        &self,
        reader: &LogReader,
        ask: Ask,
        bytes_max: usize,
        complete: impl FnOnce(Result<Answer>) + Send + 'static,
    ) -> Result<()> {
        if let Ask::Points(offsets) = &ask
            && offsets.len() > POINTS_MAX
        {
            return Err(Error::TooMany { what: "offsets in a request", most: POINTS_MAX });
        }
        let mut waiting = self.queue.waiting.lock();
        if waiting.requests.len() >= POOL_REQUESTS_MAX {
            return Err(Error::TooMany { what: "waiting reads", most: POOL_REQUESTS_MAX });
        }
        let (reader, complete) = (reader.clone(), Box::new(complete));
        waiting.requests.push_back(Request { reader, ask, bytes_max, complete });
        drop(waiting);
        self.queue.changed.notify_all();
        Ok(())
    }

    /// What answers hold now.
    pub fn bytes_out(&self) -> usize {
        self.queue.waiting.lock().bytes_out
    }

    /// Requests nobody has begun to serve.
    pub fn waiting_count(&self) -> usize {
        self.queue.waiting.lock().requests.len()
    }
}

impl Drop for ReaderPool {
    /// Ends the threads. Requests that wait are answered with [`Error::Stopped`].
    fn drop(&mut self) {
        let left = {
            let mut waiting = self.queue.waiting.lock();
            waiting.stopping = true;
            std::mem::take(&mut waiting.requests)
        };
        self.queue.changed.notify_all();
        for request in left {
            (request.complete)(Err(Error::Stopped));
        }
        for thread in self.threads.drain(..) {
            // A completion that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

fn serve(queue: &Arc<Queue>) {
    while let Some(sweep) = take_sweep(queue) {
        for request in sweep {
            serve_one(queue, request);
        }
    }
}

/// The next requests for one log, in the order of their offsets; none when it is time to stop.
fn take_sweep(queue: &Queue) -> Option<Vec<Request>> {
    let mut waiting = queue.waiting.lock();
    loop {
        if waiting.stopping {
            return None;
        }
        if let Some(first) = waiting.requests.pop_front() {
            let mut sweep = vec![first];
            while sweep.len() < POOL_SWEEP_MAX
                && let Some(next) = waiting.requests.front()
                && next.reader.is_same_log(&sweep[0].reader)
            {
                sweep.extend(waiting.requests.pop_front());
            }
            sweep.sort_by_key(|request| request.ask.first_offset());
            return Some(sweep);
        }
        queue.changed.wait(&mut waiting);
    }
}

fn serve_one(queue: &Arc<Queue>, request: Request) {
    let Request { reader, ask, bytes_max, complete } = request;
    let Some(mut permit) = take_permit(queue, bytes_max) else {
        return complete(Err(Error::Stopped));
    };
    let read = match ask {
        Ask::Points(offsets) => reader.read_points(&offsets, permit.bytes).map(|rows| {
            let bytes = rows.bytes;
            (Reply::Rows(rows), bytes)
        }),
        Ask::Range(range) => reader.read(&range, permit.bytes).map(|batches| {
            let bytes = batches.bytes;
            (Reply::Batches(batches), bytes)
        }),
        Ask::Stretch(stretch) => reader.read_stretch(&stretch, permit.bytes).map(|passage| {
            let bytes = passage.bytes;
            (Reply::Passage(passage), bytes)
        }),
    };
    complete(read.map(|(reply, bytes)| {
        permit.settle(bytes);
        Answer { reply, _permit: permit }
    }));
}

impl Permit {
    /// What it came to: others may have the rest, or wait for what was more.
    fn settle(&mut self, bytes: usize) {
        let mut waiting = self.queue.waiting.lock();
        waiting.bytes_out = waiting.bytes_out - self.bytes + bytes;
        drop(waiting);
        self.bytes = bytes;
        self.queue.changed.notify_all();
    }
}

/// Waits until so many bytes may be held, or what the bound allows at all; none when stopping.
fn take_permit(queue: &Arc<Queue>, bytes: usize) -> Option<Permit> {
    let bytes = bytes.min(queue.bytes_max);
    let mut waiting = queue.waiting.lock();
    while waiting.bytes_out > 0 && waiting.bytes_out + bytes > queue.bytes_max {
        if waiting.stopping {
            return None;
        }
        queue.changed.wait(&mut waiting);
    }
    waiting.bytes_out += bytes;
    drop(waiting);
    Some(Permit { queue: queue.clone(), bytes })
}
