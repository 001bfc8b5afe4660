//! Every bound of the reactor, with the relations between them.

/// Bounds an operator may set.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections of the whole reactor; more are closed right after accept.
    pub connections_max: usize,
    /// Connections from one address, an IPv6 network of 64 bits counting as one; None sets no bound
    /// of its own.
    pub connections_per_address_max: Option<usize>,
    /// How long a connection may take for its PROXY header, TLS and WebSocket handshake together.
    pub handshake_timeout_ms: u64,
    /// Bytes a connection may have waiting before its producers are told to stop.
    pub out_bytes_soft: usize,
    /// Bytes a connection may have waiting at all; one more and it is closed.
    pub out_bytes_max: usize,
}

#[cfg(test)]
impl Limits {
    /// For tests that are about one bound.
    pub(crate) fn unbounded() -> Self {
        Self {
            connections_max: usize::MAX,
            connections_per_address_max: None,
            handshake_timeout_ms: u64::MAX / 2,
            out_bytes_soft: usize::MAX,
            out_bytes_max: usize::MAX,
        }
    }
}

/// Sockets accepted per listener and turn, so that a flood cannot starve readable clients.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;
/// Reads per connection and turn, for the same reason.
pub(crate) const READS_PER_TURN: usize = 4;
/// The read buffer a shard shares among all its connections.
pub(crate) const READ_BUFFER_BYTES: usize = 64 * 1024;
/// The unread rest of a packet that is still cheap to copy in front of the next read.
pub(crate) const LEFTOVER_BYTES_CHEAP: usize = 16 * 1024;
/// Events taken from the kernel per poll.
pub(crate) const EVENTS_PER_POLL: usize = 1024;
/// Mails waiting at a shard before the others stop reading sockets.
pub(crate) const MAILS_HIGH_WATER: usize = 4096;
/// How long a closing socket may take to hear our last words before it is cut.
pub(crate) const LINGER_MS: u64 = 1_000;
/// Write buffers a shard keeps for reuse, and the largest it keeps.
pub(crate) const POOLED_BUFFERS_MAX: usize = 256;
pub(crate) const POOLED_BUFFER_BYTES_MAX: usize = 128 * 1024;
/// Bytes waiting for a socket that are sent before the turn's end, while they are still in cache.
pub(crate) const FLUSH_BYTES_EARLY: usize = 64 * 1024;
/// Wrapped bytes (encrypted, framed) gathered for one send.
pub(crate) const WRAPPED_BYTES_PER_SEND: usize = 64 * 1024;
/// Wrapped bytes the socket has not taken, answers of the layers included; a peer that makes more
/// of them without reading is cut off.
pub(crate) const UNSENT_BYTES_MAX: usize = 256 * 1024;
/// The smallest write buffer; all are powers of two.
pub(crate) const RING_BYTES_MIN: usize = 4 * 1024;
/// Listen backlog; the kernel caps it by `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;

const _: () = assert!(RING_BYTES_MIN.is_power_of_two());
const _: () = assert!(POOLED_BUFFER_BYTES_MAX >= RING_BYTES_MIN);
const _: () = assert!(LEFTOVER_BYTES_CHEAP * 2 <= READ_BUFFER_BYTES);
const _: () = assert!(UNSENT_BYTES_MAX > 2 * WRAPPED_BYTES_PER_SEND);
// What layers keep stands in front of the next read, which must find room behind it.
const _: () =
    assert!(quantumqtt_transport::Wrapping::KEPT_BYTES_MAX + 8 * 1024 <= READ_BUFFER_BYTES);

/// Certificates that are held against a new revocation list in one turn; one costs about 0.1 ms.
pub(crate) const REVIEWS_PER_TURN: usize = 32;
