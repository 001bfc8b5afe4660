//! Checkpoints: the whole state of a partition as chunks of bytes, and back.
//!
//! ```text
//! begin_checkpoint(index)   marks the moment: the state after the entry at `index`
//! next_chunk(bytes_max)     the next sealed chunk, until `None`; apply goes on in between
//! Restorer                  takes the chunks in order and gives a machine, or says what is wrong
//! ```
//!
//! Rules:
//! - The chunks are the state of the moment of `begin_checkpoint`, to the byte, however much is
//!   applied before the last is taken (`copies.rs`).
//! - Same state, same index and same sizes asked for: same chunks, on every replica (DET-05).
//! - Nothing walks the whole state at once. `begin_checkpoint` writes one header; `next_chunk`
//!   writes about as many bytes as it is asked for; `apply` copies what it touches, once.
//! - A state is read back whole or not at all: number, order and sums of the chunks, the shape of
//!   every item, counts, soundness of every session, and at last the digest, made anew from what
//!   was read (LOG-27).
//!
//! A checkpoint holds messages that wait, are in flight or are retained, once each. Counters of
//! `statistics.rs` are observations of one process and are not in it.
//!
//! Sessions are not gathered in buckets; `docs/decisions/2026-11-19-checkpoint-by-record.md` says
//! why. Keeping chunks safe on disk, naming and signing them is the business of the log.

mod chunk;
mod copies;
mod read;
mod restore;
mod stream;

use bytes::Bytes;

use crate::machine::Machine;
use crate::session::Session;

pub use chunk::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNK_FORMAT, ChunkHeader};
pub(crate) use copies::{Copies, Next};
pub use restore::{RestoreError, RestoreFault, Restored, Restorer};
pub(crate) use stream::digest_of;

use chunk::{CHUNK_FORMAT_FIRST, body_bytes_max};
use stream::{SessionWalk, Stream};

/// What is handed out at present.
#[derive(Debug)]
enum Stage {
    Sessions,
    /// A session that is too large for one step, as it was.
    Session(Box<Session>, SessionWalk),
    Groups,
    Retained,
    Dedupe,
    /// Everything is written; the last chunk is due once it has been taken.
    End,
}

/// A checkpoint that is being handed out.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    index: u64,
    /// Of its chunks: the oldest that can say what the state holds.
    format: u8,
    next_number: u32,
    stage: Stage,
    stream: Stream,
}

impl Machine {
    /// Begins a checkpoint of the state as it is now, after the entry at `index`. One that was
    /// being handed out is given up.
    pub fn begin_checkpoint(&mut self, index: u64) {
        self.set_copying(true);
        let mut stream = Stream::new();
        stream.header(self);
        let format = if self.dedupe.is_empty() { CHUNK_FORMAT_FIRST } else { CHUNK_FORMAT };
        let stage = Stage::Sessions;
        let checkpoint = Checkpoint { index, format, next_number: 0, stage, stream };
        self.checkpoint = Some(Box::new(checkpoint));
    }

    /// The next chunk of the checkpoint, at most `bytes_max` bytes of it (within
    /// [`CHUNK_BYTES_MIN`] and [`CHUNK_BYTES_MAX`]); `None` after the last, or if none was begun.
    pub fn next_chunk(&mut self, bytes_max: usize) -> Option<Bytes> {
        let mut checkpoint = self.checkpoint.take()?;
        let body_bytes = body_bytes_max(bytes_max);
        while checkpoint.stream.len() < body_bytes && self.write_step(&mut checkpoint) {}
        let is_last = checkpoint.stream.len() == 0;
        if is_last {
            self.checkpoint_digest = Some(checkpoint.stream.digest());
            checkpoint.stream.end(checkpoint.format);
        }
        let header = ChunkHeader {
            partition: self.partition,
            index: checkpoint.index,
            number: checkpoint.next_number,
            is_last,
        };
        let format = checkpoint.format;
        let chunk = header.seal_with(format, |out| checkpoint.stream.take(body_bytes, out));
        checkpoint.next_number += 1;
        if !is_last {
            self.checkpoint = Some(checkpoint);
        }
        Some(chunk)
    }

    /// The digest of the state in the checkpoint that was handed out last.
    pub fn checkpoint_digest(&self) -> Option<u128> {
        self.checkpoint_digest
    }

    /// The index of the checkpoint that is being handed out.
    pub fn checkpoint_index(&self) -> Option<u64> {
        self.checkpoint.as_ref().map(|checkpoint| checkpoint.index)
    }

    /// Gives up the checkpoint that is being handed out.
    pub fn abandon_checkpoint(&mut self) {
        self.checkpoint = None;
        self.set_copying(false);
    }

    fn set_copying(&mut self, is_copying: bool) {
        self.sessions.set_copying(is_copying);
        self.subscriptions.set_copying(is_copying);
        self.retained.set_copying(is_copying);
        self.dedupe.set_copying(is_copying);
    }

    /// Writes the next few items; false when all are written.
    fn write_step(&mut self, checkpoint: &mut Checkpoint) -> bool {
        let Checkpoint { stage, stream, .. } = checkpoint;
        match stage {
            Stage::Sessions => match self.sessions.take_copy() {
                Some(session) => *stage = Stage::Session(session, SessionWalk::default()),
                None => *stage = Stage::Groups,
            },
            Stage::Session(session, walk) => {
                if !walk.step(session, stream) {
                    *stage = Stage::Sessions;
                }
            }
            Stage::Groups => match self.subscriptions.take_copy() {
                Some(group) => stream.group(&group),
                None => *stage = Stage::Retained,
            },
            Stage::Retained => match self.retained.take_copy() {
                Some(message) => stream.retained(&message),
                None => *stage = Stage::Dedupe,
            },
            Stage::Dedupe => match self.dedupe.take_copy() {
                Some(accepted) => stream.dedupe(&accepted),
                None => *stage = Stage::End,
            },
            Stage::End => return false,
        }
        true
    }
}
