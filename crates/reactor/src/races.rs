//! Every interleaving of the small protocols between shards, explored by loom.
//!
//! `just races` runs them. The outlet and the mailbox are the product's own code; only the kernel
//! is played: a socket with finite room that tells of new room once after it has refused bytes, as
//! an edge-triggered one does, and an eventfd. A wake-up is lost when all threads have done what
//! they owe, the owner has looked at everything it was told of, and something still waits.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};

use loom::thread;
use rustix::io::Errno;

use crate::connections::ConnectionId;
use crate::limits::Limits;
use crate::mailbox::{Envelope, Mailbox, Mailboxes};
use crate::outlet::{Duty, Flushed, Outlet};
use crate::ring::{BufferPool, Ring};
use crate::sync::{Mutex, Waker};

const FD: RawFd = 7;

/// The kernel's side of one socket.
#[derive(Debug, Default)]
struct Kernel {
    room: usize,
    taken: usize,
    /// It has refused bytes since it last told of room.
    owes_edge: bool,
    edge: bool,
    closed: bool,
}

thread_local! {
    // Loom runs all threads of a model on one thread of the system.
    static KERNEL: RefCell<Weak<Mutex<Kernel>>> = RefCell::default();
}

fn open_socket(room: usize) -> Arc<Mutex<Kernel>> {
    let kernel = Arc::new(Mutex::new(Kernel { room, ..Kernel::default() }));
    KERNEL.set(Arc::downgrade(&kernel));
    kernel
}

/// Plays `send` for the outlet.
pub(crate) fn send_once(fd: BorrowedFd<'_>, ring: &Ring) -> Result<usize, Errno> {
    assert_eq!(fd.as_raw_fd(), FD);
    let kernel = KERNEL.with_borrow(Weak::upgrade).expect("the model holds its kernel");
    let mut kernel = kernel.lock();
    assert!(!kernel.closed, "nobody writes to a socket that its owner has let go");
    let bytes = ring.len().min(kernel.room);
    if bytes == 0 {
        kernel.owes_edge = true;
        return Err(Errno::AGAIN);
    }
    kernel.room -= bytes;
    kernel.taken += bytes;
    Ok(bytes)
}

/// The peer reads.
fn make_room(kernel: &Mutex<Kernel>, bytes: usize) {
    let mut kernel = kernel.lock();
    kernel.room += bytes;
    kernel.edge |= std::mem::take(&mut kernel.owes_edge);
}

fn outlet(soft: usize) -> Arc<Outlet<()>> {
    let limits = Limits { out_bytes_soft: soft, out_bytes_max: 64, ..Limits::unbounded() };
    Arc::new(Outlet::new(ConnectionId::new(0, 0, 0), FD, limits, ()))
}

/// What a shard does in a turn: append, then what it owes for it.
fn write(outlet: &Outlet<()>, bytes: &[u8]) {
    let mut pool = BufferPool::default();
    let (pushed, duty) = outlet.append(&mut pool, 0, |guard| guard.push(bytes));
    assert_eq!(pushed, Ok(()));
    if duty != Duty::None {
        assert_ne!(outlet.flush(&mut pool, 0), Flushed::Broken);
    }
}

/// What the owner does with the kernel's news, by the same short cut as `Shard::note`.
fn look(outlet: &Outlet<()>, kernel: &Mutex<Kernel>) {
    let edge = std::mem::take(&mut kernel.lock().edge);
    if edge && outlet.is_blocked() {
        assert_ne!(outlet.flush_unblocked(&mut BufferPool::default(), 0), Flushed::Broken);
    }
}

fn explore(threads_switch_at_most: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(threads_switch_at_most);
    builder.check(model);
}

// req: DP-13
#[test]
fn room_that_appears_while_another_shard_writes_is_never_missed() {
    explore(4, || {
        let (kernel, outlet) = (open_socket(1), outlet(64));
        let other_shard = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || write(&outlet, b"abc"))
        };
        let peer = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || make_room(&kernel, 8))
        };
        look(&outlet, &kernel);
        other_shard.join().unwrap();
        peer.join().unwrap();
        look(&outlet, &kernel);
        assert_eq!(kernel.lock().taken, 3, "something waits and nobody will send it");
    });
}

// req: DP-13
#[test]
fn bytes_that_ride_along_are_sent_by_whoever_was_first() {
    explore(4, || {
        let (kernel, outlet) = (open_socket(64), outlet(64));
        let other_shard = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || write(&outlet, b"abc"))
        };
        write(&outlet, b"de");
        other_shard.join().unwrap();
        assert_eq!(kernel.lock().taken, 5);
        assert!(!outlet.is_blocked());
    });
}

// req: DP-13
#[test]
fn two_writers_and_a_slow_reader_lose_nothing() {
    explore(3, || {
        let (kernel, outlet) = (open_socket(2), outlet(2));
        let other_shard = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || write(&outlet, b"abc"))
        };
        let peer = {
            let kernel = Arc::clone(&kernel);
            thread::spawn(move || make_room(&kernel, 8))
        };
        write(&outlet, b"de");
        look(&outlet, &kernel);
        other_shard.join().unwrap();
        peer.join().unwrap();
        look(&outlet, &kernel);
        assert_eq!(kernel.lock().taken, 5);
    });
}

/// The owner of a connection with layers: what it is told, and what the socket has not taken.
#[derive(Default)]
struct LayeredOwner {
    unsent: Vec<u8>,
    taken: usize,
}

impl LayeredOwner {
    /// What `Shard::send_wrapped` does, with layers that change nothing.
    fn flush(&mut self, outlet: &Outlet<()>, kernel: &Mutex<Kernel>) {
        outlet.begin_wrapped_flush(0);
        let mut pool = BufferPool::default();
        loop {
            if self.unsent.is_empty() && outlet.take_waiting(&mut pool, &mut self.unsent, 2) == 0 {
                return outlet.end_wrapped_flush(false, false, 0);
            }
            let mut kernel = kernel.lock();
            let bytes = self.unsent.len().min(kernel.room);
            if bytes == 0 {
                kernel.owes_edge = true;
                drop(kernel);
                return outlet.end_wrapped_flush(false, true, 0);
            }
            kernel.room -= bytes;
            self.taken += bytes;
            self.unsent.drain(..bytes);
        }
    }

    /// One turn: the kernel's news first, then mail.
    fn turn(&mut self, outlet: &Outlet<()>, kernel: &Mutex<Kernel>, told: &Mutex<usize>) {
        let edge = std::mem::take(&mut kernel.lock().edge);
        if edge && (outlet.is_blocked() || !self.unsent.is_empty()) {
            self.flush(outlet, kernel);
        }
        if std::mem::take(&mut *told.lock()) > 0 {
            self.flush(outlet, kernel);
        }
    }
}

// req: DP-13
#[test]
fn what_others_append_behind_layers_is_sent_by_the_owner() {
    for soft in [2, 64] {
        explore(3, move || {
            let kernel = open_socket(1);
            let limits = Limits { out_bytes_soft: soft, out_bytes_max: 64, ..Limits::unbounded() };
            let outlet = Outlet::new(ConnectionId::new(0, 0, 0), FD, limits, ()).wrapped();
            let (outlet, told) = (Arc::new(outlet), Arc::new(Mutex::new(0)));
            let other_shard = {
                let (outlet, told) = (Arc::clone(&outlet), Arc::clone(&told));
                thread::spawn(move || {
                    for bytes in [b"abc", b"def"] {
                        let mut pool = BufferPool::default();
                        let (_, duty) = outlet.append(&mut pool, 0, |guard| guard.push(bytes));
                        assert_ne!(duty, Duty::FlushNow, "others never send themselves");
                        *told.lock() += usize::from(duty == Duty::Flush);
                    }
                })
            };
            let peer = {
                let kernel = Arc::clone(&kernel);
                thread::spawn(move || make_room(&kernel, 16))
            };
            let mut owner = LayeredOwner::default();
            owner.turn(&outlet, &kernel, &told);
            other_shard.join().unwrap();
            peer.join().unwrap();
            owner.turn(&outlet, &kernel, &told);
            assert_eq!(owner.taken, 6, "something waits and nobody will send it");
            assert!(!outlet.is_blocked(), "producers would wait for ever");
        });
    }
}

// req: DP-30
#[test]
fn a_socket_is_never_written_after_its_owner_let_it_go() {
    explore(4, || {
        let (kernel, outlet) = (open_socket(1), outlet(64));
        let other_shard = {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || write(&outlet, b"abc"))
        };
        outlet.close(&mut BufferPool::default());
        kernel.lock().closed = true;
        other_shard.join().unwrap();
    });
}

fn two_inboxes() -> Arc<[Mailbox<u8>]> {
    (0..2).map(|_| Mailbox::new(Waker::silent())).collect()
}

fn take_if_rung(boxes: &Arc<[Mailbox<u8>]>, shard: u16) -> usize {
    if !boxes[usize::from(shard)].waker().was_rung() {
        return 0;
    }
    let mut taken = Vec::new();
    Mailboxes::new(Arc::clone(boxes)).take(shard, &mut taken);
    taken.len()
}

fn post(boxes: &Arc<[Mailbox<u8>]>, mails: u8) {
    let mut poster = Mailboxes::new(Arc::clone(boxes));
    for mail in 0..mails {
        poster.post(1, Envelope::Mail(mail));
    }
    poster.ring_posted();
}

// req: DP-13
#[test]
fn mail_never_waits_for_a_bell_that_nobody_rings() {
    explore(4, || {
        let boxes = two_inboxes();
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let boxes = Arc::clone(&boxes);
                thread::spawn(move || post(&boxes, 1))
            })
            .collect();
        let mut taken = take_if_rung(&boxes, 1);
        for poster in posters {
            poster.join().unwrap();
        }
        taken += take_if_rung(&boxes, 1);
        assert_eq!(taken, 2, "mail waits and its shard sleeps");
    });
}

#[test]
fn a_shard_that_waits_for_room_is_rung_when_there_is_some() {
    explore(4, || {
        let boxes = two_inboxes();
        post(&boxes, 2);
        let owner = {
            let boxes = Arc::clone(&boxes);
            thread::spawn(move || take_if_rung(&boxes, 1))
        };
        let waits = Mailboxes::new(Arc::clone(&boxes)).any_above(1, 0);
        assert_eq!(owner.join().unwrap(), 2);
        let was_rung = boxes[0].waker().was_rung();
        assert!(!waits || was_rung, "shard 0 sleeps although there is room again");
    });
}
