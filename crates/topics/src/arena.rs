//! Values that point at each other by number: stable ids, reused slots, and a flat drop.

use std::ops::{Index, IndexMut};

/// A growing store of `T` addressed by the number `insert` returned.
///
/// Which number a value gets depends on history, so nothing may be ordered by it.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.vacant.pop() {
            self.slots[id as usize] = Some(value);
            return id;
        }
        let id = u32::try_from(self.slots.len()).expect("memory ends before 2^32 slots do");
        self.slots.push(Some(value));
        id
    }

    pub(crate) fn remove(&mut self, id: u32) -> T {
        let value = self.slots[id as usize].take().expect("only a stored value is removed");
        self.vacant.push(id);
        value
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Heap bytes of the store itself, vacant slots included.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<Option<T>>() + self.vacant.len() * size_of::<u32>()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        self.slots[id as usize].as_ref().expect("ids inside the trie name stored values")
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.slots[id as usize].as_mut().expect("ids inside the trie name stored values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vacant_slot_is_used_again() {
        let mut arena = Arena::new();
        let (first, second) = (arena.insert("a"), arena.insert("b"));
        assert_eq!(arena.remove(first), "a");
        assert_eq!((arena.len(), arena.get(first)), (1, None));
        assert_eq!(arena.insert("c"), first);
        assert_eq!((arena[first], arena[second], arena.len()), ("c", "b", 2));
        assert_eq!(arena.get(7), None);
    }
}
