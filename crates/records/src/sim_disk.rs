//! A disk in memory that loses power, runs full and flips bits, all from one seed.
//!
//! # What it promises, and what not
//!
//! - What was written is seen at once, and is durable after `sync` of the file.
//! - A name (created, renamed, removed) is seen at once, and is durable after `sync_dir`.
//! - At a power cut, every sector of 512 bytes that was written and not synced is kept or lost by
//!   itself; of the changes to names since the last `sync_dir` some first ones are kept.
//! - Every call that changes something is counted, so that a test can let the power go, or one
//!   call fail, at each of them in turn.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, File};

const SECTOR_BYTES: usize = 512;

#[derive(Debug, Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that differ between the two.
    dirty: Vec<usize>,
}

/// A change to names that no `sync_dir` has covered yet.
#[derive(Debug, Clone)]
enum NameChange {
    Put(String, u64),
    Drop(String),
    Move(String, String, u64),
}

impl NameChange {
    fn make(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Put(path, content) => drop(names.insert(path.clone(), *content)),
            Self::Drop(path) => drop(names.remove(path)),
            Self::Move(from, to, content) => {
                names.remove(from);
                names.insert(to.clone(), *content);
            }
        }
    }
}

#[derive(Debug, Default)]
struct World {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    name_changes: Vec<NameChange>,
    contents: BTreeMap<u64, Content>,
    next_content: u64,
    changes: u64,
    power_until: Option<u64>,
    fails_at: Option<(u64, io::ErrorKind)>,
}

/// See the head of this file. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

/// Small and good enough to choose sectors with.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

fn no_power() -> io::Error {
    io::Error::other("the power is off")
}

impl World {
    fn change(&mut self) -> io::Result<()> {
        self.changes += 1;
        if self.power_until.is_some_and(|until| self.changes > until) {
            return Err(no_power());
        }
        match self.fails_at {
            Some((at, kind)) if at == self.changes => Err(kind.into()),
            _ => Ok(()),
        }
    }

    fn is_off(&self) -> bool {
        self.power_until.is_some_and(|until| self.changes > until)
    }

    fn rename(&mut self, change: NameChange) {
        change.make(&mut self.names);
        self.name_changes.push(change);
    }

    fn content(&mut self, path: &str) -> io::Result<(u64, &mut Content)> {
        let id = *self.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok((id, self.contents.get_mut(&id).expect("a name has a content")))
    }
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes made so far.
    pub fn change_count(&self) -> u64 {
        self.world.lock().changes
    }

    /// Lets `changes` more of them happen, then the power goes.
    pub fn power_for(&self, changes: u64) {
        let mut world = self.world.lock();
        world.power_until = Some(world.changes + changes);
    }

    /// Lets one change fail: the one after `changes` more.
    pub fn fail_after(&self, changes: u64, kind: io::ErrorKind) {
        let mut world = self.world.lock();
        world.fails_at = Some((world.changes + changes + 1, kind));
    }

    /// The disk as it is found when the power is back.
    #[must_use]
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let world = self.world.lock();
        let mut dice = Dice(seed);
        let mut names = world.durable_names.clone();
        let survivors = dice.next() as usize % (world.name_changes.len() + 1);
        for change in &world.name_changes[..survivors] {
            change.make(&mut names);
        }
        let contents = names.values().map(|id| (*id, torn(&world.contents[id], &mut dice)));
        let found = World {
            contents: contents.collect(),
            durable_names: names.clone(),
            names,
            next_content: world.next_content,
            ..World::default()
        };
        Self { world: Arc::new(Mutex::new(found)) }
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        self.world.lock().content(path).map(|(_, content)| content.now.clone())
    }

    /// Puts bytes where a file is or is not, durably: damage, or what another release left.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let mut world = self.world.lock();
        world.next_content += 1;
        let id = world.next_content;
        let content = Content { now: bytes.to_vec(), durable: bytes.to_vec(), dirty: Vec::new() };
        world.contents.insert(id, content);
        world.names.insert(path.to_owned(), id);
        world.durable_names.insert(path.to_owned(), id);
    }

    /// The names of all files.
    pub fn files(&self) -> Vec<String> {
        self.world.lock().names.keys().cloned().collect()
    }
}

fn torn(content: &Content, dice: &mut Dice) -> Content {
    let mut bytes = content.durable.clone();
    for &sector in &content.dirty {
        if dice.next().is_multiple_of(2) {
            continue;
        }
        let from = sector * SECTOR_BYTES;
        let until = content.now.len().min(from + SECTOR_BYTES);
        if bytes.len() < until {
            bytes.resize(until, 0);
        }
        bytes[from..until].copy_from_slice(&content.now[from..until]);
    }
    Content { now: bytes.clone(), durable: bytes, dirty: Vec::new() }
}

impl Disk for SimDisk {
    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        let mut world = self.world.lock();
        world.change()?;
        if world.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.next_content += 1;
        let id = world.next_content;
        world.contents.insert(id, Content::default());
        world.rename(NameChange::Put(path.to_owned(), id));
        Ok(Box::new(SimFile { id, world: self.world.clone() }))
    }

    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        let mut world = self.world.lock();
        if world.is_off() {
            return Err(no_power());
        }
        let (id, _) = world.content(path)?;
        Ok(Box::new(SimFile { id, world: self.world.clone() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        let (id, _) = world.content(from)?;
        // One change to whoever looks after a power cut: never both names, never none.
        world.rename(NameChange::Move(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        world.content(path)?;
        world.rename(NameChange::Drop(path.to_owned()));
        Ok(())
    }

    fn make_dir(&self, _path: &str) -> io::Result<()> {
        self.world.lock().change()
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let world = self.world.lock();
        if world.is_off() {
            return Err(no_power());
        }
        let inside = |name: &String| {
            let rest = name.strip_prefix(path)?.strip_prefix('/')?;
            (!rest.contains('/')).then(|| rest.to_owned())
        };
        Ok(world.names.keys().filter_map(inside).collect())
    }

    fn sync_dir(&self, _path: &str) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        world.durable_names = world.names.clone();
        world.name_changes.clear();
        Ok(())
    }
}

#[derive(Debug)]
struct SimFile {
    id: u64,
    world: Arc<Mutex<World>>,
}

impl File for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let world = self.world.lock();
        if world.is_off() {
            return Err(no_power());
        }
        let bytes = &world.contents[&self.id].now;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let count = into.len().min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let mut world = self.world.lock();
        let changed = world.change();
        let content = world.contents.get_mut(&self.id).expect("an open file has a content");
        // The write during which the power goes may have reached the disk in part.
        let whole = offset as usize + bytes.len();
        if content.now.len() < whole {
            content.now.resize(whole, 0);
        }
        content.now[offset as usize..whole].copy_from_slice(&bytes);
        let sectors = offset as usize / SECTOR_BYTES..whole.div_ceil(SECTOR_BYTES);
        content.dirty.extend(sectors);
        content.dirty.sort_unstable();
        content.dirty.dedup();
        changed.map(|()| bytes.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world.lock();
        world.change()?;
        let content = world.contents.get_mut(&self.id).expect("an open file has a content");
        content.durable = content.now.clone();
        content.dirty.clear();
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.world.lock().contents[&self.id].now.len() as u64)
    }
}
