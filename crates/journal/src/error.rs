//! What can go wrong, each with what, where and the remedy.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::keys::KeyError;

/// Where damage was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Sequence number of the segment.
    pub segment: u64,
    /// Where in the file.
    pub offset: u64,
    /// The first record that cannot be trusted, as far as it is known.
    pub lsn: u64,
    /// What did not hold.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, offset, lsn, reason } = self;
        write!(f, "segment {segment:016x}, offset {offset}, record {lsn}: {reason}")
    }
}

/// The journal cannot be opened, or stopped for good.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// An option is outside its bounds.
    #[error("option {option} is {value}, which is not {allowed}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What was asked.
        value: u64,
        /// What may be asked.
        allowed: String,
    },
    /// Somebody else has the directory.
    #[error("{path} is locked by another process")]
    Locked {
        /// The lock file.
        path: String,
    },
    /// The log was written by another node.
    #[error("{path} belongs to node {found}, this is node {wanted}")]
    ForeignNode {
        /// The segment.
        path: String,
        /// The node that wrote it.
        found: u64,
        /// Ours.
        wanted: u64,
    },
    /// The log was written under another key.
    #[error("{path} was written under key {found}, the key given is {given}")]
    WrongKey {
        /// The segment.
        path: String,
        /// Id of the key that wrote it.
        found: String,
        /// Id of the key at hand.
        given: String,
    },
    /// The log is newer than this program.
    #[error("{path} has format {found}, this program knows up to {known}")]
    NewerFormat {
        /// The file.
        path: String,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A key could not be had.
    #[error("no key for the log")]
    Key(#[source] Arc<KeyError>),
    /// Something below the durable watermark does not check out.
    #[error("the log is damaged at {0}")]
    Damaged(Damage),
    /// A checkpoint that the log relies on is missing or does not check out.
    #[error("checkpoint of group {group} at index {index} is unusable: {reason}")]
    Checkpoint {
        /// Whose.
        group: u64,
        /// Which.
        index: u64,
        /// Why.
        reason: String,
    },
    /// The disk said no; nothing after the last durable record counts.
    #[error("{what} failed on {path}")]
    Disk {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: String,
        /// What the disk said.
        #[source]
        source: Arc<io::Error>,
    },
    /// A group of that id exists, or none does.
    #[error("group {group} {problem}")]
    Group {
        /// Which.
        group: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The journal was stopped in order.
    #[error("the journal is stopped")]
    Stopped,
}

impl JournalError {
    pub(crate) fn disk(what: &'static str, path: &str, source: io::Error) -> Self {
        Self::Disk { what, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Whether the disk had no room: the one failure of a disk that ends by itself.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Disk { source, .. } if is_full(source))
    }

    /// How to go on.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Option { .. } => "give a value within the bounds",
            Self::Locked { .. } => {
                "stop the other broker on this data directory, or give this one its own"
            }
            Self::ForeignNode { .. } => {
                "point to the node's own data directory, or start with the node id that wrote it"
            }
            Self::WrongKey { .. } => {
                "put back the key file that was in use when this log was written; without it \
                 the log cannot be read"
            }
            Self::NewerFormat { .. } => "start the version that wrote it, or a later one",
            Self::Key(_) => "see the cause; the key file must be readable by this user alone",
            Self::Damaged(_) => {
                "nothing was overwritten: copy the directory away, look with `quantumqtt log \
                 verify`, then restore a backup or rebuild this node from its peers"
            }
            Self::Checkpoint { .. } => {
                "nothing was overwritten: restore the checkpoint from a backup, or rebuild this \
                 node from its peers"
            }
            Self::Disk { source, .. } if is_full(source) => "make room on the disk",
            Self::Disk { .. } => {
                "look at the disk and the kernel's log; then restart: everything acknowledged \
                 before is recovered"
            }
            Self::Group { .. } => "ask for the groups the journal recovered",
            Self::Stopped => "open it again",
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A proposal or a stage that cannot be taken now. Nothing has happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another node leads, or nobody does yet.
    #[error("this node does not lead group {group}")]
    NotLeader {
        /// Which group.
        group: u64,
        /// Who does, if that is known.
        leader: Option<u64>,
    },
    /// The payload does not fit into a segment of the configured size.
    #[error("an entry of {bytes} bytes is more than {max}")]
    TooLarge {
        /// Asked.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
    /// Too much waits to be committed or written; wait for the next wake.
    #[error("group {group} has too much under way")]
    Busy {
        /// Which group.
        group: u64,
    },
    /// The disk is full; the journal goes on by itself once there is room.
    #[error("the disk of the log is full")]
    Full,
    /// The journal failed for good; `Journal::failure` tells why.
    #[error("the log has failed")]
    Failed,
    /// The group is quarantined; it takes no more writes.
    #[error("group {group} is quarantined")]
    Quarantined {
        /// Which group.
        group: u64,
    },
}

impl Refusal {
    /// Whether the same call may succeed later without anybody doing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::NotLeader { .. } | Self::Busy { .. } | Self::Full)
    }
}
