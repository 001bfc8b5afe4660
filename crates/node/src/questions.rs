//! What somebody outside asks of the state, answered by the partition's owner between two entries.
//!
//! Asking costs the owner what the answer takes to make: nothing for one session, a walk over all
//! of the state for the digest. So these are for people and checkers, not for dashboards.

use std::sync::mpsc::SyncSender;

use quantumqtt_machine::SessionView;

use crate::partition::Partition;

/// The state at a place in the log, as one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDigest {
    /// The last entry that is in it.
    pub index: u64,
    /// Equal states have equal digests.
    pub digest: u128,
}

/// A question, and where its answer goes.
pub(crate) enum Question {
    /// The digest of the whole state.
    Digest(SyncSender<StateDigest>),
    /// The stored session of a client, if it has one.
    Session {
        /// Whose.
        client_id: String,
        /// To whom.
        answer: SyncSender<Option<SessionView>>,
    },
}

impl Question {
    /// Answer; whoever asked may have stopped waiting.
    pub(crate) fn answer(self, partition: &Partition) {
        match self {
            Self::Digest(answer) => {
                let (index, digest) = (partition.state_index(), partition.machine().digest());
                let _ = answer.send(StateDigest { index, digest });
            }
            Self::Session { client_id, answer } => {
                let _ = answer.send(partition.machine().session_view(&client_id));
            }
        }
    }
}
