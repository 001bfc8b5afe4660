//! Every bound of one partition's state, by name.
//!
//! Limits decide what `apply` does, so they are state: replicas and replays must use the same ones.
//! A machine starts with the limits it was created with and changes them only by a committed
//! `SetLimits`; a leader whose configuration differs proposes one.

/// What happens to a session whose backlog is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Overflow {
    /// The session ends: the only way to give up accepted messages that MQTT can express.
    #[default]
    ExpireSession = 0,
    /// The oldest queued messages make room.
    DropOldest = 1,
    /// The message that does not fit is not queued.
    DropNewest = 2,
}

impl Overflow {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::ExpireSession),
            1 => Some(Self::DropOldest),
            2 => Some(Self::DropNewest),
            _ => None,
        }
    }
}

/// The bounds of one partition. `Default` is the embedded profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages in flight per session, whatever the client would accept (SES-26). A change counts
    /// from a session's next connection on.
    pub window_max: u16,
    /// Messages waiting behind the window, per session (SES-21).
    pub queue_count_max: u32,
    /// Bytes of those messages, per session (SES-21).
    pub queue_bytes_max: u64,
    /// Filters per session; one more is refused with 0x97 (SUB-09).
    pub subscriptions_max: u32,
    /// Open inbound `QoS` 2 exchanges per session; one more is refused with 0x97 (QOS-15).
    pub received_max: u16,
    /// Bytes of all retained messages; a message that would pass it is refused (RET-06).
    pub retained_bytes_max: u64,
    /// What happens to a session whose backlog is full.
    pub overflow: Overflow,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window_max: 1024,
            queue_count_max: 1_000_000,
            queue_bytes_max: 1 << 30,
            subscriptions_max: 1_000_000,
            received_max: 4096,
            retained_bytes_max: 64 << 30,
            overflow: Overflow::ExpireSession,
        }
    }
}
