//! A disk in memory that lies like real ones, from a seed.
//!
//! Every file has two faces: what a reader sees now, and what a crash leaves. Writes are remembered
//! per sector until a sync; a crash keeps any of them, in their order, and may tear one. Names
//! change at once and are durable after a sync of their directory; until then a crash may keep any
//! of the changes. A sync that fails forgets what it should have written and looks clean from then
//! on, as Linux does it. Handles from before a crash are dead.
//!
//! Same seed, same calls: same answers, same trace.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, File};
use crate::keys::Entropy;
use crate::limits::SECTOR_BYTES;
use crate::options::Clock;

/// What a crash does with changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The process dies, the machine does not: all is kept.
    Process,
    /// Nothing unsynced is kept.
    Clean,
    /// The changes up to some moment are kept, the rest is lost.
    Prefix,
    /// Any of the changes are kept.
    Subset,
    /// Any of the changes are kept, and sectors that were being written may be torn.
    Torn,
}

/// A fault to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A write fails.
    WriteError,
    /// A write stops half-way.
    ShortWrite,
    /// A sync fails, and what it should have made durable is forgotten.
    SyncError,
}

/// A clock that moves when it is told to, and when a slow disk syncs.
#[derive(Debug, Clone, Default)]
pub struct SimClock {
    now_us: Arc<AtomicU64>,
}

impl SimClock {
    /// Moves time on.
    pub fn advance_us(&self, by: u64) {
        self.now_us.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }
}

/// `SplitMix64`: small, and the same everywhere.
#[derive(Debug, Clone)]
struct Dice {
    state: u64,
}

impl Dice {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[derive(Debug, Clone, Default)]
struct Content {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Sector>,
}

impl Content {
    /// Bytes reach the medium.
    fn settle(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.durable.len() < end {
            self.durable.resize(end, 0);
        }
        self.durable[at..end].copy_from_slice(bytes);
    }
}

/// One sector as some write left it.
#[derive(Debug, Clone)]
struct Sector {
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link { name: String, file: usize },
    Unlink { name: String },
    Rename { from: String, to: String, file: usize },
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link { name, file } => drop(names.insert(name.clone(), *file)),
            Self::Unlink { name } => drop(names.remove(name)),
            Self::Rename { from, to, file } => {
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(to.clone(), *file);
            }
        }
    }

    fn directory(&self) -> &str {
        match self {
            Self::Link { name, .. } | Self::Unlink { name } => directory_of(name),
            Self::Rename { to, .. } => directory_of(to),
        }
    }
}

fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[derive(Debug, Clone)]
struct State {
    dice: Dice,
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    locks: BTreeMap<String, u64>,
    generation: u64,
    operations: u64,
    power_off_at: Option<u64>,
    capacity: Option<u64>,
    faults: Vec<(Fault, u64)>,
    sync_us: u64,
    lies: bool,
    trace: u64,
}

/// The disk; clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    clock: SimClock,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        let state = State {
            dice: Dice { state: seed },
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            locks: BTreeMap::new(),
            generation: 0,
            operations: 0,
            power_off_at: None,
            capacity: None,
            faults: Vec::new(),
            sync_us: 0,
            lies: false,
            trace: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), clock: SimClock::default() }
    }

    /// Another disk that holds the same, and goes its own way from here.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state.lock().clone();
        Self { state: Arc::new(Mutex::new(state)), clock: SimClock::default() }
    }

    /// Its clock: slow syncs move it.
    pub fn clock(&self) -> SimClock {
        self.clock.clone()
    }

    /// How many changes, syncs included, were asked for so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// A number that two runs share if they asked for the same changes in the same order.
    pub fn trace_hash(&self) -> u64 {
        self.state.lock().trace
    }

    /// The power goes in the middle of the change of that number; it may or may not arrive.
    pub fn power_off_at(&self, operation: u64) {
        self.state.lock().power_off_at = Some(operation);
    }

    /// Whether the power went.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off()
    }

    /// A fault after that many more writes or syncs of its kind.
    pub fn inject(&self, fault: Fault, after: u64) {
        self.state.lock().faults.push((fault, after));
    }

    /// Room for all files together; None is no end.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// How long each sync takes.
    pub fn set_sync_us(&self, sync_us: u64) {
        self.state.lock().sync_us = sync_us;
    }

    /// A disk that says it synced and did not: what tests of syncing must find out.
    pub fn set_lying(&self, lies: bool) {
        self.state.lock().lies = lies;
    }

    /// Ends the machine's or the process's life and starts the disk again.
    pub fn crash(&self, how: Crash) {
        self.state.lock().crash(how);
    }

    /// Damages bytes at rest.
    pub fn flip(&self, path: &str, offset: u64, mask: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = *state.names.get(path).ok_or_else(absent)?;
        let content = &mut state.files[file];
        for face in [&mut content.live, &mut content.durable] {
            if let Some(byte) = face.get_mut(offset as usize) {
                *byte ^= mask;
            }
        }
        Ok(())
    }

    /// The bytes of a file as a reader sees them.
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let state = self.state.lock();
        let file = *state.names.get(path).ok_or_else(absent)?;
        Ok(state.files[file].live.clone())
    }

    /// Puts a file there, durable at once.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        let file = state.files.len();
        let content =
            Content { live: bytes.to_vec(), durable: bytes.to_vec(), pending: Vec::new() };
        state.files.push(content);
        state.names.insert(path.to_owned(), file);
        state.durable_names.insert(path.to_owned(), file);
    }

    /// Bytes of all files.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().used()
    }

    /// All files, by path.
    pub fn paths(&self) -> Vec<String> {
        self.state.lock().names.keys().cloned().collect()
    }

    fn changed(&self, what: &str, path: &str, about: &[u8]) -> io::Result<()> {
        self.state.lock().begin(what, path, about)
    }
}

fn absent() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no such file")
}

fn power_off() -> io::Error {
    io::Error::other("the power is off")
}

impl State {
    fn is_off(&self) -> bool {
        self.power_off_at.is_some_and(|at| self.operations > at)
    }

    /// Counts a change; the one at which the power goes still happens, and then fails.
    fn begin(&mut self, what: &str, path: &str, about: &[u8]) -> io::Result<()> {
        if self.is_off() {
            return Err(power_off());
        }
        self.operations += 1;
        let mut told = self.trace.to_le_bytes().to_vec();
        for part in [what.as_bytes(), path.as_bytes(), about] {
            told.extend_from_slice(part);
        }
        self.trace = (u64::from(crc32c::crc32c(&told)) << 32)
            | u64::from(crc32c::crc32c_append(self.trace as u32, &told));
        Ok(())
    }

    fn end<T>(&self, value: T) -> io::Result<T> {
        if self.is_off() { Err(power_off()) } else { Ok(value) }
    }

    fn takes_fault(&mut self, fault: Fault) -> bool {
        let Some(at) = self.faults.iter().position(|(known, _)| *known == fault) else {
            return false;
        };
        if self.faults[at].1 > 0 {
            self.faults[at].1 -= 1;
            return false;
        }
        self.faults.remove(at);
        true
    }

    fn used(&self) -> u64 {
        self.names.values().map(|&file| self.files[file].live.len() as u64).sum()
    }

    fn write(&mut self, file: usize, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len();
        let grown = end.saturating_sub(self.files[file].live.len()) as u64;
        if self.capacity.is_some_and(|capacity| grown > 0 && self.used() + grown > capacity) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"));
        }
        let content = &mut self.files[file];
        if content.live.len() < end {
            content.live.resize(end, 0);
        }
        content.live[offset..end].copy_from_slice(bytes);
        let first = offset / SECTOR_BYTES;
        for sector in first..end.div_ceil(SECTOR_BYTES) {
            let at = sector * SECTOR_BYTES;
            let until = (at + SECTOR_BYTES).min(content.live.len());
            content.pending.push(Sector { at, bytes: content.live[at..until].to_vec() });
        }
        Ok(())
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    fn crash(&mut self, how: Crash) {
        self.generation += 1;
        self.locks.clear();
        self.power_off_at = None;
        self.faults.clear();
        let names = std::mem::take(&mut self.pending_names);
        let kept = keep(&mut self.dice, how, names.len());
        for (change, _) in names.iter().zip(kept).filter(|(_, kept)| *kept) {
            change.apply(&mut self.durable_names);
        }
        for content in &mut self.files {
            let pending = std::mem::take(&mut content.pending);
            let kept = keep(&mut self.dice, how, pending.len());
            for (sector, _) in pending.iter().zip(kept).filter(|(_, kept)| *kept) {
                let mut bytes = sector.bytes.clone();
                if how == Crash::Torn && self.dice.below(4) == 0 {
                    // What was there and what came meet somewhere, or the sector is noise.
                    let from = self.dice.below(bytes.len());
                    for (place, byte) in bytes.iter_mut().enumerate().skip(from) {
                        *byte = content.durable.get(sector.at + place).copied().unwrap_or(0);
                    }
                    if self.dice.below(4) == 0 {
                        for byte in &mut bytes {
                            *byte = self.dice.next() as u8;
                        }
                    }
                }
                content.settle(sector.at, &bytes);
            }
            content.live.clone_from(&content.durable);
        }
        self.names = self.durable_names.clone();
    }
}

/// Which of so many changes survive.
fn keep(dice: &mut Dice, how: Crash, count: usize) -> Vec<bool> {
    match how {
        Crash::Process => vec![true; count],
        Crash::Clean => vec![false; count],
        Crash::Prefix => {
            let kept = dice.below(count + 1);
            (0..count).map(|position| position < kept).collect()
        }
        Crash::Subset | Crash::Torn => (0..count).map(|_| dice.coin()).collect(),
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        let state = self.state.lock();
        if state.is_off() {
            return Err(power_off());
        }
        let file = *state.names.get(path).ok_or_else(absent)?;
        let generation = state.generation;
        drop(state);
        Ok(Box::new(SimFile { disk: self.clone(), file, generation, path: path.to_owned() }))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        self.changed("create", path, b"")?;
        let mut state = self.state.lock();
        if state.names.contains_key(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists"));
        }
        let file = state.files.len();
        state.files.push(Content::default());
        state.rename(NameChange::Link { name: path.to_owned(), file });
        let generation = state.generation;
        state.end(())?;
        drop(state);
        Ok(Box::new(SimFile { disk: self.clone(), file, generation, path: path.to_owned() }))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        // Directories are parts of names here; that they exist is taken for durable.
        self.changed("mkdir", path, b"")?;
        self.state.lock().end(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.changed("syncdir", path, b"")?;
        let mut state = self.state.lock();
        if state.is_off() {
            // In the middle of it: the crash decides what arrived.
            return Err(power_off());
        }
        if state.takes_fault(Fault::SyncError) {
            return Err(io::Error::other("input/output error"));
        }
        let pending = std::mem::take(&mut state.pending_names);
        for change in pending {
            if change.directory() == path {
                change.apply(&mut state.durable_names);
            } else {
                state.pending_names.push(change);
            }
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.changed("rename", from, to.as_bytes())?;
        let mut state = self.state.lock();
        let file = *state.names.get(from).ok_or_else(absent)?;
        state.rename(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), file });
        state.end(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.changed("remove", path, b"")?;
        let mut state = self.state.lock();
        if !state.names.contains_key(path) {
            return Err(absent());
        }
        state.rename(NameChange::Unlink { name: path.to_owned() });
        state.end(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let behind = state.names.keys().filter_map(|name| name.strip_prefix(&prefix));
        let names: BTreeSet<&str> =
            behind.map(|name| name.split_once('/').map_or(name, |(first, _)| first)).collect();
        state.end(names.into_iter().map(str::to_owned).collect())
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut state = self.state.lock();
        if state.locks.contains_key(path) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "locked"));
        }
        let generation = state.generation;
        state.locks.insert(path.to_owned(), generation);
        drop(state);
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned(), generation }))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state.lock();
        let capacity = state.capacity.unwrap_or(u64::MAX);
        state.end(capacity.saturating_sub(state.used()))
    }
}

struct SimLock {
    disk: SimDisk,
    path: String,
    generation: u64,
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.locks.get(&self.path) == Some(&self.generation) {
            state.locks.remove(&self.path);
        }
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
    generation: u64,
    path: String,
}

impl SimFile {
    fn change(&self, what: &str, about: &[u8]) -> io::Result<()> {
        if self.disk.state.lock().generation != self.generation {
            return Err(power_off());
        }
        self.disk.changed(what, &self.path, about)
    }
}

impl File for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state.lock();
        if state.is_off() || state.generation != self.generation {
            return Err(power_off());
        }
        let live = &state.files[self.file].live;
        let from = (offset as usize).min(live.len());
        let count = into.len().min(live.len() - from);
        into[..count].copy_from_slice(&live[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.change("write", &bytes)?;
        let mut state = self.disk.state.lock();
        if state.takes_fault(Fault::WriteError) {
            return Err(io::Error::other("input/output error"));
        }
        let count =
            if state.takes_fault(Fault::ShortWrite) { bytes.len() / 2 } else { bytes.len() };
        state.write(self.file, offset as usize, &bytes[..count])?;
        state.end(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change("sync", b"")?;
        let mut state = self.disk.state.lock();
        self.disk.clock.advance_us(state.sync_us);
        if state.is_off() {
            // In the middle of it: the crash decides what arrived.
            return Err(power_off());
        }
        if state.lies {
            return Ok(());
        }
        let failed = state.takes_fault(Fault::SyncError);
        let content = &mut state.files[self.file];
        let pending = std::mem::take(&mut content.pending);
        if failed {
            return Err(io::Error::other("input/output error"));
        }
        for sector in &pending {
            content.settle(sector.at, &sector.bytes);
        }
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.change("zero", &bytes.to_le_bytes())?;
        let mut state = self.disk.state.lock();
        state.write(self.file, offset as usize, &vec![0; bytes as usize])?;
        state.end(())
    }

    fn cut_off(&self, length: u64) -> io::Result<()> {
        self.change("cut", &length.to_le_bytes())?;
        let mut state = self.disk.state.lock();
        let content = &mut state.files[self.file];
        content.live.truncate(length as usize);
        content.durable.truncate(length as usize);
        content.pending.retain(|sector| (sector.at as u64) < length);
        state.end(())
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.disk.state.lock();
        state.end(state.files[self.file].live.len() as u64)
    }
}

/// Salts from a seed, for runs that must be the same twice.
#[derive(Debug)]
pub struct SimEntropy {
    dice: Mutex<Dice>,
}

impl SimEntropy {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Self {
        Self { dice: Mutex::new(Dice { state: seed }) }
    }
}

impl Entropy for SimEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.dice.lock();
        for byte in bytes {
            *byte = dice.next() as u8;
        }
    }
}
