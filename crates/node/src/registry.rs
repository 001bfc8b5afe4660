//! Who owns a client id now, and what happens when a second client connects with the same id.
//!
//! Theory of operation. One entry per connected client id. A CONNECT *claims* its id: the entry
//! changes hands at once, under the lock, so of two racing claims one is first. If the id had an
//! owner, the claimer waits: the old owner's shard is asked to end its connection (DISCONNECT 0x8E
//! for MQTT 5), to propose whatever that end means to its session, and only then to answer
//! "fenced". Nothing but that answer lets the claimer go on — no timer does (SES-17, X-85) — so
//! every command of the old connection is proposed before the first command of the new one.
//! `session_epoch` in the machine fences the same thing once more, for stored sessions.
//!
//! A claimer that itself ends, or is taken over, while it waits keeps its place in this line: its
//! successor is told only after the claimer would have been, so a fence covers everybody before.
//!
//! A different identity does not get the id at all while it is in use (SES-16).
//!
//! Beside the owners stands the set of ids with a *stored* session. It is a view of the machine,
//! kept by the shard that applies; a clean-start CONNECT without expiry asks it whether there is
//! anything to discard, and proposes nothing when there is not.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use parking_lot::Mutex;
use quantumqtt_reactor::ConnectionId;

/// The lock is split so that a storm of connects on many shards does not queue up at one.
const PARTS: usize = 16;

#[derive(Debug)]
struct Owner {
    connection: ConnectionId,
    /// Who the client proved to be; empty for anonymous.
    identity: Box<str>,
}

#[derive(Debug, Default)]
struct Part {
    owners: HashMap<Box<str>, Owner>,
    stored: HashSet<Box<str>>,
}

/// The connected client ids of one tenant.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    parts: [Mutex<Part>; PARTS],
    /// Keyed by dice: clients choose their ids, and may choose them to collide.
    hasher: RandomState,
}

/// What a claim came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Nobody had the id.
    Free,
    /// It was taken from this connection, which must be ended first.
    TakenFrom(ConnectionId),
    /// It belongs to another identity.
    Refused,
}

impl Registry {
    fn part(&self, client_id: &str) -> &Mutex<Part> {
        &self.parts[self.hasher.hash_one(client_id) as usize % PARTS]
    }

    /// Make `connection` the owner of `client_id`.
    pub(crate) fn claim(&self, client_id: &str, connection: ConnectionId, identity: &str) -> Claim {
        let mut part = self.part(client_id).lock();
        match part.owners.entry(client_id.into()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Owner { connection, identity: identity.into() });
                Claim::Free
            }
            Entry::Occupied(mut occupied) => {
                let owner = occupied.get_mut();
                // An anonymous session may be adopted by the first who proves who they are.
                if *owner.identity != *identity && !owner.identity.is_empty() {
                    return Claim::Refused;
                }
                let previous = std::mem::replace(&mut owner.connection, connection);
                owner.identity = identity.into();
                Claim::TakenFrom(previous)
            }
        }
    }

    /// `connection` is gone; somebody else may own the id by now and keeps it.
    pub(crate) fn release(&self, client_id: &str, connection: ConnectionId) {
        let mut part = self.part(client_id).lock();
        if part.owners.get(client_id).is_some_and(|owner| owner.connection == connection) {
            part.owners.remove(client_id);
        }
    }

    /// The machine stores a session under this id, or does no longer.
    pub(crate) fn set_stored(&self, client_id: &str, stored: bool) {
        let mut part = self.part(client_id).lock();
        if stored {
            part.stored.insert(client_id.into());
        } else {
            part.stored.remove(client_id);
        }
    }

    /// Whether the machine stores a session under this id.
    pub(crate) fn is_stored(&self, client_id: &str) -> bool {
        self.part(client_id).lock().stored.contains(client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId::new(0, 0, slot)
    }

    #[test]
    fn second_claim_takes_the_id_and_names_the_first() {
        let registry = Registry::default();
        assert_eq!(registry.claim("lamp", connection(1), ""), Claim::Free);
        assert_eq!(registry.claim("lamp", connection(2), ""), Claim::TakenFrom(connection(1)));
        registry.release("lamp", connection(1));
        assert_eq!(registry.claim("lamp", connection(3), ""), Claim::TakenFrom(connection(2)));
        registry.release("lamp", connection(3));
        assert_eq!(registry.claim("lamp", connection(4), ""), Claim::Free);
    }

    #[test]
    fn another_identity_is_refused_and_the_owner_stays() {
        let registry = Registry::default();
        registry.claim("lamp", connection(1), "ada");
        assert_eq!(registry.claim("lamp", connection(2), "bob"), Claim::Refused);
        assert_eq!(registry.claim("lamp", connection(3), ""), Claim::Refused);
        assert_eq!(registry.claim("lamp", connection(4), "ada"), Claim::TakenFrom(connection(1)));
    }

    #[test]
    fn anonymous_session_is_adopted_by_the_first_who_proves_an_identity() {
        let registry = Registry::default();
        registry.claim("lamp", connection(1), "");
        assert_eq!(registry.claim("lamp", connection(2), "ada"), Claim::TakenFrom(connection(1)));
        assert_eq!(registry.claim("lamp", connection(3), ""), Claim::Refused);
    }
}
