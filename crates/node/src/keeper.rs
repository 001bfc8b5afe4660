//! The thread that keeps the message log, and the jobs it has done on the disk.
//!
//! - It alone owns the `RecordLog`. It appends what shards handed over (`message_log.rs`), decides
//!   what the disk is to do, and never waits for it: each job runs on a thread of its own and
//!   reports back here. At most one seal and one rewrite run at a time.
//! - A checkpoint at entry N needs a list of chunks that ends exactly with the records of N: what
//!   comes after is rebuilt from the entries after N. So a mark stands between the records, and
//!   nothing behind it is appended before a seal of all before it was planned.
//! - Files go only when the checkpoint that does without them is durable and the log is cut behind
//!   it.
//! - A full disk is waited for: nothing is lost, the tail grows, and at its bound publishers are
//!   held. Any other failure to write or sync ends the log, and with it the node.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quantumqtt_journal::Lsn;
use quantumqtt_reactor::Clock;
use quantumqtt_records::{
    Error, Manifest, RecordLog, Retention, RewriteJob, Rewritten, SealJob, SealWhen, Sealed,
    SweepJob,
};

use crate::limits::{RECORDS_RETRY_MS, RECORDS_SYNC_LOOK, RECORDS_TEND_MS};
use crate::message_log::{Intake, Item};
use crate::recorded;

/// What a job came to.
pub(crate) enum Done {
    Seal(Result<Sealed, Error>, Option<Sender<Manifest>>),
    Rewrite(Result<Rewritten, Error>),
    Sweep(Result<(), Error>),
}

/// The keeper's thread; ends, with every job, when this is dropped.
pub(crate) struct KeeperThread {
    intake: Arc<Intake>,
    thread: Option<JoinHandle<()>>,
}

/// What the keeper is given.
pub(crate) struct Keeping {
    pub(crate) log: RecordLog,
    pub(crate) intake: Arc<Intake>,
    /// Whether everything up to here is synced.
    pub(crate) is_synced: Box<dyn Fn(Lsn) -> bool + Send>,
    pub(crate) routing_epoch: u64,
    pub(crate) retention: Retention,
    pub(crate) clock: Clock,
    /// Rings the partition's owner: there is room again, or there has been a failure.
    pub(crate) ring: Box<dyn Fn() + Send>,
}

impl KeeperThread {
    pub(crate) fn start(keeping: Keeping) -> std::io::Result<Self> {
        let intake = Arc::clone(&keeping.intake);
        let keeper = Keeper {
            keeping,
            waiting: VecDeque::new(),
            is_sealing: false,
            is_rewriting: false,
            jobs: Vec::new(),
            not_before_ms: 0,
            tend_at_ms: 0,
        };
        let thread = thread::Builder::new().name("qmq-records".to_owned());
        let thread = thread.spawn(move || keeper.run())?;
        Ok(Self { intake, thread: Some(thread) })
    }
}

impl Drop for KeeperThread {
    fn drop(&mut self) {
        self.intake.desk.lock().is_stopping = true;
        self.intake.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // One that panicked has told the intake.
            let _ = thread.join();
        }
    }
}

/// See the head of this file.
struct Keeper {
    keeping: Keeping,
    /// Taken from the intake, not done yet.
    waiting: VecDeque<Item>,
    is_sealing: bool,
    is_rewriting: bool,
    jobs: Vec<JoinHandle<()>>,
    /// After a failure that may pass: when to try again.
    not_before_ms: u64,
    tend_at_ms: u64,
}

/// Says that the keeper is gone, however it went.
struct Farewell<'a>(&'a Intake, &'a (dyn Fn() + Send));

impl Drop for Farewell<'_> {
    fn drop(&mut self) {
        let was_stopped = self.0.desk.lock().is_stopping && !thread::panicking();
        let why = if was_stopped { "the node has stopped" } else { "its thread has died" };
        self.0.fail(why.to_owned());
        if !was_stopped {
            (self.1)();
        }
    }
}

impl Keeper {
    fn run(mut self) {
        let intake = Arc::clone(&self.keeping.intake);
        let ring = std::mem::replace(&mut self.keeping.ring, Box::new(|| ()));
        let _farewell = Farewell(&intake, &*ring);
        loop {
            let wait = self.wait_at_most();
            let (items, done) = {
                let mut desk = intake.desk.lock();
                if !desk.is_urgent && !desk.is_stopping {
                    intake.work.wait_for(&mut desk, wait);
                }
                if desk.is_stopping {
                    break;
                }
                desk.take()
            };
            self.waiting.extend(items);
            let outcome = done.into_iter().try_for_each(|done| self.on_done(done));
            if let Err(why) = outcome.and_then(|()| self.work()) {
                intake.fail(words(&why));
                ring();
                break;
            }
            if intake.publish(self.keeping.log.statistics()) {
                ring();
            }
        }
        // Whoever opens the directory next must find nobody writing in it.
        for job in self.jobs.drain(..) {
            let _ = job.join();
        }
    }

    fn now_ms(&self) -> u64 {
        self.keeping.clock.now_ms()
    }

    fn wait_at_most(&self) -> Duration {
        if matches!(self.waiting.front(), Some(Item::Records(_))) {
            return RECORDS_SYNC_LOOK;
        }
        let due_ms = if self.not_before_ms > 0 { self.not_before_ms } else { self.tend_at_ms };
        Duration::from_millis(due_ms.saturating_sub(self.now_ms()).max(1))
    }

    /// Does what waits, in order, as far as it can be done now, and then what time asks for.
    fn work(&mut self) -> Result<(), Error> {
        while let Some(item) = self.waiting.pop_front() {
            if let Some(item) = self.begin(item)? {
                self.waiting.push_front(item);
                break;
            }
        }
        self.tend();
        Ok(())
    }

    /// Does one thing, or gives it back because something else must end first.
    fn begin(&mut self, item: Item) -> Result<Option<Item>, Error> {
        match item {
            Item::Records(gathered) => {
                // Under `group` a message is answered before it is synced; readers see it after.
                if !(self.keeping.is_synced)(gathered.lsn) {
                    return Ok(Some(Item::Records(gathered)));
                }
                let Keeping { log, routing_epoch, intake, .. } = &mut self.keeping;
                recorded::append(log, *routing_epoch, &gathered.records)?;
                intake.appended(gathered.bytes);
            }
            Item::Mark(_) if self.is_sealing => return Ok(Some(item)),
            Item::Mark(to_checkpoint) => self.seal_for(to_checkpoint),
            Item::CatchUp(then) => {
                self.keeping.intake.publish(self.keeping.log.statistics());
                then();
            }
            Item::Cut(manifest) => {
                if let Some(job) = self.keeping.log.plan_sweep(&manifest) {
                    self.start(move || Done::Sweep(SweepJob::execute(&job)));
                }
            }
        }
        Ok(None)
    }

    fn seal_for(&mut self, to_checkpoint: Sender<Manifest>) {
        match self.keeping.log.plan_seal(SealWhen::Now) {
            Some(job) => self.seal(job, Some(to_checkpoint)),
            None => self.answer(&to_checkpoint),
        }
    }

    fn seal(&mut self, job: SealJob, to_checkpoint: Option<Sender<Manifest>>) {
        self.is_sealing = true;
        let has_started = self.start(move || Done::Seal(job.execute(), to_checkpoint));
        if !has_started {
            self.is_sealing = false;
            self.keeping.log.abandon_seal();
        }
    }

    fn rewrite(&mut self, job: RewriteJob) {
        self.is_rewriting = true;
        let has_started = self.start(move || Done::Rewrite(job.execute()));
        if !has_started {
            self.is_rewriting = false;
            self.keeping.log.abandon_rewrite(&Error::Stopped);
        }
    }

    /// The list as of the mark: everything before it is in chunks, nothing after it is.
    fn answer(&self, to_checkpoint: &Sender<Manifest>) {
        // A checkpoint that was given up meanwhile wants no list.
        let _ = to_checkpoint.send(self.keeping.log.manifest());
    }

    /// Has a job done on a thread of its own; false if there is none to be had at the moment.
    fn start(&mut self, job: impl FnOnce() -> Done + Send + 'static) -> bool {
        self.jobs.retain(|job| !job.is_finished());
        let intake = Arc::clone(&self.keeping.intake);
        let thread = thread::Builder::new().name("qmq-records-job".to_owned());
        let started = thread.spawn(move || intake.report(job()));
        if started.is_err() {
            self.not_before_ms = self.now_ms() + RECORDS_RETRY_MS;
        }
        let has_started = started.is_ok();
        self.jobs.extend(started);
        has_started
    }

    fn on_done(&mut self, done: Done) -> Result<(), Error> {
        match done {
            Done::Seal(outcome, to_checkpoint) => {
                self.is_sealing = false;
                match outcome {
                    Ok(sealed) => {
                        self.keeping.log.publish_seal(sealed);
                        self.tend_at_ms = 0; // there may be something to merge or to drop
                        if let Some(to_checkpoint) = to_checkpoint {
                            self.answer(&to_checkpoint);
                        }
                    }
                    Err(why) => {
                        self.keeping.log.abandon_seal();
                        self.bear(why)?;
                    }
                }
            }
            Done::Rewrite(outcome) => {
                self.is_rewriting = false;
                match outcome {
                    Ok(rewritten) => {
                        self.keeping.log.publish_rewrite(rewritten);
                        self.tend_at_ms = 0;
                    }
                    Err(why) => {
                        self.keeping.log.abandon_rewrite(&why);
                        self.bear(why)?;
                    }
                }
            }
            Done::Sweep(outcome) => outcome.or_else(|why| self.bear(why))?,
        }
        Ok(())
    }

    /// A full disk passes, and damage that a merge meets is a reader's to hear of; the rest does
    /// not pass.
    fn bear(&mut self, why: Error) -> Result<(), Error> {
        match why {
            Error::Disk { ref source, .. } if is_full(source.kind()) => {
                self.not_before_ms = self.now_ms() + RECORDS_RETRY_MS;
                Ok(())
            }
            Error::DamagedBlock { .. } | Error::DamagedChunk { .. } => Ok(()),
            why => Err(why),
        }
    }

    /// Seals a tail that is worth it; drops and joins chunks when one came or it is time.
    fn tend(&mut self) {
        let now_ms = self.now_ms();
        if now_ms < self.not_before_ms {
            return;
        }
        self.not_before_ms = 0;
        let holds_mark = matches!(self.waiting.front(), Some(Item::Mark(_)));
        if !self.is_sealing
            && !holds_mark
            && let Some(job) = self.keeping.log.plan_seal(SealWhen::Full)
        {
            self.seal(job, None);
        }
        if now_ms >= self.tend_at_ms && !self.is_rewriting {
            self.tend_at_ms = now_ms + RECORDS_TEND_MS;
            let log = &mut self.keeping.log;
            // Nothing refers to the log yet: what waits for a session is in the state.
            let referenced: Arc<[u64]> = Arc::new([]);
            let retained = log.plan_retention(now_ms, &self.keeping.retention, &referenced);
            if let Some(job) = retained.or_else(|| log.plan_merge()) {
                self.rewrite(job);
            }
        }
    }
}

/// An error and what caused it.
fn words(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

#[cfg(test)]
#[path = "keeper/tests.rs"]
mod tests;
