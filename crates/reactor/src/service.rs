//! The seam between sockets and meaning: what a shard asks of the protocol that runs on it.

use std::fmt;
use std::sync::Arc;

use quantumqtt_transport::Fault;

use crate::connections::{ConnectionId, Connections};
use crate::limits::{Limits, MAILS_HIGH_WATER};
use crate::mailbox::{Envelope, Mailboxes};
use crate::outlet::{Duty, Flushed, Outlet, OutletGuard};
use crate::ring::BufferPool;
use crate::stream::Peer;

/// A protocol running on one shard. All calls come from the shard's own thread.
pub trait Service: Send + Sized + 'static {
    /// What it keeps per connection; only the owning shard touches it.
    type Connection: Send;
    /// What it keeps beside a connection's unsent bytes; any shard may touch it, under the lock.
    type Outbound: Default + Send;
    /// What shards tell each other.
    type Mail: Send;

    /// A socket was accepted.
    fn on_open(
        &mut self,
        turn: &mut Turn<Self>,
        accepted: Accepted<Self::Outbound>,
    ) -> Self::Connection;

    /// Bytes arrived, the unread rest of the last call first.
    fn on_bytes(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Self::Connection,
        bytes: &[u8],
    ) -> Consumed;

    /// A socket that had taken no more for a while takes bytes again; some may still wait.
    fn on_room(&mut self, turn: &mut Turn<Self>, connection: &mut Self::Connection);

    /// The deadline set for a connection has passed.
    fn on_deadline(&mut self, turn: &mut Turn<Self>, connection: &mut Self::Connection)
    -> Deadline;

    /// Another shard (or this one) posted something.
    fn on_mail(
        &mut self,
        turn: &mut Turn<Self>,
        connections: &mut Connections<Self>,
        mail: Self::Mail,
    );

    /// All that was ready has been served; outlets are flushed after this.
    fn on_turn_end(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>);

    /// The node is leaving: say goodbye on every connection and close it.
    fn on_drain(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>);

    /// A connection ended, for whatever cause; nothing can be written to it any more.
    fn on_closed(&mut self, turn: &mut Turn<Self>, connection: Self::Connection, cause: CloseCause);

    /// The certificate a client came in by was revoked: say goodbye, and close it.
    fn on_revoked(&mut self, turn: &mut Turn<Self>, connection: &mut Self::Connection);

    /// A connection was over before it was one: the service never saw it.
    fn on_fault(&mut self, turn: &mut Turn<Self>, turned_away: TurnedAway);

    /// When `on_turn_end` wants to be called even if nothing happens, in node milliseconds.
    fn next_wake_ms(&self) -> Option<u64>;
}

/// A fresh connection, as the service first sees it.
#[derive(Debug)]
pub struct Accepted<O> {
    /// Its name for life.
    pub id: ConnectionId,
    /// Its write side.
    pub outlet: Arc<Outlet<O>>,
    /// Who is at the other end.
    pub peer: Peer,
    /// Which listener it came through, by position in the spec.
    pub listener: usize,
    /// Who its certificate says it is.
    pub user: Option<Box<str>>,
    /// When its socket was accepted: layers may have taken time since.
    pub accepted_ms: u64,
}

/// A connection that ended below the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnedAway {
    /// Who was at the other end.
    pub peer: Peer,
    /// Which listener it came through, by position in the spec.
    pub listener: usize,
    /// Why.
    pub fault: Fault,
}

/// How much of the bytes was used, and what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumed {
    /// Whole packets taken from the front.
    pub bytes: usize,
    /// What comes next.
    pub then: Then,
}

/// What a connection wants after its bytes were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// More bytes, when there are some.
    Continue,
    /// No bytes until [`Turn::resume_reads`].
    Pause,
    /// The end; what was written still goes out.
    Close(CloseCause),
}

/// What to do about a deadline that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Ask again at this time.
    At(u64),
    /// Never again.
    None,
    /// The connection is over.
    Close(CloseCause),
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseCause {
    /// The peer closed its side.
    PeerClosed,
    /// The socket broke while reading or writing.
    SocketError,
    /// A layer between socket and service broke.
    Layer(Fault),
    /// The service decided so; the number is its own reason.
    Service(u16),
    /// The peer has said its last word, says the service: it will send nothing more.
    PeerDone(u16),
    /// The reactor stops.
    Stopping,
}

/// What the service may do during a call; one per shard, alive as long as it.
pub struct Turn<S: Service> {
    pub(crate) shard: u16,
    pub(crate) now_ms: u64,
    pub(crate) limits: Limits,
    pub(crate) pool: BufferPool,
    pub(crate) dirty: Vec<Arc<Outlet<S::Outbound>>>,
    pub(crate) closing: Vec<(ConnectionId, CloseCause)>,
    pub(crate) resumed: Vec<ConnectionId>,
    /// Connections of this shard whose bytes must go through their layers.
    pub(crate) wrapped: Vec<ConnectionId>,
    pub(crate) deadlines: Vec<(ConnectionId, u64)>,
    pub(crate) mailboxes: Mailboxes<S::Mail>,
    /// Not yet counted.
    pub(crate) bytes_sent: u64,
}

impl<S: Service> Turn<S> {
    pub(crate) fn new(shard: u16, limits: Limits, mailboxes: Mailboxes<S::Mail>) -> Self {
        Self {
            shard,
            now_ms: 0,
            limits,
            pool: BufferPool::default(),
            dirty: Vec::new(),
            closing: Vec::new(),
            resumed: Vec::new(),
            wrapped: Vec::new(),
            deadlines: Vec::new(),
            mailboxes,
            bytes_sent: 0,
        }
    }

    /// Which shard this is.
    #[inline]
    pub fn shard(&self) -> u16 {
        self.shard
    }

    /// The time of this turn: read once, Unix milliseconds, never going backwards.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Write to a connection of any shard; it is flushed at the end of this turn.
    #[inline]
    pub fn write<R>(
        &mut self,
        outlet: &Arc<Outlet<S::Outbound>>,
        append: impl FnOnce(&mut OutletGuard<'_, S::Outbound>) -> R,
    ) -> R {
        let (result, duty) = outlet.append(&mut self.pool, self.now_ms, append);
        match duty {
            Duty::None => {}
            Duty::Flush => self.dirty.push(Arc::clone(outlet)),
            Duty::FlushNow => self.flush(outlet),
        }
        result
    }

    /// Send what waits for one socket.
    pub(crate) fn flush(&mut self, outlet: &Outlet<S::Outbound>) {
        if outlet.is_wrapped() {
            return self.flush_through_layers(outlet.id());
        }
        match outlet.flush(&mut self.pool, self.now_ms) {
            Flushed::Empty(bytes) | Flushed::Blocked(bytes) => self.bytes_sent += bytes as u64,
            Flushed::Broken => self.close(outlet.id(), CloseCause::SocketError),
        }
    }

    /// Leave the sending to the owner.
    #[cold]
    fn flush_through_layers(&mut self, id: ConnectionId) {
        if id.shard() == self.shard {
            self.wrapped.push(id);
        } else {
            self.mailboxes.post(id.shard(), Envelope::Flush(id));
        }
    }

    /// Close a connection of any shard after what was written to it has been tried.
    pub fn close(&mut self, id: ConnectionId, cause: CloseCause) {
        if id.shard() == self.shard {
            self.closing.push((id, cause));
        } else {
            self.mailboxes.post(id.shard(), Envelope::Close(id, cause));
        }
    }

    /// Tell another shard (or this one, next turn) something; it is rung once per turn.
    pub fn post(&mut self, shard: u16, mail: S::Mail) {
        self.mailboxes.post(shard, Envelope::Mail(mail));
    }

    /// Serve a paused connection of this shard again.
    pub fn resume_reads(&mut self, id: ConnectionId) {
        self.resumed.push(id);
    }

    /// Call `on_deadline` for a connection of this shard at `at_ms`, to the wheel's tick.
    pub fn set_deadline(&mut self, id: ConnectionId, at_ms: u64) {
        self.deadlines.push((id, at_ms));
    }

    /// Whether a call made after this turn's flush left something for the next one.
    pub(crate) fn has_unfinished_work(&self) -> bool {
        !(self.dirty.is_empty()
            && self.closing.is_empty()
            && self.resumed.is_empty()
            && self.wrapped.is_empty())
    }

    /// Whether some shard has more mail than it can chew; reads stop meanwhile.
    pub(crate) fn must_wait_for_peers(&self) -> bool {
        self.mailboxes.any_above(MAILS_HIGH_WATER, self.shard)
    }
}

#[expect(clippy::missing_fields_in_debug, reason = "buffers and inboxes say nothing to a reader")]
impl<S: Service> fmt::Debug for Turn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("shard", &self.shard).field("now_ms", &self.now_ms).finish()
    }
}
