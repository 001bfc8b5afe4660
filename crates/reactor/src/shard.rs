//! The loop of one shard.
//!
//! A turn: wait for news → accept → take mail → serve readable sockets → deadlines → the service's
//! turn end → close what is over → flush what is dirty → ring whom we wrote to. The clock is read
//! once. Sockets that still have bytes after their share wait for the next turn, which then does
//! not sleep.
//!
//! Sockets are registered once, edge-triggered for both directions, and never re-armed. A short
//! read means that the kernel's buffer is empty, except when the peer has closed: then the end of
//! the stream is read too.

use std::io::{self, Read};
use std::net::{IpAddr, Shutdown};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Token};
use quantumqtt_transport::{Fault, Scratch, WrappingSpec};

use crate::clock::Clock;
use crate::connections::{ConnectionId, Connections, Slot};
use crate::limits::{
    EVENTS_PER_POLL, LEFTOVER_BYTES_CHEAP, LINGER_MS, READ_BUFFER_BYTES, READS_PER_TURN,
};
use crate::listener::{AcceptRound, Listener, ListenerSpec, accept_some};
use crate::mailbox::Envelope;
use crate::outlet::{Flushed, Outlet};
use crate::reactor::Shared;
use crate::service::{Accepted, CloseCause, Consumed, Deadline, Service, Then, Turn, TurnedAway};
use crate::stream::{Peer, Stream};
use crate::wheel::Wheel;
use crate::wrapped::Wrapped;

pub(crate) const WAKER: Token = Token(usize::MAX);
/// How long to leave a listener alone when the process has no descriptors left.
const STARVED_MS: u64 = 100;

/// What a shard counts; written by its own thread only, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused_full: AtomicU64,
    pub(crate) starved: AtomicU64,
    pub(crate) bytes_received: AtomicU64,
    pub(crate) bytes_sent: AtomicU64,
    pub(crate) tls_handshakes: AtomicU64,
    pub(crate) tls_resumptions: AtomicU64,
    pub(crate) turns: AtomicU64,
}

/// Add to a counter that has one writer: cheaper than an atomic read-modify-write.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

struct Door {
    listener: Listener,
    /// Position in the spec.
    index: usize,
    /// Somebody may be waiting; not before this time.
    knock_ms: Option<u64>,
}

pub(crate) struct Shard<S: Service> {
    pub(crate) poll: Poll,
    clock: Clock,
    pub(crate) shared: Arc<Shared>,
    pub(crate) turn: Turn<S>,
    pub(crate) service: S,
    pub(crate) connections: Connections<S>,
    doors: Vec<Door>,
    wheel: Wheel,
    /// Sockets that may have bytes for us.
    ready: Vec<ConnectionId>,
    pub(crate) read_buffer: Box<[u8]>,
    /// What this shard must know of each listener, by position in the spec.
    pub(crate) listeners: Vec<ListenerSpec>,
    /// Plaintext of the connection at hand, and other buffers that layers use in passing.
    pub(crate) plain: Vec<u8>,
    pub(crate) chunk: Vec<u8>,
    pub(crate) gathered: Vec<u8>,
    pub(crate) scratch: Scratch,
    mail: Vec<Envelope<S::Mail>>,
    due: Vec<ConnectionId>,
    /// Connections whose certificates are still to be held against a new revocation list.
    pub(crate) to_review: Vec<ConnectionId>,
    draining: bool,
    stopping: bool,
}

impl<S: Service> Shard<S> {
    pub(crate) fn new(
        poll: Poll,
        clock: Clock,
        shared: Arc<Shared>,
        turn: Turn<S>,
        service: S,
        bound: Vec<(usize, Listener)>,
        listeners: Vec<ListenerSpec>,
    ) -> io::Result<Self> {
        let mut doors = Vec::new();
        for (index, mut listener) in bound {
            let token = Token(WAKER.0 - 1 - doors.len());
            listener.register(poll.registry(), token)?;
            doors.push(Door { listener, index, knock_ms: None });
        }
        let connections = Connections::new(turn.shard);
        Ok(Self {
            wheel: Wheel::new(clock.now_ms()),
            poll,
            clock,
            shared,
            turn,
            service,
            connections,
            doors,
            ready: Vec::new(),
            read_buffer: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
            listeners,
            plain: Vec::new(),
            chunk: Vec::new(),
            gathered: Vec::new(),
            scratch: Scratch::default(),
            mail: Vec::new(),
            due: Vec::new(),
            to_review: Vec::new(),
            draining: false,
            stopping: false,
        })
    }

    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_POLL);
        while !self.stopping {
            let timeout = self.sleep_for();
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                panic!("epoll_wait failed: {error}");
            }
            self.turn.now_ms = self.clock.now_ms();
            for event in &events {
                self.note(event);
            }
            self.take_turn();
        }
        self.cut_everything();
    }

    fn take_turn(&mut self) {
        self.open_doors();
        self.take_mail();
        self.serve_resumed();
        if !self.turn.must_wait_for_peers() {
            self.serve_ready();
        }
        self.serve_deadlines();
        self.review_some();
        self.service.on_turn_end(&mut self.turn, &mut self.connections);
        self.close_what_is_over();
        self.flush_dirty();
        // Flushing may find broken sockets; their goodbye must not wait for the next event.
        self.close_what_is_over();
        self.flush_dirty();
        self.turn.mailboxes.ring_posted();
        count(&self.counters().turns, 1);
        if self.draining && self.connections.is_empty() {
            self.shared.drained.note(self.turn.shard);
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters[usize::from(self.turn.shard)]
    }

    fn sleep_for(&mut self) -> Option<Duration> {
        if self.turn.has_unfinished_work()
            || !self.to_review.is_empty()
            || !self.ready.is_empty() && !self.turn.must_wait_for_peers()
        {
            return Some(Duration::ZERO);
        }
        let doors = self.doors.iter().filter_map(|door| door.knock_ms).min();
        let wake_ms = [self.wheel.next_due_ms(), self.service.next_wake_ms(), doors];
        let wake_ms = wake_ms.into_iter().flatten().min()?;
        Some(Duration::from_millis(wake_ms.saturating_sub(self.clock.now_ms())))
    }

    /// Remember what the kernel said; serving comes later, in a fair order.
    fn note(&mut self, event: &Event) {
        let token = event.token();
        if token == WAKER {
            return;
        }
        if token.0 > usize::MAX / 2 {
            self.doors[WAKER.0 - 1 - token.0].knock_ms = Some(self.turn.now_ms);
            return;
        }
        let id = ConnectionId::from_bits(token.0 as u64);
        let Some(slot) = self.connections.slot_mut(id) else {
            return;
        };
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            slot.readable = true;
            slot.read_closed |= event.is_read_closed() || event.is_error();
            if !slot.queued && !slot.paused {
                slot.queued = true;
                self.ready.push(id);
            }
        }
        if !event.is_writable() {
            return;
        }
        if let Some(wrapped) = &slot.wrapped {
            if slot.outlet.is_blocked() || wrapped.has_unsent() {
                self.turn.wrapped.push(id);
            }
        } else if slot.outlet.is_blocked() {
            match slot.outlet.flush_unblocked(&mut self.turn.pool, self.turn.now_ms) {
                Flushed::Broken => self.turn.closing.push((id, CloseCause::SocketError)),
                Flushed::Empty(bytes) | Flushed::Blocked(bytes) => {
                    if let Some(connection) = slot.connection.as_mut().filter(|_| bytes > 0) {
                        self.service.on_room(&mut self.turn, connection);
                    }
                    count(&self.counters().bytes_sent, bytes as u64);
                }
            }
        }
    }

    fn open_doors(&mut self) {
        let now_ms = self.turn.now_ms;
        for at in 0..self.doors.len() {
            if self.doors[at].knock_ms.is_none_or(|knock_ms| knock_ms > now_ms) {
                continue;
            }
            let mut arrived = Vec::new();
            let door = &mut self.doors[at];
            let round = accept_some(&door.listener, |stream, peer| arrived.push((stream, peer)));
            let index = door.index;
            door.knock_ms = match round {
                AcceptRound::Drained => None,
                AcceptRound::More => Some(now_ms),
                AcceptRound::Starved => Some(now_ms + STARVED_MS),
            };
            if round == AcceptRound::Starved {
                count(&self.counters().starved, 1);
            }
            for (stream, peer) in arrived {
                self.place(stream, peer, index);
            }
        }
    }

    /// Strict rotation over all shards, whichever door it came through [DP-01].
    fn place(&mut self, stream: Stream, peer: Peer, listener: usize) {
        let shard = self.shared.next_shard();
        if shard == self.turn.shard {
            self.adopt(stream, peer, listener);
        } else {
            self.turn.mailboxes.post(shard, Envelope::Socket(stream, peer, listener));
        }
    }

    fn adopt(&mut self, mut stream: Stream, peer: Peer, listener: usize) {
        let full = self.shared.connections() >= self.turn.limits.connections_max;
        let Some(id) = self.connections.next_id().filter(|_| !full && !self.draining) else {
            count(&self.counters().refused_full, 1);
            return;
        };
        let counted = match self.enter(peer, listener) {
            Ok(counted) => counted,
            Err(fault) => {
                return self.service.on_fault(&mut self.turn, TurnedAway { peer, listener, fault });
            }
        };
        let token = Token(id.to_bits() as usize);
        if stream.register(self.poll.registry(), token).is_err() {
            return self.leave(listener, counted.as_deref());
        }
        let accepted_ms = self.turn.now_ms;
        let wrapped = self.wrap(listener, peer, accepted_ms);
        let Ok(wrapped) = wrapped else {
            return self.leave(listener, counted.as_deref());
        };
        let outbound = S::Outbound::default();
        let mut outlet = Outlet::new(id, stream.as_raw_fd(), self.turn.limits, outbound);
        if wrapped.is_some() {
            outlet = outlet.wrapped();
        }
        let outlet = Arc::new(outlet);
        let connection = if wrapped.is_some() {
            let until_ms = accepted_ms + self.turn.limits.handshake_timeout_ms;
            self.turn.deadlines.push((id, until_ms));
            None
        } else {
            let outlet = Arc::clone(&outlet);
            let accepted = Accepted { id, outlet, peer, listener, user: None, accepted_ms };
            Some(self.service.on_open(&mut self.turn, accepted))
        };
        let slot = Slot {
            stream,
            outlet,
            opening: wrapped.is_some(),
            connection,
            wrapped: wrapped.map(Box::new),
            counted,
            leftover: Vec::new(),
            readable: false,
            read_closed: false,
            paused: false,
            queued: false,
            listener: listener as u16,
            deadline_ms: u64::MAX,
            scheduled_ms: u64::MAX,
        };
        self.connections.insert(id, slot);
        self.note_connection_count();
        count(&self.counters().accepted, 1);
        self.apply_deadlines();
    }

    /// The layers of a newcomer; None where MQTT lies bare on the socket.
    fn wrap(&self, listener: usize, peer: Peer, now_ms: u64) -> Result<Option<Wrapped>, Fault> {
        let spec = &self.listeners[listener].wrapping;
        if spec.is_bare() {
            return Ok(None);
        }
        let tls = self.shared.contexts[listener].lock().clone();
        Wrapped::new(&WrappingSpec { tls, ..spec.clone() }, peer, now_ms).map(Some)
    }

    /// Count a newcomer for its listener and its address, unless there is no room for it.
    fn enter(&self, peer: Peer, listener: usize) -> Result<Option<Box<IpAddr>>, Fault> {
        let spec = &self.listeners[listener];
        if spec.wrapping.proxy.is_some()
            && let Peer::Address(address) = peer
            && !spec.proxies.iter().any(|proxy| proxy.contains(address.ip()))
        {
            return Err(Fault::ProxyUntrusted);
        }
        let count = &self.shared.per_listener[listener];
        if count.fetch_add(1, Ordering::Relaxed) >= spec.connections_max {
            count.fetch_sub(1, Ordering::Relaxed);
            return Err(Fault::ListenerFull);
        }
        // Behind a proxy the address that counts is still to come.
        if spec.wrapping.proxy.is_some() {
            return Ok(None);
        }
        let counted = self.enter_address(peer).transpose();
        if counted.is_err() {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        counted
    }

    /// Count a connection for its address; None where addresses are not counted.
    pub(crate) fn enter_address(&self, peer: Peer) -> Option<Result<Box<IpAddr>, Fault>> {
        let addresses = self.shared.addresses.as_ref()?;
        let address = peer.counted_as()?;
        let has_room = addresses.enter(address);
        Some(if has_room { Ok(Box::new(address)) } else { Err(Fault::AddressFull) })
    }

    fn leave(&self, listener: usize, counted: Option<&IpAddr>) {
        self.shared.per_listener[listener].fetch_sub(1, Ordering::Relaxed);
        if let (Some(addresses), Some(&address)) = (&self.shared.addresses, counted) {
            addresses.leave(address);
        }
    }

    fn note_connection_count(&self) {
        self.counters().connections.store(self.connections.len(), Ordering::Relaxed);
    }

    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.turn.mailboxes.take(self.turn.shard, &mut mail);
        for envelope in mail.drain(..) {
            match envelope {
                Envelope::Mail(mail) => {
                    self.service.on_mail(&mut self.turn, &mut self.connections, mail);
                }
                Envelope::Socket(stream, peer, listener) => self.adopt(stream, peer, listener),
                Envelope::Close(id, cause) => self.turn.closing.push((id, cause)),
                Envelope::Flush(id) => self.turn.wrapped.push(id),
                Envelope::Review(listener) => self.begin_review(listener),
                Envelope::Drain => self.drain(),
                Envelope::Stop => self.stopping = true,
            }
        }
        self.mail = mail;
        self.apply_deadlines();
    }

    fn drain(&mut self) {
        self.draining = true;
        self.doors.clear();
        self.service.on_drain(&mut self.turn, &mut self.connections);
        for id in self.connections.ids() {
            if self.connections.slot_mut(id).is_some_and(|slot| slot.opening) {
                self.turn.closing.push((id, CloseCause::Stopping));
            }
        }
    }

    fn serve_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        for id in ready.drain(..) {
            if let Some(slot) = self.connections.slot_mut(id) {
                slot.queued = false;
                self.serve(id);
            }
        }
        // Sockets with bytes left were queued again while we served.
        std::mem::swap(&mut self.ready, &mut ready);
        self.ready.append(&mut ready);
    }

    /// Read and hand over, up to the turn's share.
    fn serve(&mut self, id: ConnectionId) {
        for _ in 0..READS_PER_TURN {
            let Some(slot) = self.connections.slot_mut(id) else {
                return;
            };
            if slot.paused || !slot.readable {
                return;
            }
            if slot.wrapped.is_some() {
                if self.serve_wrapped(id) {
                    continue;
                }
                return;
            }
            match read_once(slot, &mut self.read_buffer) {
                ReadOnce::Bytes { total, fresh } => {
                    count(
                        &self.shared.counters[usize::from(self.turn.shard)].bytes_received,
                        fresh as u64,
                    );
                    self.hand_over(id, Source::Read(total));
                }
                ReadOnce::Empty => return,
                ReadOnce::End => return self.turn.closing.push((id, CloseCause::PeerClosed)),
                ReadOnce::Broken => return self.turn.closing.push((id, CloseCause::SocketError)),
            }
        }
        let Some(slot) = self.connections.slot_mut(id) else {
            return;
        };
        if slot.readable && !slot.paused && !slot.queued {
            slot.queued = true;
            self.ready.push(id);
        }
    }

    /// Give the service what has come: `leftover` if it holds anything, else what `source` says.
    /// False when the connection is over.
    pub(crate) fn hand_over(&mut self, id: ConnectionId, source: Source) -> bool {
        let Some(slot) = self.connections.slot_mut(id) else {
            return false;
        };
        let Some(connection) = slot.connection.as_mut() else {
            slot.leftover.clear(); // lingering: nobody listens any more
            return false;
        };
        let in_leftover = !slot.leftover.is_empty();
        let fresh = match source {
            _ if in_leftover => &[],
            Source::Read(total) => &self.read_buffer[..total],
            Source::Plain => &self.plain[..],
        };
        let bytes = if in_leftover { &slot.leftover[..] } else { fresh };
        let Consumed { bytes: used, then } =
            self.service.on_bytes(&mut self.turn, connection, bytes);
        if in_leftover {
            if used == slot.leftover.len() {
                slot.leftover = Vec::new(); // nothing held while idle
            } else {
                slot.leftover.drain(..used);
            }
        } else {
            slot.leftover.extend_from_slice(&fresh[used..]);
        }
        let goes_on = !matches!(then, Then::Close(_));
        match then {
            Then::Continue => {}
            Then::Pause => slot.paused = true,
            Then::Close(cause) => {
                slot.paused = true;
                self.turn.closing.push((id, cause));
            }
        }
        self.apply_deadlines();
        goes_on
    }

    fn serve_resumed(&mut self) {
        for id in std::mem::take(&mut self.turn.resumed) {
            let Some(slot) = self.connections.slot_mut(id) else {
                continue;
            };
            if !slot.paused {
                continue;
            }
            slot.paused = false;
            // Whole packets may wait in `leftover` although the kernel has nothing new.
            if !slot.leftover.is_empty() {
                self.hand_over(id, Source::Read(0));
            }
            let Some(slot) = self.connections.slot_mut(id) else {
                continue;
            };
            if slot.readable && !slot.paused && !slot.queued {
                slot.queued = true;
                self.ready.push(id);
            }
        }
    }

    pub(crate) fn apply_deadlines(&mut self) {
        for at in 0..self.turn.deadlines.len() {
            let (id, at_ms) = self.turn.deadlines[at];
            if let Some(slot) = self.connections.slot_mut(id) {
                slot.deadline_ms = at_ms;
                if at_ms < slot.scheduled_ms {
                    slot.scheduled_ms = self.wheel.insert(id, at_ms);
                }
            }
        }
        self.turn.deadlines.clear();
    }

    fn serve_deadlines(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(self.turn.now_ms, &mut due);
        for id in due.drain(..) {
            let Some(slot) = self.connections.slot_mut(id) else {
                continue;
            };
            slot.scheduled_ms = u64::MAX;
            if slot.deadline_ms <= self.turn.now_ms {
                slot.deadline_ms = u64::MAX;
                let Some(connection) = slot.connection.as_mut() else {
                    if slot.opening {
                        let cause = CloseCause::Layer(Fault::HandshakeTimeout);
                        self.turn.closing.push((id, cause));
                    } else {
                        self.cut(id); // it lingered long enough
                    }
                    continue;
                };
                match self.service.on_deadline(&mut self.turn, connection) {
                    Deadline::At(at_ms) => slot.deadline_ms = at_ms,
                    Deadline::None => {}
                    Deadline::Close(cause) => self.turn.closing.push((id, cause)),
                }
            }
            if slot.deadline_ms != u64::MAX {
                slot.scheduled_ms = self.wheel.insert(id, slot.deadline_ms);
            }
        }
        self.due = due;
        self.apply_deadlines();
    }

    fn close_what_is_over(&mut self) {
        while let Some((id, cause)) = self.turn.closing.pop() {
            let Some(slot) = self.connections.slot_mut(id) else {
                continue;
            };
            let connection = slot.connection.take();
            if connection.is_none() && !std::mem::take(&mut slot.opening) {
                // Lingering, and now the peer has closed too.
                self.cut(id);
                continue;
            }
            let never_was = slot.wrapped.as_ref().filter(|_| connection.is_none());
            let turned_away = never_was.map(|wrapped| (wrapped.peer(), usize::from(slot.listener)));
            self.part(id, cause);
            match (connection, turned_away, cause) {
                (Some(connection), ..) => {
                    self.service.on_closed(&mut self.turn, connection, cause);
                }
                (None, Some((peer, listener)), CloseCause::Layer(fault)) => {
                    self.service.on_fault(&mut self.turn, TurnedAway { peer, listener, fault });
                }
                // It went before it had said anything: nobody's business.
                (None, ..) => {}
            }
        }
        self.apply_deadlines();
    }

    /// Say the last words and let the socket go, politely where the peer may still listen.
    fn part(&mut self, id: ConnectionId, cause: CloseCause) {
        let last_words = self.say_last_words(id, cause);
        let Some(slot) = self.connections.slot_mut(id) else {
            return;
        };
        slot.outlet.close(&mut self.turn.pool);
        // Nothing can come behind a peer's last word: there is nothing to read that a reset could
        // answer. What lies unread already is another matter, and layers have a goodbye of theirs.
        let may_speak = match cause {
            CloseCause::PeerClosed | CloseCause::SocketError => false,
            CloseCause::PeerDone(_) => slot.readable || slot.wrapped.is_some(),
            CloseCause::Layer(_) | CloseCause::Service(_) | CloseCause::Stopping => true,
        };
        let polite = may_speak
            && matches!(last_words, Flushed::Empty(_))
            && slot.stream.shutdown(Shutdown::Write).is_ok();
        if !polite {
            return self.cut(id);
        }
        // Closing with unread bytes sends a reset, which can overtake our last words.
        slot.paused = false;
        slot.leftover = Vec::new();
        self.turn.deadlines.push((id, self.turn.now_ms + LINGER_MS));
        if slot.readable && !slot.queued {
            slot.queued = true;
            self.ready.push(id);
        }
    }

    fn say_last_words(&mut self, id: ConnectionId, cause: CloseCause) -> Flushed {
        match self.connections.slot_mut(id) {
            Some(slot) if slot.wrapped.is_some() => self.say_wrapped_goodbye(id, cause),
            Some(slot) => slot.outlet.flush(&mut self.turn.pool, self.turn.now_ms),
            None => Flushed::Broken,
        }
    }

    /// Let the socket go at once.
    fn cut(&mut self, id: ConnectionId) {
        if let Some(slot) = self.connections.remove(id) {
            slot.outlet.close(&mut self.turn.pool);
            // Dropping the descriptor deregisters it too. Late news finds a dead generation.
            self.leave(usize::from(slot.listener), slot.counted.as_deref());
            self.note_connection_count();
        }
    }

    fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.turn.dirty);
        for outlet in dirty.drain(..) {
            self.turn.flush(&outlet);
        }
        self.turn.dirty = dirty;
        for id in std::mem::take(&mut self.turn.wrapped) {
            self.flush_wrapped(id);
        }
        let sent = std::mem::take(&mut self.turn.bytes_sent);
        count(&self.counters().bytes_sent, sent);
    }

    fn cut_everything(&mut self) {
        for id in self.connections.ids() {
            let slot = self.connections.slot_mut(id);
            if let Some(connection) = slot.and_then(|slot| slot.connection.take()) {
                self.service.on_closed(&mut self.turn, connection, CloseCause::Stopping);
            }
            self.cut(id);
        }
        self.turn.mailboxes.ring_posted();
        self.shared.drained.note(self.turn.shard);
    }
}

/// Where fresh bytes for the service lie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    /// So many at the start of the shared read buffer.
    Read(usize),
    /// In the buffer of unwrapped bytes.
    Plain,
}

enum ReadOnce {
    /// `total` bytes to hand over, of which `fresh` came now.
    Bytes {
        total: usize,
        fresh: usize,
    },
    Empty,
    End,
    Broken,
}

/// One read into the shared buffer, behind a small leftover; a large leftover grows in place.
fn read_once<S: Service>(slot: &mut Slot<S>, buffer: &mut [u8]) -> ReadOnce {
    let kept = slot.leftover.len();
    let in_place = kept > LEFTOVER_BYTES_CHEAP;
    let into = if in_place {
        slot.leftover.resize(kept + buffer.len(), 0);
        &mut slot.leftover[kept..]
    } else {
        buffer[..kept].copy_from_slice(&slot.leftover);
        &mut buffer[kept..]
    };
    let room = into.len();
    let result = slot.stream.read(into);
    let fresh = *result.as_ref().unwrap_or(&0);
    if in_place {
        slot.leftover.truncate(kept + fresh);
    } else if fresh > 0 {
        slot.leftover.clear();
    }
    match result {
        Ok(0) => ReadOnce::End,
        Ok(_) => {
            // A full buffer may have left bytes behind. After a short read the kernel has nothing,
            // and will tell of more; but an end it has told of already must be read too.
            slot.readable = fresh == room || slot.read_closed;
            ReadOnce::Bytes { total: kept + fresh, fresh }
        }
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => {
                slot.readable = false;
                ReadOnce::Empty
            }
            io::ErrorKind::Interrupted => ReadOnce::Empty,
            _ => ReadOnce::Broken,
        },
    }
}
