//! The write side of one connection, the only part of it that other shards may touch.
//!
//! Theory of operation. An [`Outlet`] guards three things with one small lock: the bytes that wait,
//! the descriptor they go to, and whatever the service keeps beside them (its *outbound* state, for
//! example packet ids). Any shard may append. The first to append in a turn makes the outlet
//! *dirty*, keeps it on its own list, and flushes it with one call at the end of its turn; others
//! that append meanwhile ride along. When the socket takes no more, the outlet is *blocked*: from
//! then on only the owner flushes, when the kernel says that there is room again.
//!
//! Why no wake-up is lost: the socket is registered edge-triggered for writing from the start, so
//! room that appears after an EAGAIN is a new edge. The owner dismisses edges while `blocked` is
//! down, without the lock; so `blocked` is raised at the first EAGAIN and the socket is asked once
//! more. Only an EAGAIN that came with `blocked` up counts, and its edge finds it up. All of it is
//! explored in `races.rs`.
//!
//! Bytes of a *wrapped* connection (TLS, WebSocket) must go through its layers first, and those
//! belong to its owner. Whoever appends there only tells the owner, once; above the soft limit such
//! an outlet counts as blocked until the owner has been there, so that producers stop in time.
//!
//! Lock order: an outlet's lock is taken last and alone. While it is held nothing else is locked
//! and no call is made but one non-blocking send on that very socket.

use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::Ordering;

use rustix::io::Errno;
#[cfg(not(all(test, feature = "loom")))]
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::connections::ConnectionId;
use crate::limits::{FLUSH_BYTES_EARLY, Limits};
#[cfg(all(test, feature = "loom"))]
use crate::races::send_once;
use crate::ring::{BufferPool, Ring};
use crate::sync::{AtomicBool, Mutex};

/// The write side of one connection; shared by reference count.
#[derive(Debug)]
pub struct Outlet<O> {
    id: ConnectionId,
    limits: Limits,
    /// Only the owner sends, through the layers of the connection. Settled before anybody else
    /// knows of the outlet.
    is_wrapped: bool,
    /// Mirrors `State::blocked` so that the owner can dismiss the kernel's frequent "writable"
    /// news without taking the lock.
    blocked: AtomicBool,
    state: Mutex<State<O>>,
}

#[derive(Debug)]
struct State<O> {
    ring: Ring,
    /// None once the owner has closed the socket; nobody writes after that.
    fd: Option<RawFd>,
    dirty: bool,
    /// When bytes last left, or when the socket last stopped taking them.
    progress_ms: u64,
    outbound: O,
}

/// More bytes wait than the connection may have; the service decides what that means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

/// What an append leaves to do for whoever appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing: somebody else flushes, or nothing waits.
    None,
    /// Flush at the end of the turn.
    Flush,
    /// Flush now: so much waits that it would only grow cold.
    FlushNow,
}

/// What a flush came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// So many bytes left; nothing waits.
    Empty(usize),
    /// So many bytes left, and the socket takes no more for now.
    Blocked(usize),
    /// The peer is gone; the owner must close.
    Broken,
}

impl<O: Default> Outlet<O> {
    pub(crate) fn new(id: ConnectionId, fd: RawFd, limits: Limits, outbound: O) -> Self {
        let state =
            State { ring: Ring::default(), fd: Some(fd), dirty: false, progress_ms: 0, outbound };
        let blocked = AtomicBool::new(false);
        Self { id, limits, is_wrapped: false, blocked, state: Mutex::new(state) }
    }

    /// The same, for a connection whose bytes its owner must wrap.
    pub(crate) fn wrapped(self) -> Self {
        Self { is_wrapped: true, ..self }
    }

    /// The layers are done, and nobody but the owner knows of the outlet yet.
    pub(crate) fn unwrap_layers(&mut self) {
        self.is_wrapped = false;
    }

    /// Whose write side this is.
    #[inline]
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Let `append` put bytes in; says what the caller owes the socket for it.
    #[inline]
    pub(crate) fn append<R>(
        &self,
        pool: &mut BufferPool,
        now_ms: u64,
        append: impl FnOnce(&mut OutletGuard<'_, O>) -> R,
    ) -> (R, Duty) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let blocked = self.blocked.load(Ordering::Relaxed);
        let mut guard = OutletGuard {
            ring: &mut state.ring,
            outbound: &mut state.outbound,
            pool,
            limits: self.limits,
            open: state.fd.is_some(),
            blocked,
            now_ms,
            stalled_ms: if blocked { now_ms.saturating_sub(state.progress_ms) } else { 0 },
        };
        let result = append(&mut guard);
        let waiting = state.ring.len();
        if waiting == 0 || blocked || state.fd.is_none() {
            return (result, Duty::None);
        }
        // Also at the soft limit: whoever is over it must be blocked, or nobody would ever be told
        // that there is room again.
        if waiting >= FLUSH_BYTES_EARLY.min(self.limits.out_bytes_soft) {
            if !self.is_wrapped {
                return (result, Duty::FlushNow);
            }
            if waiting >= self.limits.out_bytes_soft {
                state.progress_ms = now_ms;
                self.blocked.store(true, Ordering::Release);
            }
        }
        let duty = if state.dirty { Duty::None } else { Duty::Flush };
        state.dirty = true;
        (result, duty)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_wrapped(&self) -> bool {
        self.is_wrapped
    }

    /// The owner begins to send through layers; says whether producers were held back.
    ///
    /// What is appended from here on is told to the owner again.
    pub(crate) fn begin_wrapped_flush(&self, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        state.dirty = false;
        let was_blocked = self.blocked.swap(false, Ordering::AcqRel);
        if !was_blocked {
            state.progress_ms = now_ms;
        }
        was_blocked
    }

    /// Move at most `bytes_max` waiting bytes to `into`.
    pub(crate) fn take_waiting(
        &self,
        pool: &mut BufferPool,
        into: &mut Vec<u8>,
        bytes_max: usize,
    ) -> usize {
        let mut state = self.state.lock();
        let (front, back) = state.ring.halves();
        let from_front = front.len().min(bytes_max);
        let from_back = back.len().min(bytes_max - from_front);
        into.extend_from_slice(&front[..from_front]);
        into.extend_from_slice(&back[..from_back]);
        state.ring.consume(from_front + from_back, pool);
        from_front + from_back
    }

    /// The owner has sent what the socket took.
    pub(crate) fn end_wrapped_flush(&self, has_sent: bool, is_blocked: bool, now_ms: u64) {
        let mut state = self.state.lock();
        if has_sent {
            state.progress_ms = now_ms;
        }
        if is_blocked {
            self.blocked.store(true, Ordering::Release);
        }
    }

    /// Send what waits with one call.
    pub(crate) fn flush(&self, pool: &mut BufferPool, now_ms: u64) -> Flushed {
        let mut state = self.state.lock();
        state.dirty = false;
        if self.blocked.load(Ordering::Relaxed) {
            return Flushed::Blocked(0);
        }
        state.progress_ms = now_ms;
        self.send_waiting(&mut state, pool, now_ms)
    }

    /// The kernel has room again: only the owner calls this.
    pub(crate) fn flush_unblocked(&self, pool: &mut BufferPool, now_ms: u64) -> Flushed {
        let mut state = self.state.lock();
        self.blocked.store(false, Ordering::Release);
        self.send_waiting(&mut state, pool, now_ms)
    }

    fn send_waiting(&self, state: &mut State<O>, pool: &mut BufferPool, now_ms: u64) -> Flushed {
        let Some(fd) = state.fd else {
            return Flushed::Empty(0);
        };
        // SAFETY: `fd` is Some only while the owner keeps the socket open: `close` clears it under
        // this lock before the socket is dropped, so the descriptor is valid and ours here.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let mut sent = 0;
        // Also after a short send: without an EAGAIN the kernel promises no edge.
        while !state.ring.is_empty() {
            match send_once(fd, &state.ring) {
                Ok(bytes) => {
                    state.ring.consume(bytes, pool);
                    state.progress_ms = now_ms;
                    sent += bytes;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.blocked.swap(true, Ordering::AcqRel) => {}
                Err(Errno::AGAIN) => return Flushed::Blocked(sent),
                Err(_) => {
                    state.ring.clear(pool);
                    return Flushed::Broken;
                }
            }
        }
        self.blocked.store(false, Ordering::Release);
        Flushed::Empty(sent)
    }

    /// The owner closes: nobody writes after this returns.
    ///
    /// Whoever still refers to the outlet (a cached route, say) keeps an empty one alive.
    pub(crate) fn close(&self, pool: &mut BufferPool) {
        let mut state = self.state.lock();
        state.fd = None;
        state.ring.clear(pool);
        state.outbound = O::default();
    }
}

#[cfg(not(all(test, feature = "loom")))]
fn send_once(fd: BorrowedFd<'_>, ring: &Ring) -> Result<usize, Errno> {
    let (front, back) = ring.halves();
    // NOSIGNAL: a host program may have restored SIGPIPE's deadly default.
    if back.is_empty() {
        send(fd, front, SendFlags::NOSIGNAL)
    } else {
        let mut none = SendAncillaryBuffer::default();
        sendmsg(fd, &ring.io_slices(), &mut none, SendFlags::NOSIGNAL)
    }
}

/// An outlet under its lock: append bytes, read and change the outbound state.
#[derive(Debug)]
pub struct OutletGuard<'a, O> {
    ring: &'a mut Ring,
    /// What the service keeps beside the bytes.
    pub outbound: &'a mut O,
    pool: &'a mut BufferPool,
    limits: Limits,
    open: bool,
    blocked: bool,
    now_ms: u64,
    stalled_ms: u64,
}

impl<O> OutletGuard<'_, O> {
    /// Append bytes, or refuse all of them when more would wait than allowed.
    ///
    /// Bytes for a closed socket are dropped in silence: the close is on its way to the service.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        if !self.open {
            return Ok(());
        }
        if self.ring.len() + bytes.len() > self.limits.out_bytes_max {
            return Err(Overflow);
        }
        self.ring.push(bytes, self.pool);
        Ok(())
    }

    /// Bytes that wait for the socket.
    #[inline]
    pub fn waiting_bytes(&self) -> usize {
        self.ring.len()
    }

    /// Whether producers that can wait or drop should do so.
    #[inline]
    pub fn is_over_soft_limit(&self) -> bool {
        self.ring.len() > self.limits.out_bytes_soft
    }

    /// Whether the socket takes no more; the service hears of it when it does again.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The bounds of this connection's bytes.
    #[inline]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether so little waits that producers who stopped may go on.
    #[inline]
    pub fn has_room_again(&self) -> bool {
        self.ring.len() <= self.limits.out_bytes_soft / 2
    }

    /// The time of the turn in which this is written.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// How long the socket has taken nothing although bytes wait; 0 while it takes some.
    #[inline]
    pub fn stalled_ms(&self) -> u64 {
        self.stalled_ms
    }

    /// False once the owner has closed the socket.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open
    }
}

impl From<Overflow> for io::Error {
    fn from(_: Overflow) -> Self {
        io::Error::other("more bytes wait for the connection than allowed")
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd};

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    fn limits(soft: usize, max: usize) -> Limits {
        Limits { out_bytes_soft: soft, out_bytes_max: max, ..Limits::unbounded() }
    }

    // req: DP-13
    #[test]
    fn first_append_of_a_turn_flushes_and_others_ride_along() {
        let (ours, mut theirs) = pair();
        let outlet =
            Outlet::new(ConnectionId::new(0, 0, 0), ours.as_raw_fd(), limits(1 << 20, 1 << 20), ());
        let mut pool = BufferPool::default();
        let (first, duty) = outlet.append(&mut pool, 0, |guard| guard.push(b"one "));
        assert_eq!((first, duty), (Ok(()), Duty::Flush));
        let (_, duty) = outlet.append(&mut pool, 0, |guard| guard.push(b"two"));
        assert_eq!(duty, Duty::None, "one flush per turn");
        assert_eq!(outlet.flush(&mut pool, 0), Flushed::Empty(7));
        let mut heard = [0; 7];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"one two");
    }

    // req: DP-12
    #[test]
    fn both_halves_of_a_wrapped_ring_leave_in_one_call() {
        // Each call is one record here, and a record is read whole.
        let (ours, mut theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let mut pool = BufferPool::default();
        let mut ring = Ring::default();
        ring.push(&[1; 4000], &mut pool);
        ring.consume(3999, &mut pool);
        ring.push(&[2; 200], &mut pool);
        assert!(!ring.halves().1.is_empty());
        assert_eq!(send_once(ours.as_fd(), &ring), Ok(201));
        let mut heard = [0; 300];
        assert_eq!(theirs.read(&mut heard).unwrap(), 201);
        assert_eq!((heard[0], heard[1..201].iter().all(|&byte| byte == 2)), (1, true));
    }

    // req: DP-11
    #[test]
    fn reader_that_never_reads_hits_its_own_ceiling() {
        let (ours, theirs) = pair();
        let outlet =
            Outlet::new(ConnectionId::new(0, 0, 0), ours.as_raw_fd(), limits(1 << 16, 1 << 20), ());
        let mut pool = BufferPool::default();
        let block = [7; 1 << 14];
        let mut refused = false;
        for _ in 0..100_000 {
            let (result, duty) = outlet.append(&mut pool, 0, |guard| guard.push(&block));
            if duty != Duty::None {
                outlet.flush(&mut pool, 0);
            }
            if result.is_err() {
                refused = true;
                break;
            }
        }
        assert!(refused, "the kernel buffers are finite and so is ours");
        assert!(outlet.is_blocked());
        outlet.append(&mut pool, 0, |guard| assert!(guard.is_over_soft_limit()));
        drop(theirs);
    }

    // req: SES-12
    #[test]
    fn closing_lets_go_of_what_the_service_kept() {
        let (ours, theirs) = pair();
        let held = std::sync::Arc::new(());
        let outlet = Outlet::new(
            ConnectionId::new(0, 0, 0),
            ours.as_raw_fd(),
            limits(1 << 20, 1 << 20),
            Some(std::sync::Arc::clone(&held)),
        );
        outlet.close(&mut BufferPool::default());
        assert_eq!(std::sync::Arc::strong_count(&held), 1, "although the outlet lives on");
        drop((ours, theirs, outlet));
    }

    #[test]
    fn nothing_is_written_after_close() {
        let (ours, theirs) = pair();
        let outlet =
            Outlet::new(ConnectionId::new(0, 0, 0), ours.as_raw_fd(), limits(1 << 20, 1 << 20), ());
        let mut pool = BufferPool::default();
        outlet.close(&mut pool);
        drop(ours);
        let ((result, open), duty) =
            outlet.append(&mut pool, 0, |guard| (guard.push(b"late"), guard.is_open()));
        assert_eq!((result, open, duty), (Ok(()), false, Duty::None));
        assert_eq!(outlet.flush(&mut pool, 0), Flushed::Empty(0));
        drop(theirs);
    }
}
