//! What readers keep open: blocks of late, and files.
//!
//! Both are bounded, and both drop what was not used since the hand last passed (second chance):
//! as good as strict recency for our purpose, without a list to relink at every read. Chunk
//! numbers are never used twice, so an entry may be stale but never wrong.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::block::Block;
use crate::chunk::Chunk;
use crate::disk::{Disk, File};
use crate::error::{Error, Result};
use crate::limits::FILES_OPEN_MAX;

type BlockKey = (u64, u32);

#[derive(Debug)]
struct Slot<T> {
    value: T,
    weight: usize,
    used: bool,
}

/// A map that holds at most so much weight.
#[derive(Debug)]
struct Bounded<K, T> {
    slots: HashMap<K, Slot<T>>,
    hand: VecDeque<K>,
    weight: usize,
    weight_max: usize,
}

impl<K: Copy + Eq + std::hash::Hash, T: Clone> Bounded<K, T> {
    fn new(weight_max: usize) -> Self {
        Self { slots: HashMap::new(), hand: VecDeque::new(), weight: 0, weight_max }
    }

    fn get(&mut self, key: K) -> Option<T> {
        let slot = self.slots.get_mut(&key)?;
        slot.used = true;
        Some(slot.value.clone())
    }

    fn insert(&mut self, key: K, value: T, weight: usize) {
        if weight > self.weight_max || self.slots.contains_key(&key) {
            return;
        }
        while self.weight + weight > self.weight_max {
            self.drop_one();
        }
        self.weight += weight;
        self.slots.insert(key, Slot { value, weight, used: false });
        self.hand.push_back(key);
    }

    fn drop_one(&mut self) {
        while let Some(key) = self.hand.pop_front() {
            match self.slots.get_mut(&key) {
                Some(slot) if slot.used => {
                    slot.used = false;
                    self.hand.push_back(key);
                }
                Some(slot) => {
                    self.weight -= slot.weight;
                    self.slots.remove(&key);
                    return;
                }
                None => {}
            }
        }
    }
}

/// Opened blocks.
#[derive(Debug)]
pub(crate) struct BlockCache {
    blocks: Mutex<Bounded<BlockKey, Arc<Block>>>,
}

impl BlockCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { blocks: Mutex::new(Bounded::new(bytes_max)) }
    }

    pub(crate) fn get(&self, chunk: u64, number: usize) -> Option<Arc<Block>> {
        self.blocks.lock().get((chunk, number as u32))
    }

    pub(crate) fn insert(&self, chunk: u64, number: usize, block: &Arc<Block>) {
        let weight = block.weight_bytes();
        self.blocks.lock().insert((chunk, number as u32), block.clone(), weight);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.lock().weight
    }
}

/// Open chunk files.
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    open: Mutex<Bounded<u64, Arc<dyn File>>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Files").finish_non_exhaustive()
    }
}

impl Files {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, open: Mutex::new(Bounded::new(FILES_OPEN_MAX)) }
    }

    pub(crate) fn of(&self, chunk: &Chunk) -> Result<Arc<dyn File>> {
        if let Some(file) = self.open.lock().get(chunk.info.id) {
            return Ok(file);
        }
        // Opened without the lock; two threads may both do it, and one handle is dropped.
        let opened = self.disk.open(&chunk.path);
        let file: Arc<dyn File> =
            opened.map_err(|source| Error::disk("open", &chunk.path, source))?.into();
        self.open.lock().insert(chunk.info.id, file.clone(), 1);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;

    #[test]
    fn what_is_used_outlives_what_is_not_and_the_bound_holds() {
        let mut bounded = Bounded::new(10);
        bounded.insert('a', 1, 4);
        bounded.insert('b', 2, 4);
        assert_eq!(bounded.get('a'), Some(1));
        bounded.insert('c', 3, 4);
        assert_eq!(bounded.get('b'), None, "nobody asked for it");
        assert_eq!(bounded.get('a'), Some(1));
        assert_eq!(bounded.weight, 8);
        bounded.insert('d', 4, 11);
        assert_eq!(bounded.get('d'), None, "heavier than all there is room for");
        for key in 'e'..='z' {
            bounded.insert(key, 0, 3);
            assert!(bounded.weight <= 10);
        }
    }
}
