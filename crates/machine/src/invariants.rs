//! What must be true of the state between any two commands, checked by walking all of it.
//!
//! For the simulator and the property tests: each names the first sentence that does not hold.
//! Nothing here is needed to run; it says in one place what the other files rely on.

use quantumqtt_topics::Filter;
use quantumqtt_wire::QoS;

use crate::machine::Machine;
use crate::registry::Totals;
use crate::session::Session;

impl Machine {
    /// Walks the whole state; an error names the invariant that is broken.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        let mut totals = Totals::default();
        let mut deadlines =
            self.retained.iter().filter(|(_, m)| m.expires_at_ms().is_some()).count();
        let mut subscriptions = 0;
        for session in self.sessions.by_client_id() {
            self.check_session(session)?;
            let own = Totals::of(session);
            totals.attached += own.attached;
            totals.guests += own.guests;
            totals.queued += own.queued;
            totals.queued_bytes += own.queued_bytes;
            totals.in_flight += own.in_flight;
            subscriptions += session.subscriptions.len();
            deadlines += usize::from(session.expires_at_ms.is_some());
            deadlines += usize::from(session.will_due_ms.is_some());
        }
        let is_true = |claim: bool, sentence| if claim { Ok(()) } else { Err(sentence) };
        is_true(
            self.sessions.by_client_id().count() == self.sessions.len(),
            "a session has one id",
        )?;
        is_true(totals == self.sessions.totals(), "totals are the sums over all sessions")?;
        is_true(deadlines == self.deadlines.len(), "every deadline has an owner")?;
        is_true(self.dedupe.is_sound(self.now_ms), "keys stand in the order of their commitment")?;
        is_true(subscriptions == self.subscriptions.len(), "the trie holds what sessions hold")?;
        is_true(self.due_wills.is_empty(), "no will is left over from a command")
    }

    fn check_session(&self, session: &Session) -> Result<(), &'static str> {
        let is_true = |claim: bool, sentence| if claim { Ok(()) } else { Err(sentence) };
        let found = self.sessions.key_of(&session.client_id);
        is_true(found == Some(session.incarnation), "a session is found by its client id")?;
        is_true(session.epoch <= self.last_epoch, "epochs are given out once")?;
        is_true(session.incarnation <= self.last_incarnation, "incarnations are given out once")?;
        session.check()?;
        let is_in_trie = session.subscriptions.iter().all(|subscription| {
            Filter::parse(&subscription.filter)
                .ok()
                .and_then(|filter| self.subscriptions.get(&filter, session.incarnation))
                .is_some_and(|granted| granted.options == subscription.options)
        });
        is_true(is_in_trie, "a subscription is the same in session and trie")
    }
}

impl Session {
    /// What can be said of a session alone. A checkpoint is believed only if this holds.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_true = |claim: bool, sentence| if claim { Ok(()) } else { Err(sentence) };
        let has_deadline = self.expires_at_ms.is_some() || self.will_due_ms.is_some();
        is_true(!(self.is_attached() && has_deadline), "who is here has no deadline")?;
        is_true(self.window.is_sound(), "an id names one exchange, and counts are true")?;
        let can_send = self.is_attached() && self.window.admits();
        let is_idle = self.backlog.is_empty() && self.replays.is_empty();
        is_true(!can_send || is_idle, "nothing waits while there is room")?;
        let is_own = |filter: &str| self.subscriptions.contains(filter);
        let are_own = self.replays.iter().all(|replay| is_own(&replay.filter));
        is_true(are_own, "a replay is that of a subscription")?;
        let weight: u64 = self.backlog.iter().map(|d| d.message.weight_bytes()).sum();
        is_true(weight == self.backlog.weight_bytes(), "a backlog weighs what is in it")?;
        is_true(self.backlog.iter().count() == self.backlog.len(), "a backlog counts its own")?;
        let is_kept = self.backlog.iter().all(|d| d.qos != QoS::AtMostOnce);
        is_true(is_kept, "QoS 0 never waits")
    }
}
