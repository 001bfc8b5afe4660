//! How much of its disk a log has taken, and what follows.
//!
//! The disk is what the log has, and what it could still have: its own files and the room that is
//! free, or a bound of the operator's. So on a volume of its own it is the volume; beside other
//! files a large disk that others have nearly filled counts as large as what is left of it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use quantumqtt_journal::{Disk, FileDisk};

use crate::limits::{DISK_CLEARING_PERCENT, DISK_FULL_PERCENT, DISK_TIGHT_PERCENT};

/// What the disk allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum DiskLevel {
    /// Everything.
    #[default]
    Roomy = 0,
    /// Credits are halved and checkpoints are made, so that the log can be cut.
    Tight = 1,
    /// Nothing new is taken; reading goes on.
    Full = 2,
}

impl DiskLevel {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Roomy => "roomy",
            Self::Tight => "tight",
            Self::Full => "full",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Roomy,
            1 => Self::Tight,
            _ => Self::Full,
        }
    }

    /// The level of a use, given the one before: each ends a little below where it begins.
    fn of(used: u64, capacity: u64, before: Self) -> Self {
        let reaches = |percent: u64| used.saturating_mul(100) >= capacity.saturating_mul(percent);
        let bound = |begins: u64, level: Self| {
            if before >= level { begins - DISK_CLEARING_PERCENT } else { begins }
        };
        if reaches(bound(DISK_FULL_PERCENT, Self::Full)) {
            Self::Full
        } else if reaches(bound(DISK_TIGHT_PERCENT, Self::Tight)) {
            Self::Tight
        } else {
            Self::Roomy
        }
    }
}

impl PartialOrd for DiskLevel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DiskLevel {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DiskUse {
    pub(crate) used_bytes: u64,
    pub(crate) capacity_bytes: u64,
    pub(crate) level: DiskLevel,
}

impl DiskUse {
    pub(crate) fn look(
        directory: &Path,
        bytes_max: Option<u64>,
        before: DiskLevel,
    ) -> io::Result<Self> {
        let files = weigh(directory)?;
        let free = FileDisk::read_only(directory)?.free_bytes()?;
        Ok(Self::judge(files, free, bytes_max, before))
    }

    fn judge(files: Weight, free: u64, bytes_max: Option<u64>, before: DiskLevel) -> Self {
        // Spare files wait to be used again: they are room, only taken already.
        let room = files.used.saturating_add(files.spare).saturating_add(free);
        let capacity_bytes = bytes_max.map_or(room, |bytes_max| bytes_max.min(room)).max(1);
        let level = DiskLevel::of(files.used, capacity_bytes, before);
        Self { used_bytes: files.used, capacity_bytes, level }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Weight {
    used: u64,
    spare: u64,
}

/// Bytes of blocks in a directory and below; files that go while it is read weigh nothing.
fn weigh(directory: &Path) -> io::Result<Weight> {
    let mut weight = Weight::default();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound && folder != directory => continue,
            other => other?,
        };
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let bytes = found.blocks() * 512;
            if entry.path().extension().is_some_and(|end| end == "spare") {
                weight.spare += bytes;
            } else {
                weight.used += bytes;
            }
        }
    }
    Ok(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: LOG-37
    #[test]
    fn levels_begin_at_80_and_90_percent_and_end_a_little_below() {
        use DiskLevel::{Full, Roomy, Tight};
        let level = |used, before| DiskLevel::of(used, 100, before);
        for (used, before, after) in [
            (79, Roomy, Roomy),
            (80, Roomy, Tight),
            (79, Tight, Tight),
            (77, Tight, Roomy),
            (89, Tight, Tight),
            (90, Tight, Full),
            (88, Full, Full),
            (87, Full, Tight),
            (77, Full, Roomy),
            (100, Roomy, Full),
        ] {
            assert_eq!(level(used, before), after, "{used} after {before:?}");
        }
    }

    #[test]
    fn spare_files_are_room_and_a_bound_counts_when_it_is_less_than_the_disk() {
        let files = Weight { used: 40, spare: 10 };
        let judge = |free, bytes_max| DiskUse::judge(files, free, bytes_max, DiskLevel::Roomy);
        assert_eq!(judge(50, None).level, DiskLevel::Roomy);
        assert_eq!(judge(50, None).capacity_bytes, 100);
        assert_eq!(judge(50, Some(50)).level, DiskLevel::Tight);
        assert_eq!(judge(50, Some(44)).level, DiskLevel::Full);
        assert_eq!(judge(50, Some(1_000)).capacity_bytes, 100);
        assert_eq!(judge(0, None).level, DiskLevel::Tight);
    }
}
