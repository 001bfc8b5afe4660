//! How much waits for the log, and who waits for it to become less.
//!
//! Publishers can be faster than a disk. Above the bound a publisher whose message was just
//! proposed is not read until half of what waits has been committed; what was proposed already is
//! kept. The partition's owner is the only one who counts, so the sum cannot run away; any shard
//! may look, and says so before it holds somebody.
//!
//! A full disk is the same thing without an end in sight: whoever can be told is refused, the
//! others are held, and nobody else is slowed. A disk that is nearly full (`disk_use.rs`) is the
//! same as a full one before it is too late; one that is getting full halves the bound.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::disk_use::DiskLevel;

#[derive(Debug)]
pub(crate) struct Pressure {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Some shard holds publishers, and wants to hear when there is room.
    are_held: AtomicBool,
    /// The disk of the log has no room.
    is_full: AtomicBool,
    /// The message log is not written as fast as it grows.
    is_behind: AtomicBool,
    /// How full the disk is.
    level: AtomicU8,
}

impl Pressure {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_max,
            are_held: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_behind: AtomicBool::new(false),
            level: AtomicU8::new(DiskLevel::Roomy as u8),
        }
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    pub(crate) fn settle(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::AcqRel);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        if self.is_full.load(Ordering::Relaxed) != is_full {
            self.is_full.store(is_full, Ordering::SeqCst);
        }
    }

    pub(crate) fn set_behind(&self, is_behind: bool) {
        if self.is_behind.load(Ordering::Relaxed) != is_behind {
            self.is_behind.store(is_behind, Ordering::SeqCst);
        }
    }

    pub(crate) fn set_level(&self, level: DiskLevel) {
        self.level.store(level as u8, Ordering::SeqCst);
    }

    fn level(&self) -> DiskLevel {
        DiskLevel::from_byte(self.level.load(Ordering::SeqCst))
    }

    /// Whether the disk has no room: whoever can be told is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire) || self.level() == DiskLevel::Full
    }

    /// What a credit comes to: half of it while the disk is getting full.
    pub(crate) fn credit(&self, whole: u16) -> u16 {
        if self.level() == DiskLevel::Roomy { whole } else { (whole / 2).max(1) }
    }

    fn bytes_max(&self) -> u64 {
        if self.level() == DiskLevel::Roomy { self.bytes_max } else { self.bytes_max / 2 }
    }

    /// Whether a publisher must be held now; if so, `take_release` will be true later.
    pub(crate) fn must_hold(&self) -> bool {
        let is_behind = self.is_behind.load(Ordering::Acquire);
        if self.bytes() <= self.bytes_max() && !self.is_full() && !is_behind {
            return false;
        }
        self.are_held.store(true, Ordering::SeqCst);
        // Look again: the last of it may have been settled between the look and the note.
        !self.has_room()
    }

    fn has_room(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) <= self.bytes_max() / 2
            && !self.is_full.load(Ordering::SeqCst)
            && !self.is_behind.load(Ordering::SeqCst)
            && self.level() != DiskLevel::Full
    }

    /// Whether whoever is held may go on; true once per round of holding.
    pub(crate) fn take_release(&self) -> bool {
        self.has_room()
            && self.are_held.load(Ordering::SeqCst)
            && self.are_held.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_are_held_above_the_bound_and_released_at_half_of_it() {
        let pressure = Pressure::new(100);
        pressure.add(100);
        assert!(!pressure.must_hold() && !pressure.take_release());
        pressure.add(1);
        assert!(pressure.must_hold());
        pressure.settle(50);
        assert!(!pressure.take_release(), "half and a byte still wait");
        pressure.settle(1);
        assert!(pressure.take_release());
        assert!(!pressure.take_release(), "they were told");
        assert_eq!(pressure.bytes(), 50);
    }

    // req: LOG-37
    #[test]
    fn a_disk_that_fills_halves_credits_and_then_takes_nothing() {
        let pressure = Pressure::new(100);
        pressure.add(60);
        assert_eq!((pressure.credit(100), pressure.credit(1)), (100, 1));
        pressure.set_level(DiskLevel::Tight);
        assert_eq!((pressure.credit(100), pressure.credit(1)), (50, 1));
        assert!(pressure.must_hold() && !pressure.is_full(), "60 is above half of 100");
        pressure.settle(60);
        assert!(pressure.take_release() && !pressure.must_hold());
        pressure.set_level(DiskLevel::Full);
        assert!(pressure.is_full() && pressure.must_hold() && !pressure.take_release());
        pressure.set_level(DiskLevel::Roomy);
        assert!(pressure.take_release() && !pressure.is_full());
        assert_eq!(pressure.credit(100), 100);
    }

    #[test]
    fn a_full_disk_holds_whoever_cannot_be_told_until_there_is_room() {
        let pressure = Pressure::new(100);
        pressure.set_full(true);
        assert!(pressure.is_full() && pressure.must_hold() && !pressure.take_release());
        pressure.set_full(false);
        assert!(pressure.take_release() && !pressure.must_hold());
    }

    #[test]
    fn a_message_log_that_is_behind_holds_publishers_and_refuses_nobody() {
        let pressure = Pressure::new(100);
        pressure.set_behind(true);
        assert!(pressure.must_hold() && !pressure.is_full() && !pressure.take_release());
        pressure.set_behind(false);
        assert!(pressure.take_release() && !pressure.must_hold());
    }
}
