//! All shards together: bind, start, drain, stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::Poll;
use parking_lot::{Condvar, Mutex};
use quantumqtt_transport::TlsContext;

use crate::addresses::Addresses;
use crate::clock::Clock;
use crate::error::Error;
use crate::limits::Limits;
use crate::listener::{BoundListener, ListenerSpec, SocketFile, bind};
use crate::mailbox::{Envelope, Mailbox, Mailboxes};
use crate::service::{Service, Turn};
use crate::shard::{Counters, Shard, WAKER};
use crate::sync::Waker;
use crate::thread::{OnFailure, spawn};

/// The most shards a reactor can have; inbox notes are one bit per shard.
pub const SHARDS_MAX: u16 = 64;

/// What to start.
#[derive(Debug, Clone)]
pub struct ReactorSpec {
    /// Threads, 1 to [`SHARDS_MAX`].
    pub shards: u16,
    /// Where to listen.
    pub listeners: Vec<ListenerSpec>,
    /// Bounds.
    pub limits: Limits,
    /// The clock all shards read.
    pub clock: Clock,
}

/// What all shards share; read-mostly.
pub(crate) struct Shared {
    pub(crate) counters: Vec<Counters>,
    pub(crate) drained: Drained,
    /// Connections of each listener.
    pub(crate) per_listener: Vec<AtomicUsize>,
    /// What each encrypted listener shows and demands; looked at once per connection.
    pub(crate) contexts: Vec<Mutex<Option<Arc<TlsContext>>>>,
    /// Connections of each address, where that is bounded.
    pub(crate) addresses: Option<Addresses>,
    rotation: AtomicUsize,
}

impl Shared {
    pub(crate) fn next_shard(&self) -> u16 {
        (self.rotation.fetch_add(1, Ordering::Relaxed) % self.counters.len()) as u16
    }

    pub(crate) fn connections(&self) -> usize {
        self.counters.iter().map(|shard| shard.connections.load(Ordering::Relaxed)).sum()
    }
}

/// Which shards have no connection left since the drain began, one bit each.
#[derive(Default)]
pub(crate) struct Drained {
    shards: Mutex<u64>,
    changed: Condvar,
}

impl Drained {
    pub(crate) fn note(&self, shard: u16) {
        let mut shards = self.shards.lock();
        if *shards & 1 << shard == 0 {
            *shards |= 1 << shard;
            self.changed.notify_all();
        }
    }

    fn wait_all(&self, count: usize, until: Instant) -> bool {
        let all = u64::MAX >> (64 - count);
        let mut shards = self.shards.lock();
        while *shards & all != all {
            if self.changed.wait_until(&mut shards, until).timed_out() {
                return *shards & all == all;
            }
        }
        true
    }
}

/// Sums over all shards at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Open sockets.
    pub connections: u64,
    /// Sockets ever accepted.
    pub accepted: u64,
    /// Sockets closed at once because `connections_max` was reached.
    pub refused_full: u64,
    /// Times the kernel had no descriptor for a new socket.
    pub starved: u64,
    /// Bytes read from sockets.
    pub bytes_received: u64,
    /// Bytes written to sockets.
    pub bytes_sent: u64,
    /// TLS handshakes that were completed, resumptions included.
    pub tls_handshakes: u64,
    /// Those that resumed an older session.
    pub tls_resumptions: u64,
    /// Turns of all loops.
    pub turns: u64,
}

/// The running shards. Dropping it stops them.
pub struct Reactor<S: Service> {
    /// Taken by the first who stops.
    threads: Mutex<Vec<JoinHandle<()>>>,
    shared: Arc<Shared>,
    mailboxes: Arc<[Mailbox<S::Mail>]>,
    listeners: Vec<BoundListener>,
    /// Removed with the reactor.
    _socket_files: Vec<SocketFile>,
}

impl<S: Service> Reactor<S> {
    /// Bind every listener, then start every shard with the service `make` gives it.
    ///
    /// Either all of it works or nothing is left behind. `on_failure` is called from the dying
    /// thread when a shard panics.
    pub fn start(
        spec: &ReactorSpec,
        mut make: impl FnMut(u16) -> S,
        on_failure: &OnFailure,
    ) -> Result<Self, Error> {
        assert!((1..=SHARDS_MAX).contains(&spec.shards), "the caller validates the shard count");
        let mut bound = Vec::new();
        let (mut sockets, mut socket_files) = (Vec::new(), Vec::new());
        for listener in &spec.listeners {
            let (socket, listener, file) = bind(listener)?;
            sockets.push(socket);
            bound.push(listener);
            socket_files.extend(file);
        }
        let setup = |shard| move |source| Error::Setup { shard, source };
        let mut polls = Vec::new();
        let mut boxes = Vec::new();
        for shard in 0..spec.shards {
            let poll = Poll::new().map_err(setup(shard))?;
            boxes.push(Mailbox::new(Waker::new(poll.registry(), WAKER).map_err(setup(shard))?));
            polls.push(poll);
        }
        let mailboxes: Arc<[Mailbox<S::Mail>]> = boxes.into();
        let shared = Arc::new(Shared {
            counters: (0..spec.shards).map(|_| Counters::default()).collect(),
            drained: Drained::default(),
            per_listener: spec.listeners.iter().map(|_| AtomicUsize::new(0)).collect(),
            contexts: spec
                .listeners
                .iter()
                .map(|listener| Mutex::new(listener.wrapping.tls.clone()))
                .collect(),
            addresses: spec.limits.connections_per_address_max.map(Addresses::new),
            rotation: AtomicUsize::new(0),
        });
        let mut sockets: Vec<_> = sockets.into_iter().enumerate().collect();
        let mut shards = Vec::new();
        for (shard, poll) in (0..spec.shards).zip(polls) {
            // Doors are spread over the shards; the sockets behind them rotate anyway.
            let (mine, rest) = sockets
                .into_iter()
                .partition(|(index, _)| index % usize::from(spec.shards) == usize::from(shard));
            sockets = rest;
            let turn = Turn::new(shard, spec.limits, Mailboxes::new(Arc::clone(&mailboxes)));
            let (shared, listeners) = (Arc::clone(&shared), spec.listeners.clone());
            let loop_ = Shard::new(poll, spec.clock, shared, turn, make(shard), mine, listeners);
            shards.push(loop_.map_err(setup(shard))?);
        }
        let reactor = Self {
            threads: Mutex::default(),
            shared,
            mailboxes,
            listeners: bound,
            _socket_files: socket_files,
        };
        for (index, shard) in (0..).zip(shards) {
            let name = format!("quantumqtt-{index}");
            let thread = spawn(name, Arc::clone(on_failure), move || shard.run());
            reactor.threads.lock().push(thread.map_err(setup(index))?);
        }
        Ok(reactor)
    }

    /// Where it really listens, in the order of the spec.
    pub fn listeners(&self) -> &[BoundListener] {
        &self.listeners
    }

    /// Tell a shard something from outside.
    pub fn post(&self, shard: u16, mail: S::Mail) {
        self.send(shard, Envelope::Mail(mail));
    }

    /// Who may tell shards something when this reactor is out of sight.
    pub fn poster(&self) -> Poster<S::Mail> {
        Poster { mailboxes: Arc::clone(&self.mailboxes) }
    }

    /// From now on the listener at this position shows and demands this; connections stay, but for
    /// those whose certificate it knows to be revoked.
    ///
    /// Whoever is accepted after this returns meets the new context, on every shard.
    pub fn set_tls(&self, listener: usize, context: &Arc<TlsContext>) {
        *self.shared.contexts[listener].lock() = Some(Arc::clone(context));
        if context.has_revocations() {
            self.send_all(|| Envelope::Review(listener));
        }
    }

    fn send(&self, shard: u16, envelope: Envelope<S::Mail>) {
        let mut mailboxes = Mailboxes::new(Arc::clone(&self.mailboxes));
        mailboxes.post(shard, envelope);
        mailboxes.ring_posted();
    }

    fn send_all(&self, mut envelope: impl FnMut() -> Envelope<S::Mail>) {
        for shard in 0..self.shared.counters.len() {
            self.send(shard as u16, envelope());
        }
    }

    /// Stop accepting, let the service say goodbye, wait for the sockets to close.
    ///
    /// True when all closed in time. Blocks; call it without any lock.
    pub fn drain(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.send_all(|| Envelope::Drain);
        self.shared.drained.wait_all(self.shared.counters.len(), until)
    }

    /// Cut every socket and end every thread; a drain in progress returns at once.
    pub fn stop(&self) {
        self.send_all(|| Envelope::Stop);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic was reported through `on_failure` when it happened.
            let _ = thread.join();
        }
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for shard in &self.shared.counters {
            totals.connections += shard.connections.load(Ordering::Relaxed) as u64;
            totals.accepted += shard.accepted.load(Ordering::Relaxed);
            totals.refused_full += shard.refused_full.load(Ordering::Relaxed);
            totals.starved += shard.starved.load(Ordering::Relaxed);
            totals.bytes_received += shard.bytes_received.load(Ordering::Relaxed);
            totals.bytes_sent += shard.bytes_sent.load(Ordering::Relaxed);
            totals.tls_handshakes += shard.tls_handshakes.load(Ordering::Relaxed);
            totals.tls_resumptions += shard.tls_resumptions.load(Ordering::Relaxed);
            totals.turns += shard.turns.load(Ordering::Relaxed);
        }
        totals
    }
}

/// A way to the shards' inboxes from any thread.
pub struct Poster<M> {
    mailboxes: Arc<[Mailbox<M>]>,
}

impl<M> Poster<M> {
    /// Tell a shard something from outside.
    pub fn post(&self, shard: u16, mail: M) {
        let mut mailboxes = Mailboxes::new(Arc::clone(&self.mailboxes));
        mailboxes.post(shard, Envelope::Mail(mail));
        mailboxes.ring_posted();
    }
}

impl<M> std::fmt::Debug for Poster<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}

impl<S: Service> std::fmt::Debug for Reactor<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").field("listeners", &self.listeners).finish_non_exhaustive()
    }
}

impl<S: Service> Drop for Reactor<S> {
    fn drop(&mut self) {
        self.stop();
    }
}
