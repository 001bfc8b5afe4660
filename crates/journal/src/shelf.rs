//! Zeroed files for segments to come, and the retirement of segments nobody needs.
//!
//! A file is worth keeping: its blocks are allocated and written, so a sync of later writes moves
//! data and nothing else. A retired segment therefore changes its name, is zeroed in the background
//! and waits as a spare. Names are made durable first, so that a crash never leaves a segment's
//! name on zeros. Old records could not be taken for new ones even without the zeros: the checksums
//! of a segment's records are seeded with its salt.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::disk::{Disk, File};
use crate::error::JournalError;
use crate::limits::{SPARES_MAX, ZERO_STEP_BYTES};
use crate::segment::{WAL_DIR, segment_path, spare_path};

#[derive(Default)]
struct Stock {
    /// Zeroed and synced, by number.
    ready: BTreeSet<u64>,
    /// Segments to retire, oldest first.
    retired: VecDeque<u64>,
    next_number: u64,
    wanted: bool,
    stopping: bool,
    failed: Option<JournalError>,
}

fn is_spare(name: &str) -> bool {
    name.strip_suffix(".spare").is_some()
}

/// The stock of spare files.
pub(crate) struct Shelf {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    stock: Mutex<Stock>,
    work: Condvar,
}

impl Shelf {
    /// Starts with an empty stock; files left by an earlier run are removed.
    pub(crate) fn open(disk: Arc<dyn Disk>, segment_bytes: u64) -> Result<Self, JournalError> {
        let shelf = Self { disk, segment_bytes, stock: Mutex::default(), work: Condvar::new() };
        let names = shelf
            .disk
            .list(WAL_DIR)
            .map_err(|why| JournalError::disk("listing segments", WAL_DIR, why))?;
        let spares: Vec<_> = names.iter().filter(|name| is_spare(name)).collect();
        for name in &spares {
            shelf.remove(&format!("{WAL_DIR}/{name}"))?;
        }
        if !spares.is_empty() {
            shelf.sync_names()?;
        }
        Ok(shelf)
    }

    fn remove(&self, path: &str) -> Result<(), JournalError> {
        self.disk.remove(path).map_err(|why| JournalError::disk("removing", path, why))
    }

    fn sync_names(&self) -> Result<(), JournalError> {
        let synced = self.disk.sync_dir(WAL_DIR);
        synced.map_err(|why| JournalError::disk("syncing the directory", WAL_DIR, why))
    }

    /// Takes a spare, or makes one if none is ready.
    pub(crate) fn take(&self) -> Result<(Box<dyn File>, String), JournalError> {
        let ready = self.stock.lock().ready.pop_first();
        let number = match ready {
            Some(number) => number,
            None => self.make()?,
        };
        let path = spare_path(number);
        let file = self.disk.open(&path);
        let file = file.map_err(|why| JournalError::disk("opening a spare", &path, why))?;
        Ok((file, path))
    }

    /// A spare that could not be used after all.
    pub(crate) fn discard(&self, path: &str) {
        // Best effort: the next start removes it.
        let _ = self.disk.remove(path);
    }

    fn next_number(&self) -> u64 {
        let mut stock = self.stock.lock();
        stock.next_number += 1;
        stock.next_number
    }

    fn make(&self) -> Result<u64, JournalError> {
        let number = self.next_number();
        let path = spare_path(number);
        let made = (|| {
            let file = self.disk.create(&path)?;
            self.zero(&*file)
        })();
        if let Err(why) = made {
            self.discard(&path);
            return Err(JournalError::disk("preparing a segment", &path, why));
        }
        Ok(number)
    }

    fn zero(&self, file: &dyn File) -> std::io::Result<()> {
        let mut at = 0;
        while at < self.segment_bytes {
            let step = ZERO_STEP_BYTES.min(self.segment_bytes - at);
            file.zero(at, step)?;
            at += step;
        }
        file.sync_data()
    }

    /// Hands over segments that no group needs, oldest first.
    pub(crate) fn retire(&self, sequences: impl IntoIterator<Item = u64>) {
        self.stock.lock().retired.extend(sequences);
        self.work.notify_one();
    }

    /// Asks for one more spare to be made ahead.
    pub(crate) fn want(&self) {
        self.stock.lock().wanted = true;
        self.work.notify_one();
    }

    /// The failure of the background work, if there was one; a full disk is none.
    pub(crate) fn failure(&self) -> Option<JournalError> {
        self.stock.lock().failed.clone()
    }

    pub(crate) fn stop(&self) {
        self.stock.lock().stopping = true;
        self.work.notify_all();
    }

    /// Waits for work and does it, until `stop`.
    pub(crate) fn run(&self) {
        loop {
            {
                let mut stock = self.stock.lock();
                while !stock.stopping && stock.retired.is_empty() && !stock.wanted {
                    self.work.wait(&mut stock);
                }
                if stock.stopping {
                    return;
                }
            }
            self.work_once();
        }
    }

    /// Does what there is to do now.
    pub(crate) fn work_once(&self) {
        while let Some(sequence) = self.next_retired() {
            if let Err(why) = self.retire_one(sequence) {
                self.report(why);
                return;
            }
        }
        let wanted = {
            let mut stock = self.stock.lock();
            std::mem::take(&mut stock.wanted) && stock.ready.is_empty()
        };
        if wanted {
            match self.make() {
                Ok(number) => drop(self.stock.lock().ready.insert(number)),
                Err(why) => self.report(why),
            }
        }
    }

    fn next_retired(&self) -> Option<u64> {
        self.stock.lock().retired.pop_front()
    }

    fn report(&self, why: JournalError) {
        // Without room the writer finds out by itself when it needs the file.
        if !why.is_full() {
            self.stock.lock().failed.get_or_insert(why);
        }
    }

    fn retire_one(&self, sequence: u64) -> Result<(), JournalError> {
        let path = segment_path(sequence);
        let file = self.disk.open(&path);
        let file = file.map_err(|why| JournalError::disk("retiring a segment", &path, why))?;
        let length = file.length();
        let length = length.map_err(|why| JournalError::disk("retiring a segment", &path, why))?;
        if length != self.segment_bytes || self.stock.lock().ready.len() >= SPARES_MAX {
            self.remove(&path)?;
            return self.sync_names();
        }
        let number = self.next_number();
        let spare = spare_path(number);
        let renamed = self.disk.rename(&path, &spare);
        renamed.map_err(|why| JournalError::disk("recycling a segment", &path, why))?;
        self.sync_names()?;
        self.zero(&*file).map_err(|why| JournalError::disk("zeroing a segment", &spare, why))?;
        self.stock.lock().ready.insert(number);
        Ok(())
    }
}
