//! All sessions of a partition, found by client id or by key, and their sums.
//!
//! A session is changed only inside [`Sessions::change`], which takes the difference into the sums.
//! While a checkpoint is handed out, a session is copied before its first change (`copies.rs`).
//! Keys rise with creation and client ids are ordered, so either walk is the same on every replica.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::checkpoint::{Copies, Next};
use crate::session::{Session, SessionKey, is_guest};

/// Sums over all sessions, kept as they change: reading them must not walk a million sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) attached: u64,
    pub(crate) guests: u64,
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) in_flight: u64,
}

impl Totals {
    pub(crate) fn of(session: &Session) -> Self {
        Self {
            attached: u64::from(session.is_attached()),
            guests: u64::from(is_guest(&session.client_id)),
            queued: session.backlog.len() as u64,
            queued_bytes: session.backlog.weight_bytes(),
            in_flight: session.window.len() as u64,
        }
    }

    fn replace(&mut self, before: Self, after: Self) {
        self.attached = self.attached - before.attached + after.attached;
        self.guests = self.guests - before.guests + after.guests;
        self.queued = self.queued - before.queued + after.queued;
        self.queued_bytes = self.queued_bytes - before.queued_bytes + after.queued_bytes;
        self.in_flight = self.in_flight - before.in_flight + after.in_flight;
    }
}

/// All sessions of a partition.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    keys: BTreeMap<Arc<str>, SessionKey>,
    table: BTreeMap<SessionKey, Box<Session>>,
    totals: Totals,
    copies: Copies<Box<Session>>,
}

impl Sessions {
    /// A checkpoint begins, or ends early.
    pub(crate) fn set_copying(&mut self, is_copying: bool) {
        if is_copying { self.copies.begin() } else { self.copies.end() }
    }

    /// The next session, by client id, as it was when the checkpoint began.
    pub(crate) fn take_copy(&mut self) -> Option<Box<Session>> {
        let first = |from: Bound<&str>| {
            let mut ahead = self.keys.range::<str, _>((from, Bound::Unbounded));
            ahead.next().map(|(client_id, _)| &**client_id)
        };
        match self.copies.take_next(first) {
            Next::Copied(session) => Some(session),
            Next::Live(client_id) => self.table.get(self.keys.get(&*client_id)?).cloned(),
            Next::End => None,
        }
    }

    pub(crate) fn key_of(&self, client_id: &str) -> Option<SessionKey> {
        self.keys.get(client_id).copied()
    }

    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.table.get(&key).map(AsRef::as_ref)
    }

    /// The session of `client_id` if `epoch` is its present one.
    pub(crate) fn key_at_epoch(&self, client_id: &str, epoch: u64) -> Option<SessionKey> {
        let key = self.key_of(client_id)?;
        self.get(key).filter(|session| session.epoch == epoch)?;
        Some(key)
    }

    /// Changes one session; the only way to, so the totals cannot drift.
    pub(crate) fn change<R>(
        &mut self,
        key: SessionKey,
        change: impl FnOnce(&mut Session) -> R,
    ) -> Option<R> {
        let session = self.table.get_mut(&key)?;
        self.copies.keep(&session.client_id, || Some(session.clone()));
        let before = Totals::of(session);
        let result = change(session);
        self.totals.replace(before, Totals::of(session));
        Some(result)
    }

    pub(crate) fn insert(&mut self, session: Session) {
        self.copies.keep(&session.client_id, || None);
        self.totals.replace(Totals::default(), Totals::of(&session));
        self.keys.insert(session.client_id.clone(), session.incarnation);
        self.table.insert(session.incarnation, Box::new(session));
    }

    pub(crate) fn remove(&mut self, key: SessionKey) -> Option<Box<Session>> {
        let session = self.table.remove(&key)?;
        self.copies.keep(&session.client_id, || Some(session.clone()));
        self.keys.remove(&session.client_id);
        self.totals.replace(Totals::of(&session), Totals::default());
        Some(session)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// All sessions by client id: the canonical order (DET-05).
    pub(crate) fn by_client_id(&self) -> impl Iterator<Item = &Session> {
        self.keys.values().filter_map(|key| self.get(*key))
    }
}
