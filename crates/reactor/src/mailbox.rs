//! How shards talk: one inbox each, rung at most once per batch.
//!
//! Theory of operation. `post` puts an envelope into the inbox of a shard and remembers that the
//! shard must be rung; the poster rings all of them once at the end of its turn. `rung` stays up
//! until the owner has taken the mail, so a second poster does not pay for a second system call.
//! The owner lowers `rung` *before* it takes the mail: an envelope posted after that rings again.
//!
//! The inbox is bounded by back-pressure, not by refusal: while any inbox is above its high-water
//! mark, shards stop reading sockets (they still take their own mail, so two full inboxes cannot
//! wait for each other) and are rung when it has been emptied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::connections::ConnectionId;
use crate::service::CloseCause;
use crate::stream::{Peer, Stream};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Waker};

/// One thing to tell a shard.
pub(crate) enum Envelope<M> {
    /// For the service.
    Mail(M),
    /// A socket accepted elsewhere, with the position of its listener.
    Socket(Stream, Peer, usize),
    /// Another shard found out that a connection is over.
    Close(ConnectionId, CloseCause),
    /// Bytes wait for a connection that only its owner can send to.
    Flush(ConnectionId),
    /// A listener has a new revocation list.
    Review(usize),
    /// Say goodbye to all connections.
    Drain,
    /// End the thread.
    Stop,
}

pub(crate) struct Mailbox<M> {
    queue: Mutex<Vec<Envelope<M>>>,
    len: AtomicUsize,
    rung: AtomicBool,
    /// Shards that stopped reading because this inbox is full, one bit each.
    waiting: AtomicU64,
    waker: Waker,
}

impl<M> Mailbox<M> {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            queue: Mutex::new(Vec::new()),
            len: AtomicUsize::new(0),
            rung: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            waker,
        }
    }

    #[cfg(all(test, feature = "loom"))]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // The only failure is a full eventfd counter, which means that it has been rung.
            let _ = self.waker.wake();
        }
    }
}

/// All inboxes, as seen by one poster.
pub(crate) struct Mailboxes<M> {
    all: Arc<[Mailbox<M>]>,
    /// Shards posted to in this turn, one bit each.
    to_ring: u64,
}

impl<M> Mailboxes<M> {
    pub(crate) fn new(all: Arc<[Mailbox<M>]>) -> Self {
        Self { all, to_ring: 0 }
    }

    pub(crate) fn post(&mut self, shard: u16, envelope: Envelope<M>) {
        let Some(mailbox) = self.all.get(usize::from(shard)) else {
            return;
        };
        let mut queue = mailbox.queue.lock();
        queue.push(envelope);
        mailbox.len.store(queue.len(), Ordering::Release);
        self.to_ring |= 1 << shard;
    }

    pub(crate) fn ring_posted(&mut self) {
        while self.to_ring != 0 {
            let shard = self.to_ring.trailing_zeros();
            self.to_ring &= self.to_ring - 1;
            self.all[shard as usize].ring();
        }
    }

    /// Swap the waiting mail of `shard` into `taken`, which must be empty.
    pub(crate) fn take(&self, shard: u16, taken: &mut Vec<Envelope<M>>) {
        let mailbox = &self.all[usize::from(shard)];
        mailbox.rung.store(false, Ordering::Release);
        {
            let mut queue = mailbox.queue.lock();
            std::mem::swap(&mut *queue, taken);
            mailbox.len.store(0, Ordering::Release);
        }
        let mut waiting = mailbox.waiting.swap(0, Ordering::AcqRel);
        while waiting != 0 {
            self.all[waiting.trailing_zeros() as usize].ring();
            waiting &= waiting - 1;
        }
    }

    /// Whether an inbox other than our own holds more than `mails`; we are rung when it is empty.
    pub(crate) fn any_above(&self, mails: usize, own: u16) -> bool {
        let mut above = false;
        for (shard, mailbox) in self.all.iter().enumerate() {
            if shard == usize::from(own) || mailbox.len.load(Ordering::Acquire) <= mails {
                continue;
            }
            mailbox.waiting.fetch_or(1 << own, Ordering::AcqRel);
            // Look again: it may have been emptied between the look and the note.
            above |= mailbox.len.load(Ordering::Acquire) > mails;
        }
        above
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use mio::{Events, Poll, Token};

    use super::*;

    fn two_shards() -> (Vec<Poll>, Arc<[Mailbox<u32>]>) {
        let polls: Vec<Poll> = (0..2).map(|_| Poll::new().unwrap()).collect();
        let boxes = polls
            .iter()
            .map(|poll| Mailbox::new(Waker::new(poll.registry(), Token(0)).unwrap()))
            .collect();
        (polls, boxes)
    }

    #[test]
    fn many_mails_ring_once_and_arrive_in_order() {
        let (mut polls, boxes) = two_shards();
        let mut poster = Mailboxes::new(Arc::clone(&boxes));
        for number in 0..100 {
            poster.post(1, Envelope::Mail(number));
        }
        poster.ring_posted();
        let mut events = Events::with_capacity(8);
        polls[1].poll(&mut events, None).unwrap();
        assert_eq!(events.iter().count(), 1);
        let mut taken = Vec::new();
        Mailboxes::new(boxes).take(1, &mut taken);
        let numbers: Vec<u32> = taken
            .into_iter()
            .map(|envelope| match envelope {
                Envelope::Mail(number) => number,
                _ => unreachable!("only mail was posted"),
            })
            .collect();
        assert!(numbers.into_iter().eq(0..100));
    }

    #[test]
    fn full_inbox_holds_others_back_until_emptied() {
        let (mut polls, boxes) = two_shards();
        let mut poster = Mailboxes::new(Arc::clone(&boxes));
        for number in 0..11 {
            poster.post(1, Envelope::Mail(number));
        }
        assert!(poster.any_above(10, 0), "shard 0 must stop reading");
        let mut taken = Vec::new();
        Mailboxes::new(boxes).take(1, &mut taken);
        let mut events = Events::with_capacity(8);
        polls[0].poll(&mut events, None).unwrap();
        assert_eq!(events.iter().count(), 1, "shard 0 is rung when there is room");
        assert!(!poster.any_above(10, 0));
    }
}
