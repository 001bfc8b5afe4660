//! What a connected client may do: the shard's copy of the rule table, and who is asking.
//!
//! Without rules everything is allowed but to speak for the broker (`$SYS/…`), and a check is one
//! branch. With rules:
//! - PUBLISH is checked when it comes; a will at CONNECT and once more when it goes out;
//! - every filter of a SUBSCRIBE is checked, without its `$share/…/` and `$queue/` prefixes;
//! - the reader's right is checked wherever a message is delivered: routes are filtered when they
//!   are looked up, so what the route cache holds is allowed already; deliveries from the machine
//!   (backlogs, retained messages) are checked one by one.
//!
//! Most clients use one topic over and over. The last one allowed is kept with the connection, so
//! a check is mostly a comparison of names. A new table has a new generation, which makes what was
//! kept worthless.
//!
//! New tables. `Mail::Policy` reaches every shard; each swaps its table in its own turn, forgets
//! its cached routes and closes connections whose credentials are gone. It then tells the owner of
//! the partition. When all have, no command of the old table can still arrive there, and the owner
//! takes back delayed wills that are no longer allowed.

use std::collections::HashSet;
use std::sync::Arc;

use quantumqtt_machine::{Command, ConnectionLost};
use quantumqtt_reactor::{Connections, Then, Turn};
use quantumqtt_topics::{Action, Filter, RuleTable, Who};
use quantumqtt_wire::{PacketId, PacketType, Publish, QoS, ReasonCode, Version};

use crate::connect::connection_event;
use crate::connection::Connection;
use crate::events::EventKind;
use crate::packets::write_ack;
use crate::reasons::{CloseReason, DenialReason};
use crate::shard::{Mail, ShardService, close, go_on};
use crate::system::is_system;
use crate::will::Will;

const QUEUE_PREFIX: &str = "$queue/";

/// Who a connection is, for rules.
#[derive(Debug)]
pub(crate) struct Principal {
    /// Who the client proved to be; empty for anonymous.
    pub(crate) user: Box<str>,
    pub(crate) client_id: Arc<str>,
}

impl Principal {
    /// Whoever has not come in yet.
    pub(crate) fn nobody() -> Arc<Self> {
        Arc::new(Self { user: Box::default(), client_id: Arc::from("") })
    }

    /// Whoever has not come in yet, but has a certificate of this user.
    pub(crate) fn certified(user: Box<str>) -> Arc<Self> {
        Arc::new(Self { user, client_id: Arc::from("") })
    }

    pub(crate) fn who(&self) -> Who<'_> {
        Who { user: &self.user, client_id: &self.client_id }
    }
}

/// One generation of what Python decided.
pub(crate) struct Policy {
    pub(crate) generation: u64,
    pub(crate) rules: Option<Arc<RuleTable>>,
    /// Users whose credentials are no longer what they were.
    pub(crate) revoked: HashSet<Box<str>>,
}

/// A shard's copy of the rules.
#[derive(Debug, Default)]
pub(crate) struct Rights {
    rules: Option<Arc<RuleTable>>,
    generation: u64,
    /// On the partition's owner: which generation shards have taken, and how many of them.
    taken: (u64, usize),
    /// All have: delayed wills are to be looked at.
    pub(crate) must_review_wills: bool,
}

/// The topics a connection was allowed last.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    generation: u64,
    read: Box<str>,
    write: Box<str>,
}

impl Rights {
    pub(crate) fn new(rules: Option<Arc<RuleTable>>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Whether `connection` may do `action` with `topic`.
    #[inline]
    pub(crate) fn may(&self, connection: &mut Connection, action: Action, topic: &str) -> bool {
        match &self.rules {
            None => action == Action::Read || !is_system(topic),
            Some(rules) => {
                (action == Action::Read || !is_system(topic))
                    && self.look_up(rules, connection, action, topic)
            }
        }
    }

    fn look_up(
        &self,
        rules: &RuleTable,
        connection: &mut Connection,
        action: Action,
        topic: &str,
    ) -> bool {
        let allowed = connection.allowed.get_or_insert_default();
        if allowed.generation != self.generation {
            **allowed = Allowed { generation: self.generation, ..Allowed::default() };
        }
        let last = match action {
            Action::Read => &mut allowed.read,
            Action::Write => &mut allowed.write,
        };
        // No topic is empty, so nothing is allowed by what was never asked.
        if **last == *topic && !topic.is_empty() {
            return true;
        }
        let may = rules.may(connection.who.who(), action, subject(topic));
        if may {
            *last = topic.into();
        }
        may
    }

    /// Whether the will of somebody may be published, without a connection to remember it.
    pub(crate) fn may_publish(&self, who: Who<'_>, topic: &str) -> bool {
        let may = |rules: &Arc<RuleTable>| rules.may(who, Action::Write, subject(topic));
        !is_system(topic) && self.rules.as_ref().is_none_or(may)
    }

    /// Whether somebody may be sent a message, for whoever has no connection at hand.
    pub(crate) fn may_read(&self, who: Who<'_>, topic: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.may(who, Action::Read, subject(topic)))
    }

    fn may_subscribe(&self, who: Who<'_>, filter: &Filter<'_>) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.may_subscribe(who, subject(filter.pattern)))
    }
}

/// What a rule speaks about: the name without the queue prefix.
pub(crate) fn subject(topic: &str) -> &str {
    topic.strip_prefix(QUEUE_PREFIX).filter(|name| !name.is_empty()).unwrap_or(topic)
}

impl ShardService {
    /// A PUBLISH that is not allowed: the answer its version has, and mostly the end.
    pub(crate) fn refuse_publish(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        publish: &Publish<'_>,
        topic: &str,
    ) -> Then {
        self.note_denial(turn.now_ms(), connection, DenialReason::Publish, topic);
        let answered = publish.packet_id.filter(|_| connection.version == Version::V5);
        if let Some(packet_id) = answered {
            answer_denied(turn, connection, publish.qos, packet_id);
            if !self.shared.disconnect_denied {
                return Then::Continue;
            }
        }
        close(turn, connection, CloseReason::NotAuthorized)
    }

    /// Whether a filter may be subscribed to; a refusal is counted and told.
    pub(crate) fn may_subscribe(
        &mut self,
        now_ms: u64,
        connection: &Connection,
        filter: &Filter<'_>,
    ) -> bool {
        let may = self.rights.may_subscribe(connection.who.who(), filter);
        if !may {
            self.note_denial(now_ms, connection, DenialReason::Subscribe, filter.pattern);
        }
        may
    }

    /// Whether the will of a connection that is gone may go out.
    pub(crate) fn may_fire_will(&self, now_ms: u64, connection: &Connection, topic: &str) -> bool {
        let may = self.rights.may_publish(connection.who.who(), topic);
        if !may {
            self.note_denial(now_ms, connection, DenialReason::Will, topic);
        }
        may
    }

    /// Whether a will may be left behind at all.
    pub(crate) fn may_leave_will(&self, connection: &Connection, will: Option<&Will>) -> bool {
        will.is_none_or(|will| self.rights.may_publish(connection.who.who(), &will.topic))
    }

    pub(crate) fn note_denial(
        &self,
        now_ms: u64,
        connection: &Connection,
        reason: DenialReason,
        topic: &str,
    ) {
        self.cells().count_denial(reason);
        let mut event = connection_event(EventKind::AccessDenied, now_ms, connection);
        event.reason = Some(reason.label().into());
        event.topic = Some(topic.into());
        self.shared.events.tell(event);
    }

    /// Python has new rules, or some credentials are gone.
    pub(crate) fn on_policy(
        &mut self,
        turn: &mut Turn<Self>,
        connections: &mut Connections<Self>,
        policy: &Policy,
    ) {
        self.rights.rules.clone_from(&policy.rules);
        self.rights.generation = policy.generation;
        self.router.set_rules(policy.rules.clone());
        if !policy.revoked.is_empty() {
            for (_, connection) in connections.iter_mut() {
                if policy.revoked.contains(&connection.who.user) {
                    let then = close(turn, connection, CloseReason::CredentialsRevoked);
                    go_on(turn, connection, then);
                }
            }
        }
        // Before the word goes out: what was judged by the old rules must arrive before it.
        self.proposals.hand_over(turn);
        let taken = Mail::PolicyTaken { generation: policy.generation };
        turn.post(self.proposals.owner(), taken);
    }

    /// A shard has taken a generation; at the last one's word wills are reviewed.
    pub(crate) fn on_policy_taken(&mut self, generation: u64) {
        let (newest, count) = &mut self.rights.taken;
        if generation > *newest {
            (*newest, *count) = (generation, 0);
        }
        if generation == *newest {
            *count += 1;
            self.rights.must_review_wills |= *count == self.effects_out.len();
        }
    }

    /// Take back delayed wills that may no longer go out.
    pub(crate) fn review_wills(&mut self, turn: &mut Turn<Self>) {
        let Some(partition) = self.partition.as_ref() else {
            return;
        };
        self.rights.must_review_wills = false;
        let mut taken_back = Vec::new();
        for waiting in partition.machine().waiting_wills() {
            let who = Who { user: waiting.identity, client_id: waiting.client_id };
            if !self.rights.may_publish(who, waiting.topic) {
                taken_back.push((Box::<str>::from(waiting.client_id), waiting.session_epoch));
            }
        }
        for (client_id, session_epoch) in taken_back {
            self.cells().count_denial(DenialReason::Will);
            let command = Command::ConnectionLost(ConnectionLost {
                client_id: &client_id,
                session_epoch,
                fire_will: false,
                expiry_s: None,
                will_grace_s: 0,
            });
            self.proposals.push(turn, &command);
        }
    }
}

fn answer_denied(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    qos: QoS,
    packet_id: PacketId,
) {
    let is_exactly_once = qos == QoS::ExactlyOnce;
    let kind = if is_exactly_once { PacketType::PubRec } else { PacketType::PubAck };
    write_ack(turn, connection, kind, packet_id, ReasonCode::NOT_AUTHORIZED);
}
