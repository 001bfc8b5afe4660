//! What can go wrong with the log, one variant per thing an owner or a reader answers differently.

use std::io;

/// An error of the message log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk refused. For a write or a sync the node stops: nothing may be guessed.
    #[error("cannot {action} {name}")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Retention has dropped these offsets; a reader may go on at `until`.
    #[error("offsets {from} to {until} have expired")]
    OffsetExpired {
        /// The first offset asked for that is gone.
        from: u64,
        /// The first offset that is there.
        until: u64,
    },
    /// An offset that nothing was committed at yet.
    #[error("offset {offset} is not written yet; the log ends at {end}")]
    NotYet {
        /// The offset asked for.
        offset: u64,
        /// The offset that comes next.
        end: u64,
    },
    /// A block does not hold what was written; the rows in between cannot be served.
    #[error("chunk {chunk} is damaged: offsets {first} to {last} cannot be read")]
    DamagedBlock {
        /// The chunk.
        chunk: u64,
        /// The first offset lost.
        first: u64,
        /// The last offset lost.
        last: u64,
    },
    /// A chunk on the list cannot be opened at all.
    #[error("chunk {chunk} with offsets {first} to {last} is damaged: {why}")]
    DamagedChunk {
        /// The chunk.
        chunk: u64,
        /// Its first offset, as the list says.
        first: u64,
        /// Its last offset, as the list says.
        last: u64,
        /// What does not agree.
        why: &'static str,
    },
    /// A manifest is not one, or contradicts itself.
    #[error("the list of chunks is damaged: {why}")]
    DamagedManifest {
        /// What does not agree.
        why: &'static str,
    },
    /// A chunk was sealed under a key that nobody gave us.
    #[error("no key of epoch {epoch}")]
    UnknownKey {
        /// The epoch of the key.
        epoch: u32,
    },
    /// A file of a later release.
    #[error("{name} has format {format}; this build reads up to {known}")]
    NewerFormat {
        /// The file.
        name: String,
        /// Its format.
        format: u16,
        /// Ours.
        known: u16,
    },
    /// Offsets are dense; something between was never handed over. The owner stops.
    #[error("offset {found} was appended where {expected} comes next")]
    Gap {
        /// The offset that comes next.
        expected: u64,
        /// The one that came.
        found: u64,
    },
    /// An offset was appended again with another content. The owner stops.
    #[error("offset {offset} was appended again, and differs")]
    Conflict {
        /// The offset.
        offset: u64,
    },
    /// A record over a limit, which the wire should not have let in.
    #[error("the record at offset {offset} has {bytes} bytes; {most} is the most")]
    TooLarge {
        /// Its offset.
        offset: u64,
        /// What it weighs.
        bytes: usize,
        /// The bound.
        most: usize,
    },
    /// More of something than its bound allows.
    #[error("too many {what}: {most} is the most")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The bound.
        most: usize,
    },
    /// A name that the schema does not have.
    #[error("there is no column {name}")]
    UnknownColumn {
        /// As asked.
        name: String,
    },
    /// The system gave no random bytes for a salt.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// Reader threads are stopping.
    #[error("the reader threads have stopped")]
    Stopped,
}

impl Error {
    pub(crate) fn disk(action: &'static str, name: impl Into<String>, source: io::Error) -> Self {
        Self::Disk { action, name: name.into(), source }
    }
}

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;
