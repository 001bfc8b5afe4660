//! Why a run could not be made, and what went wrong while it was.

use std::io;

/// A run that did not come about.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The spec cannot work.
    #[error("{field}: {why}")]
    Spec {
        /// Name of the field.
        field: &'static str,
        /// What it must be.
        why: String,
    },
    /// The broker's name has no address.
    #[error("cannot resolve {host}")]
    Resolve {
        /// As it was asked for.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Threads, pollers or timers could not be had.
    #[error("cannot set up {what}")]
    Setup {
        /// Which of them.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Not every client could connect and subscribe, so there is nothing to measure.
    #[error("{failed} of {clients} clients could not connect to {host}:{port}: {first}")]
    Connect {
        /// How many failed.
        failed: u64,
        /// Of how many.
        clients: u64,
        /// As it was asked for.
        host: String,
        /// As it was asked for.
        port: u16,
        /// The first failure, in words.
        first: String,
    },
    /// The process that was to be watched cannot be.
    #[error("cannot read the figures of process {pid}")]
    Process {
        /// As it was asked for.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// A thread of ours died: our mistake.
    #[error("a generator thread panicked: {words}")]
    Panicked {
        /// Its last words.
        words: String,
    },
}

/// Things that go wrong on single connections; counted, and reported beside the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// TCP said no.
    ConnectFailed,
    /// No answer within the patience of the spec.
    ConnectTimeout,
    /// CONNACK said no.
    ConnectRefused,
    /// SUBACK said no, or granted less than asked for.
    SubscribeRefused,
    /// PUBACK, PUBREC or PUBCOMP carried an error.
    PublishRefused,
    /// The connection ended without a word.
    ConnectionLost,
    /// The broker sent DISCONNECT.
    Disconnected,
    /// Bytes that are no MQTT, or a packet that has no place here.
    Malformed,
    /// A message of this run reached a subscriber that did not ask for it.
    Misrouted,
    /// An acknowledgement nothing waited for.
    Unasked,
    /// A payload came back with other bytes than it left with.
    Altered,
    /// The broker never said that it has read all of a publisher's messages.
    Unread,
}

impl Fault {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::ConnectRefused,
        Self::SubscribeRefused,
        Self::PublishRefused,
        Self::ConnectionLost,
        Self::Disconnected,
        Self::Malformed,
        Self::Misrouted,
        Self::Unasked,
        Self::Altered,
        Self::Unread,
    ];

    /// A stable short name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectRefused => "connect_refused",
            Self::SubscribeRefused => "subscribe_refused",
            Self::PublishRefused => "publish_refused",
            Self::ConnectionLost => "connection_lost",
            Self::Disconnected => "disconnected",
            Self::Malformed => "malformed",
            Self::Misrouted => "misrouted",
            Self::Unasked => "unasked_acknowledgement",
            Self::Altered => "altered_payload",
            Self::Unread => "unread_messages",
        }
    }
}
