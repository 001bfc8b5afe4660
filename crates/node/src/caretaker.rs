//! Looks after the log while a node runs: reads again what is at rest, and watches the disk.
//!
//! Two threads that mostly sleep. One reads every closed file of the log and every checkpoint, a
//! little at a time, and says so when something does not check out any more (LOG-22). The other
//! looks once a second how much of the disk is taken (LOG-37). Neither writes, and neither is asked
//! by anybody: they tell the log's view, the owner of the partition and Python.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use quantumqtt_journal::{Disk, File, FileDisk, JournalError, KeyProvider, Scrub};

use crate::config::LogConfig;
use crate::disk_use::{DiskLevel, DiskUse};
use crate::limits::{DISK_LOOK_MS, SCRUB_READ_BYTES};
use crate::log_view::LogView;

/// What a caretaker found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// A file that was whole does not check out any more.
    Damage(String),
    /// The disk is more, or less, full than before.
    Disk(DiskUse),
}

/// Tells everybody whom a finding concerns.
pub(crate) type Tell = Arc<dyn Fn(Finding) + Send + Sync>;

/// The two threads; they end when it is dropped.
#[derive(Debug)]
pub(crate) struct Caretaker {
    rest: Arc<Rest>,
    threads: Vec<JoinHandle<()>>,
}

impl Caretaker {
    /// Begins to look. Without threads for it nothing is looked after, which is said.
    pub(crate) fn start(
        config: &LogConfig,
        keys: Arc<dyn KeyProvider>,
        view: &Arc<LogView>,
        tell: &Tell,
    ) -> io::Result<Self> {
        let rest = Arc::new(Rest::default());
        let mut caretaker = Self { rest: Arc::clone(&rest), threads: Vec::new() };
        let watch = {
            let (rest, view, tell) = (Arc::clone(&rest), Arc::clone(view), Arc::clone(tell));
            let (directory, bytes_max) = (config.directory.clone(), config.disk_bytes_max);
            move || watch_disk(&rest, &directory, bytes_max, &view, &tell)
        };
        caretaker.threads.push(thread::Builder::new().name("disk-watch".to_owned()).spawn(watch)?);
        if config.scrub_bytes_per_s > 0 {
            let scrub = Scrubber {
                rest,
                directory: config.directory.clone(),
                keys,
                interval: config.scrub_interval,
                bytes_per_s: config.scrub_bytes_per_s,
                view: Arc::clone(view),
                tell: Arc::clone(tell),
            };
            let run = move || scrub.run();
            caretaker.threads.push(thread::Builder::new().name("scrub".to_owned()).spawn(run)?);
        }
        Ok(caretaker)
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        self.rest.end();
        for thread in self.threads.drain(..) {
            // One that panicked has said so; there is nothing of it to wait for.
            let _ = thread.join();
        }
    }
}

/// Sleep that ends with the node.
#[derive(Debug, Default)]
struct Rest {
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl Rest {
    /// Sleep; true when it is time to end.
    fn sleep(&self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.ended.wait_until(&mut is_over, until).timed_out() {}
        *is_over
    }

    fn end(&self) {
        *self.is_over.lock() = true;
        self.ended.notify_all();
    }
}

fn watch_disk(rest: &Rest, directory: &Path, bytes_max: Option<u64>, view: &LogView, tell: &Tell) {
    let mut level = DiskLevel::Roomy;
    loop {
        // A disk that cannot be asked has other things to say, by way of the writer.
        if let Ok(found) = DiskUse::look(directory, bytes_max, level) {
            view.set_disk(found);
            if found.level != level {
                level = found.level;
                tell(Finding::Disk(found));
            } else if level != DiskLevel::Roomy {
                // Again, so that another checkpoint makes room once there is something to cut.
                tell(Finding::Disk(found));
            }
        }
        if rest.sleep(Duration::from_millis(DISK_LOOK_MS)) {
            return;
        }
    }
}

struct Scrubber {
    rest: Arc<Rest>,
    directory: PathBuf,
    keys: Arc<dyn KeyProvider>,
    interval: Duration,
    bytes_per_s: u64,
    view: Arc<LogView>,
    tell: Tell,
}

impl Scrubber {
    fn run(&self) {
        let mut known = BTreeSet::new();
        loop {
            let began = Instant::now();
            if let Some(found) = self.pass(&known) {
                self.view.scrub_pass_done(found.is_empty());
                known = found;
            }
            if self.rest.sleep(self.interval.saturating_sub(began.elapsed())) {
                return;
            }
        }
    }

    /// Everything at rest once; what is not whole. None when it could not be looked at.
    fn pass(&self, known: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        let inner = FileDisk::read_only(&self.directory).ok()?;
        let rest = Arc::clone(&self.rest);
        let disk = Arc::new(PacedDisk { inner, rest, bytes_per_s: self.bytes_per_s });
        let mut scrub = Scrub::begin(disk, &*self.keys).ok()?;
        let mut found = BTreeSet::new();
        while let Some(step) = scrub.step() {
            match step.damage {
                None => self.view.scrubbed(step.bytes),
                // The end of the node, or a disk that cannot be read just now.
                Some(JournalError::Disk { .. }) if *self.rest.is_over.lock() => return None,
                Some(damage) => {
                    let said = format!("{}: {damage}", step.path);
                    let is_news = !known.contains(&said);
                    self.view.scrub_found(&said, is_news);
                    if is_news {
                        (self.tell)(Finding::Damage(said.clone()));
                    }
                    found.insert(said);
                }
            }
        }
        Some(found)
    }
}

/// A disk to read from slowly.
struct PacedDisk {
    inner: FileDisk,
    rest: Arc<Rest>,
    bytes_per_s: u64,
}

struct PacedFile {
    inner: Box<dyn File>,
    rest: Arc<Rest>,
    bytes_per_s: u64,
}

impl Disk for PacedDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        let (inner, rest) = (self.inner.open(path)?, Arc::clone(&self.rest));
        Ok(Box::new(PacedFile { inner, rest, bytes_per_s: self.bytes_per_s }))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        self.inner.create(path)
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.inner.make_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock(path)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }
}

impl File for PacedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let length = into.len().min(SCRUB_READ_BYTES);
        let got = self.inner.read_at(offset, &mut into[..length])?;
        let pause = got as u64 * 1_000_000 / self.bytes_per_s.max(1);
        if self.rest.sleep(Duration::from_micros(pause)) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the node ends"));
        }
        Ok(got)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.write_at(offset, pieces)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.zero(offset, bytes)
    }

    fn cut_off(&self, length: u64) -> io::Result<()> {
        self.inner.cut_off(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}
