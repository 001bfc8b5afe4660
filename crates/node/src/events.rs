//! What Python is told: a bounded queue behind one eventfd.
//!
//! Shards push, Python takes a batch. The descriptor is rung only when the queue was empty, so a
//! storm of connections costs one wake-up, not one each. When the queue is full, news that only
//! informs is merged into one `Overrun` that counts it; a question (`AdmissionWanted`) is refused
//! instead, so that its asker can answer "busy" and nothing waits for ever.
//!
//! Who comes and goes is most of what there is to tell, and mostly nobody listens: then it is not
//! told at all, and a connect does not wake Python.
//!
//! No wake-up is lost: the descriptor is cleared under the same lock, and only when the queue has
//! been emptied.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use quantumqtt_reactor::Peer;
use quantumqtt_wire::Version;
use rustix::event::{EventfdFlags, eventfd};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented in _core.pyi, where they are read")]
pub enum EventKind {
    AdmissionWanted,
    AuthenticationWanted,
    SessionOpened,
    SessionClosed,
    ConnectionRefused,
    AccessDenied,
    Overrun,
    ShardFailed,
    LogDamaged,
    DiskLevelChanged,
}

impl EventKind {
    /// The name Python sees.
    pub const fn label(self) -> &'static str {
        match self {
            Self::AdmissionWanted => "admission_wanted",
            Self::AuthenticationWanted => "authentication_wanted",
            Self::SessionOpened => "session_opened",
            Self::SessionClosed => "session_closed",
            Self::ConnectionRefused => "connection_refused",
            Self::AccessDenied => "access_denied",
            Self::Overrun => "overrun",
            Self::ShardFailed => "shard_failed",
            Self::LogDamaged => "log_damaged",
            Self::DiskLevelChanged => "disk_level_changed",
        }
    }
}

/// Something Python may want to know or decide.
#[derive(Clone)]
#[expect(missing_docs, reason = "documented in _core.pyi, where they are read")]
pub struct Event {
    pub kind: EventKind,
    pub at_ms: u64,
    pub client_id: Option<Box<str>>,
    pub connection: Option<u64>,
    pub peer: Option<Peer>,
    pub listener: Option<usize>,
    pub version: Option<Version>,
    pub user_name: Option<Box<str>>,
    pub password: Option<Box<[u8]>>,
    pub auth_method: Option<Box<str>>,
    pub auth_data: Option<Box<[u8]>>,
    pub session_epoch: Option<u64>,
    pub reason: Option<Box<str>>,
    pub topic: Option<Box<str>>,
    pub count: u64,
}

impl Event {
    pub(crate) fn new(kind: EventKind, at_ms: u64) -> Self {
        Self {
            kind,
            at_ms,
            client_id: None,
            connection: None,
            peer: None,
            listener: None,
            version: None,
            user_name: None,
            password: None,
            auth_method: None,
            auth_data: None,
            session_epoch: None,
            reason: None,
            topic: None,
            count: 1,
        }
    }
}

/// The queue is full, and this event may not be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

struct Waiting {
    events: VecDeque<Event>,
    merged: u64,
}

pub(crate) struct EventQueue {
    waiting: Mutex<Waiting>,
    bell: OwnedFd,
    count_max: usize,
    /// Whether Python listens to who comes and goes, whatever clients subscribe to.
    tells_sessions: AtomicBool,
}

impl EventQueue {
    pub(crate) fn new(count_max: usize) -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiting = Mutex::new(Waiting { events: VecDeque::new(), merged: 0 });
        Ok(Self { waiting, bell, count_max, tells_sessions: AtomicBool::new(true) })
    }

    pub(crate) fn tells_sessions(&self) -> bool {
        self.tells_sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tells_sessions(&self, tells: bool) {
        self.tells_sessions.store(tells, Ordering::Relaxed);
    }

    /// Tell Python something; merged into an `Overrun` when the queue is full.
    pub(crate) fn tell(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        if waiting.events.len() < self.count_max {
            return self.push(&mut waiting, event);
        }
        waiting.merged += 1;
        match waiting.events.back_mut() {
            Some(last) if last.kind == EventKind::Overrun => last.count += 1,
            // One place above the bound, so that the loss itself is always told.
            _ => self.push(&mut waiting, Event::new(EventKind::Overrun, event.at_ms)),
        }
    }

    /// Ask Python something; refused when the queue is full.
    pub(crate) fn ask(&self, event: Event) -> Result<(), Full> {
        let mut waiting = self.waiting.lock();
        if waiting.events.len() >= self.count_max {
            return Err(Full);
        }
        self.push(&mut waiting, event);
        Ok(())
    }

    fn push(&self, waiting: &mut Waiting, event: Event) {
        if waiting.events.is_empty() {
            // Can only fail when the counter is at its maximum, that is, when the bell rings.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        waiting.events.push_back(event);
    }

    /// The oldest events, at most `count_max` of them.
    pub(crate) fn take(&self, count_max: usize) -> Vec<Event> {
        let mut waiting = self.waiting.lock();
        let count = count_max.min(waiting.events.len());
        let taken = waiting.events.drain(..count).collect();
        if waiting.events.is_empty() {
            // Nothing to read means nobody rang since the last time.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        taken
    }

    pub(crate) fn merged(&self) -> u64 {
        self.waiting.lock().merged
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ringing(queue: &EventQueue) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&queue.bell, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    fn opened() -> Event {
        Event::new(EventKind::SessionOpened, 5)
    }

    #[test]
    fn bell_rings_until_all_is_taken() {
        let queue = EventQueue::new(10).unwrap();
        assert!(!is_ringing(&queue));
        (0..3).for_each(|_| queue.tell(opened()));
        assert!(is_ringing(&queue));
        assert_eq!(queue.take(2).len(), 2);
        assert!(is_ringing(&queue), "one is left");
        assert_eq!(queue.take(2).len(), 1);
        assert!(!is_ringing(&queue));
    }

    #[test]
    fn full_queue_merges_news_and_refuses_questions() {
        let queue = EventQueue::new(2).unwrap();
        (0..5).for_each(|_| queue.tell(opened()));
        assert_eq!(queue.ask(Event::new(EventKind::AdmissionWanted, 6)), Err(Full));
        let taken = queue.take(10);
        let kinds: Vec<_> = taken.iter().map(|event| (event.kind, event.count)).collect();
        let opened = (EventKind::SessionOpened, 1);
        assert_eq!(kinds, [opened, opened, (EventKind::Overrun, 3)]);
        assert_eq!(queue.merged(), 3);
    }
}
