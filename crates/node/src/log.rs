//! What stands between proposing an entry and applying it.

use std::collections::VecDeque;

use bytes::Bytes;

/// The log takes nothing more, for good: what it said until now is true, the rest is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogFailure {}

/// See the head of this file.
pub(crate) enum Log {
    /// Nothing is kept: what is proposed is committed.
    Memory(VecDeque<Bytes>),
}

impl Log {
    pub(crate) fn propose(&mut self, entry: Bytes) -> Result<(), LogFailure> {
        match self {
            Self::Memory(committed) => {
                committed.push_back(entry);
                Ok(())
            }
        }
    }

    pub(crate) fn advance(&mut self) -> Result<(), LogFailure> {
        match self {
            Self::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn next_committed(&mut self) -> Option<Bytes> {
        match self {
            Self::Memory(committed) => committed.pop_front(),
        }
    }
}
