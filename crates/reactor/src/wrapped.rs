//! Connections with layers between socket and service.
//!
//! Theory of operation. Layers are state machines over bytes (`quantumqtt-transport`); they belong
//! to the shard that owns the connection, and so does every send. Reading: what the socket delivers
//! goes through the layers into one plaintext buffer of the shard, and from there to the service as
//! if it had been read. The service sees a connection when all layers have agreed (`opening` until
//! then); one deadline holds for all of that, counted from accept. Writing: the outlet's plaintext
//! is taken in chunks, wrapped into a buffer of the shard and sent. Only what the socket did not
//! take stays with the connection, so an idle one holds its layers' state and no buffer.
//!
//! A PROXY header alone leaves nothing behind: the connection becomes a bare one.

use std::io::{self, Read, Write};
use std::sync::Arc;

use quantumqtt_transport::{Fault, Received, Scratch, Wrapping, WrappingSpec};

use crate::connections::ConnectionId;
use crate::limits::{
    LEFTOVER_BYTES_CHEAP, POOLED_BUFFER_BYTES_MAX, REVIEWS_PER_TURN, UNSENT_BYTES_MAX,
    WRAPPED_BYTES_PER_SEND,
};
use crate::outlet::{Flushed, Outlet};
use crate::ring::BufferPool;
use crate::service::{Accepted, CloseCause, Service};
use crate::shard::{Shard, Source, count};
use crate::stream::{Peer, Stream};

/// What a WebSocket hears when we close: over, and going away.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;

/// The layers of one connection and what the socket has not taken of their bytes.
#[derive(Debug)]
pub(crate) struct Wrapped {
    layers: Wrapping,
    out: Vec<u8>,
    /// The socket's other end, or whom the proxy named.
    peer: Peer,
    accepted_ms: u64,
    /// The peer said goodbye inside; its last packets may still wait for the service.
    is_over: bool,
}

impl Wrapped {
    pub(crate) fn new(spec: &WrappingSpec, peer: Peer, accepted_ms: u64) -> Result<Self, Fault> {
        let layers = Wrapping::new(spec)?;
        Ok(Self { layers, out: Vec::new(), peer, accepted_ms, is_over: false })
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether the socket has not taken all that was wrapped for it.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.out.is_empty()
    }
}

/// The buffers of a shard that a send uses.
struct Buffers<'a> {
    pool: &'a mut BufferPool,
    scratch: &'a mut Scratch,
    chunk: &'a mut Vec<u8>,
    gathered: &'a mut Vec<u8>,
}

impl Wrapped {
    /// Send all that waits, outlet included, as far as the socket takes it.
    fn send<O: Default>(
        &mut self,
        stream: &mut Stream,
        outlet: &Outlet<O>,
        buffers: &mut Buffers<'_>,
    ) -> Flushed {
        let mut out = std::mem::take(&mut self.out);
        if out.is_empty() {
            out = std::mem::take(buffers.gathered);
            out.clear();
        }
        let (mut at, mut sent) = (0, 0);
        let flushed = loop {
            if at == out.len() {
                out.clear();
                at = 0;
                if self.gather(outlet, buffers, &mut out).is_err() {
                    break Flushed::Broken;
                }
                if out.is_empty() {
                    break Flushed::Empty(sent);
                }
            }
            match stream.write(&out[at..]) {
                Ok(bytes) => {
                    at += bytes;
                    sent += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    break Flushed::Blocked(sent);
                }
                Err(_) => break Flushed::Broken,
            }
        };
        if matches!(flushed, Flushed::Blocked(_)) {
            out.drain(..at);
            self.out = out;
        } else if out.capacity() <= 2 * POOLED_BUFFER_BYTES_MAX {
            *buffers.gathered = out;
        }
        flushed
    }

    /// Wrap plaintext until a send is worth it.
    fn gather<O: Default>(
        &mut self,
        outlet: &Outlet<O>,
        buffers: &mut Buffers<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        while out.len() < WRAPPED_BYTES_PER_SEND {
            buffers.chunk.clear();
            let taken = outlet.take_waiting(buffers.pool, buffers.chunk, Wrapping::CHUNK_BYTES);
            if taken == 0 {
                return Ok(());
            }
            self.layers.wrap(buffers.chunk, buffers.scratch, out)?;
        }
        Ok(())
    }
}

impl<S: Service> Shard<S> {
    /// A listener has a new revocation list: look at everybody who came by it.
    pub(crate) fn begin_review(&mut self, listener: usize) {
        for id in self.connections.ids() {
            let slot = self.connections.slot_mut(id);
            if slot.is_some_and(|slot| usize::from(slot.listener) == listener) {
                self.to_review.push(id);
            }
        }
    }

    /// Look at some of them: a certificate is dear to verify, and others wait.
    pub(crate) fn review_some(&mut self) {
        let rest = self.to_review.len().saturating_sub(REVIEWS_PER_TURN);
        for id in self.to_review.drain(rest..) {
            let Some(slot) = self.connections.slot_mut(id) else { continue };
            let context = self.shared.contexts[usize::from(slot.listener)].lock().clone();
            let Some((wrapped, context)) = slot.wrapped.as_ref().zip(context) else { continue };
            if !wrapped.layers.is_revoked_by(&context) {
                continue;
            }
            if let Some(connection) = slot.connection.as_mut() {
                self.service.on_revoked(&mut self.turn, connection);
            } else {
                let cause = CloseCause::Layer(Fault::CertificateRevoked);
                self.turn.closing.push((id, cause));
            }
        }
    }

    /// One read through the layers; false when there is nothing to go on with.
    pub(crate) fn serve_wrapped(&mut self, id: ConnectionId) -> bool {
        let Some(slot) = self.connections.slot_mut(id) else {
            return false;
        };
        let Some(wrapped) = slot.wrapped.as_mut() else {
            return false;
        };
        if wrapped.is_over {
            slot.readable = false;
            self.turn.closing.push((id, CloseCause::PeerClosed));
            return false;
        }
        let kept = wrapped.layers.kept().len();
        self.read_buffer[..kept].copy_from_slice(wrapped.layers.kept());
        let room = self.read_buffer.len() - kept;
        let fresh = match slot.stream.read(&mut self.read_buffer[kept..]) {
            Ok(0) => {
                self.turn.closing.push((id, CloseCause::PeerClosed));
                return false;
            }
            Ok(fresh) => fresh,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    slot.readable = false;
                    return false;
                }
                io::ErrorKind::Interrupted => return true,
                _ => {
                    self.turn.closing.push((id, CloseCause::SocketError));
                    return false;
                }
            },
        };
        slot.readable = fresh == room || slot.read_closed;
        let is_lingering = slot.connection.is_none() && !slot.opening;
        count(&self.counters().bytes_received, fresh as u64);
        is_lingering || self.take_wrapped(id, kept + fresh)
    }

    /// Put the start of the read buffer through the layers, and what comes of it to the service.
    fn take_wrapped(&mut self, id: ConnectionId, total: usize) -> bool {
        let Some(slot) = self.connections.slot_mut(id) else {
            return false;
        };
        let Some(wrapped) = slot.wrapped.as_mut() else {
            return false;
        };
        // A large packet grows where it lies; a small leftover is cheap to copy in front.
        let grows_in_place = slot.leftover.len() > LEFTOVER_BYTES_CHEAP;
        let mut plain = if grows_in_place {
            std::mem::take(&mut slot.leftover)
        } else {
            let mut plain = std::mem::take(&mut self.plain);
            plain.clear();
            plain.extend_from_slice(&std::mem::take(&mut slot.leftover));
            plain
        };
        let bytes = &mut self.read_buffer[..total];
        let waited_for_peer = wrapped.layers.waits_for_peer();
        let received =
            wrapped.layers.receive(bytes, &mut self.scratch, &mut plain, &mut wrapped.out);
        if !wrapped.out.is_empty() {
            self.turn.wrapped.push(id);
        }
        if grows_in_place {
            slot.leftover = plain;
        } else {
            self.plain = plain;
        }
        let has_too_much = wrapped.out.len() > UNSENT_BYTES_MAX;
        let mut fault = match received {
            Received::Going if has_too_much => Some(Fault::TlsBroken),
            Received::Fault(fault) => Some(fault),
            Received::Ended => {
                wrapped.is_over = true;
                None
            }
            Received::Going => None,
        };
        if fault.is_none() && waited_for_peer {
            fault = self.learn_peer(id).err();
        }
        if fault.is_none() {
            self.open_if_agreed(id);
        }
        self.go_on_wrapped(id, fault)
    }

    fn go_on_wrapped(&mut self, id: ConnectionId, fault: Option<Fault>) -> bool {
        let Some(slot) = self.connections.slot_mut(id) else {
            return false;
        };
        let is_open = slot.connection.is_some();
        let has_bytes = !slot.leftover.is_empty() || !self.plain.is_empty();
        if is_open && has_bytes && !self.hand_over(id, Source::Plain) {
            return false;
        }
        self.plain.clear();
        if let Some(fault) = fault {
            self.turn.closing.push((id, CloseCause::Layer(fault)));
            return false;
        }
        if let Some(slot) = self.connections.slot_mut(id)
            && slot.wrapped.as_ref().is_some_and(|wrapped| wrapped.is_over)
        {
            // Looked at again once the service reads on: its last packets come first.
            slot.readable = true;
        }
        true
    }

    /// The PROXY header may have come: who it names takes the place of the proxy.
    fn learn_peer(&mut self, id: ConnectionId) -> Result<(), Fault> {
        let Some(slot) = self.connections.slot_mut(id) else {
            return Ok(());
        };
        let Some(wrapped) = slot.wrapped.as_mut().filter(|one| !one.layers.waits_for_peer()) else {
            return Ok(());
        };
        if let Some(address) = wrapped.layers.peer() {
            wrapped.peer = Peer::Address(address);
        }
        let peer = wrapped.peer;
        let counted = self.enter_address(peer).transpose()?;
        if let Some(slot) = self.connections.slot_mut(id) {
            slot.counted = counted;
        }
        Ok(())
    }

    /// All layers have agreed: the service may see the connection.
    fn open_if_agreed(&mut self, id: ConnectionId) {
        let Some(slot) = self.connections.slot_mut(id).filter(|slot| slot.opening) else {
            return;
        };
        let Some(wrapped) = slot.wrapped.as_mut().filter(|one| one.layers.is_open()) else {
            return;
        };
        slot.opening = false;
        let (peer, accepted_ms) = (wrapped.peer, wrapped.accepted_ms);
        let user = wrapped.layers.take_user();
        let resumed = wrapped.layers.tls_resumed();
        if wrapped.layers.is_bare()
            && let Some(outlet) = Arc::get_mut(&mut slot.outlet)
        {
            outlet.unwrap_layers();
            slot.wrapped = None;
        }
        let listener = usize::from(slot.listener);
        let outlet = Arc::clone(&slot.outlet);
        let accepted = Accepted { id, outlet, peer, listener, user, accepted_ms };
        let connection = self.service.on_open(&mut self.turn, accepted);
        if let Some(slot) = self.connections.slot_mut(id) {
            slot.connection = Some(connection);
        }
        if let Some(was_resumed) = resumed {
            count(&self.counters().tls_handshakes, 1);
            count(&self.counters().tls_resumptions, u64::from(was_resumed));
        }
        self.apply_deadlines();
    }

    /// Send what waits for a wrapped connection.
    pub(crate) fn flush_wrapped(&mut self, id: ConnectionId) {
        let Some((flushed, was_blocked)) = self.send_wrapped(id) else {
            return;
        };
        match flushed {
            Flushed::Broken => self.turn.closing.push((id, CloseCause::SocketError)),
            Flushed::Empty(bytes) | Flushed::Blocked(bytes) => {
                let connection = self.connections.get_mut(id);
                if let Some(connection) = connection.filter(|_| was_blocked && bytes > 0) {
                    self.service.on_room(&mut self.turn, connection);
                }
            }
        }
    }

    /// How the send went, and whether producers were held back before it.
    fn send_wrapped(&mut self, id: ConnectionId) -> Option<(Flushed, bool)> {
        let now_ms = self.turn.now_ms;
        let slot = self.connections.slot_mut(id)?;
        let wrapped = slot.wrapped.as_mut()?;
        let was_blocked = slot.outlet.begin_wrapped_flush(now_ms);
        let mut buffers = Buffers {
            pool: &mut self.turn.pool,
            scratch: &mut self.scratch,
            chunk: &mut self.chunk,
            gathered: &mut self.gathered,
        };
        let flushed = wrapped.send(&mut slot.stream, &slot.outlet, &mut buffers);
        let (sent, is_blocked) = match flushed {
            Flushed::Empty(sent) => (sent, false),
            Flushed::Blocked(sent) => (sent, true),
            Flushed::Broken => (0, false),
        };
        slot.outlet.end_wrapped_flush(sent > 0, is_blocked, now_ms);
        self.turn.bytes_sent += sent as u64;
        Some((flushed, was_blocked))
    }

    /// Send what waits and the last words of the layers.
    pub(crate) fn say_wrapped_goodbye(&mut self, id: ConnectionId, cause: CloseCause) -> Flushed {
        if cause == CloseCause::SocketError {
            return Flushed::Broken;
        }
        if !matches!(self.send_wrapped(id), Some((Flushed::Empty(_), _))) {
            return Flushed::Broken;
        }
        if let Some(slot) = self.connections.slot_mut(id)
            && let Some(wrapped) = slot.wrapped.as_mut()
        {
            let code = if cause == CloseCause::Stopping { GOING_AWAY } else { NORMAL };
            wrapped.layers.say_goodbye(code, &mut self.scratch, &mut wrapped.out);
        }
        self.send_wrapped(id).map_or(Flushed::Broken, |(flushed, _)| flushed)
    }
}
