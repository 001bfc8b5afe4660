//! Reads what is at rest again, a piece at a time, while the journal runs (LOG-22).
//!
//! The owner paces it: a step reads one sealed segment or one checkpoint. Nothing here writes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::checkpoint::{CHECKPOINT_DIR, list_checkpoints, load};
use crate::disk::Disk;
use crate::error::{Damage, JournalError};
use crate::format::RecordHead;
use crate::keys::KeyProvider;
use crate::manifest::Signer;
use crate::reader::Record;
use crate::recovery::{KeyRing, Visitor, list_segments, load_header, load_segment, walk_segment};
use crate::segment::segment_path;

/// What one step looked at.
#[derive(Debug)]
pub struct ScrubStep {
    /// The file, or the manifest of the checkpoint.
    pub path: String,
    /// Bytes read.
    pub bytes: u64,
    /// What does not check out.
    pub damage: Option<JournalError>,
}

enum Piece {
    Segment { sequence: u64, next: u64 },
    Checkpoint { group: u64, index: u64 },
}

/// One pass over everything that was at rest when it began.
pub struct Scrub<'a> {
    disk: Arc<dyn Disk>,
    ring: KeyRing<'a>,
    signer: Signer,
    pieces: VecDeque<Piece>,
    total: usize,
}

impl<'a> Scrub<'a> {
    /// Plans a pass. The segment in use is left to the next one.
    pub fn begin(disk: Arc<dyn Disk>, keys: &'a dyn KeyProvider) -> Result<Self, JournalError> {
        let seed = keys.signing_seed().map_err(|why| JournalError::Key(why.into()))?;
        let sequences = list_segments(&*disk)?;
        let mut pieces: VecDeque<Piece> = sequences
            .windows(2)
            .map(|pair| Piece::Segment { sequence: pair[0], next: pair[1] })
            .collect();
        for (group, index) in list_checkpoints(&*disk)? {
            pieces.push_back(Piece::Checkpoint { group, index });
        }
        let total = pieces.len();
        Ok(Self { disk, ring: KeyRing::new(keys), signer: Signer::new(&seed), pieces, total })
    }

    /// Pieces read, and pieces there are.
    pub fn progress(&self) -> (usize, usize) {
        (self.total - self.pieces.len(), self.total)
    }

    /// Reads one piece; None when the pass is over.
    ///
    /// A piece that was given up meanwhile is passed over.
    pub fn step(&mut self) -> Option<ScrubStep> {
        loop {
            let piece = self.pieces.pop_front()?;
            let (path, outcome) = match piece {
                Piece::Segment { sequence, next } => {
                    (segment_path(sequence), self.segment(sequence, next))
                }
                Piece::Checkpoint { group, index } => {
                    let path = format!("{CHECKPOINT_DIR}/{group:016x}/{index:016x}.json");
                    (path, self.checkpoint(group, index))
                }
            };
            let (bytes, damage) = match outcome {
                Ok(bytes) => (bytes, None),
                Err(why) => (0, Some(why)),
            };
            // A segment that is recycled while it is read looks like damage; its name is gone then.
            if damage.is_some() && self.disk.open(&path).is_err() {
                continue;
            }
            return Some(ScrubStep { path, bytes, damage });
        }
    }

    fn segment(&mut self, sequence: u64, next: u64) -> Result<u64, JournalError> {
        let loaded = load_segment(&*self.disk, &mut self.ring, sequence, None)?;
        let next = load_header(&*self.disk, &mut self.ring, next)?;
        let keys = self.ring.epoch(loaded.header.key_epoch)?;
        let mut first = First { damage: None };
        let walked = walk_segment(&loaded, &keys, next.previous.as_ref(), &mut first);
        walked.map_err(JournalError::Damaged)?;
        match first.damage {
            Some(damage) => Err(JournalError::Damaged(damage)),
            None => Ok(loaded.bytes.len() as u64),
        }
    }

    fn checkpoint(&mut self, group: u64, index: u64) -> Result<u64, JournalError> {
        let checkpoint = load(&self.disk, &mut self.ring, &self.signer, group, index)?;
        checkpoint.verify()?;
        Ok(checkpoint.chunks().iter().map(|chunk| chunk.bytes).sum())
    }
}

/// Remembers the first record that is not authentic.
struct First {
    damage: Option<Damage>,
}

impl Visitor for First {
    fn record(&mut self, _: u64, _: Record) -> Result<(), Damage> {
        Ok(())
    }

    fn unauthentic(&mut self, _: &RecordHead, damage: Damage) -> Result<(), Damage> {
        self.damage.get_or_insert(damage);
        Ok(())
    }
}
