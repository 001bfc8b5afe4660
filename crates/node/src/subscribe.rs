//! SUBSCRIBE and UNSUBSCRIBE of a connected client.
//!
//! A transient session subscribes here and now, in the node's index. A stored session's filters are
//! a command; its SUBACK and its place in the index come with the effect. So do shared filters of a
//! transient session (`guest.rs`). Retained messages are
//! the machine's to know: for a transient session they are asked for by mail (`retained.rs`), and
//! arrive after SUBACK.

use quantumqtt_machine::{Command, RetainHandling, SubscribeFilter, SubscriptionOptions};
use quantumqtt_reactor::{Then, Turn};
use quantumqtt_topics::Filter;
use quantumqtt_wire::{ReasonCode, Subscribe, SubscribeOptions, Unsubscribe};

use crate::connection::Connection;
use crate::guest::{SharedSubscribe, is_shared, unsubscribed};
use crate::index::Subscriber;
use crate::packets::{write_suback, write_unsuback};
use crate::reasons::CloseReason;
use crate::retained::RetainedWanted;
use crate::shard::{ShardService, close};

/// A filter with its options and the code SUBACK gives it.
struct Judged<'a> {
    filter: &'a str,
    is_shared: bool,
    options: SubscriptionOptions,
    code: ReasonCode,
}

impl ShardService {
    pub(crate) fn on_subscribe(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        subscribe: &Subscribe<'_>,
    ) -> Then {
        let mut judged = Vec::new();
        for (text, options) in subscribe.filters.iter() {
            let Ok(filter) = Filter::parse(text) else {
                return close(turn, connection, CloseReason::TopicFilterInvalid);
            };
            let is_shared = filter.share.is_some();
            if is_shared && options.no_local {
                return close(turn, connection, CloseReason::ProtocolError); // [MQTT-3.8.3-4]
            }
            let code = if self.may_subscribe(turn.now_ms(), connection, &filter) {
                granted(options)
            } else {
                ReasonCode::NOT_AUTHORIZED
            };
            let options = machine_options(options);
            judged.push(Judged { filter: text, is_shared, options, code });
        }
        let subscription_id = subscribe.properties.subscription_ids().next();
        let packet_id = subscribe.packet_id;
        if connection.is_stored() && self.shared.pressure.is_full() {
            // Nothing new can be kept, so nothing is promised.
            let told =
                |code: ReasonCode| if code.is_error() { code } else { ReasonCode::QUOTA_EXCEEDED };
            let codes: Vec<u8> = judged.iter().map(|judged| told(judged.code).0).collect();
            write_suback(turn, &connection.outlet, connection.version, packet_id, &codes);
            return Then::Continue;
        }
        if connection.is_stored() {
            let filters = judged.iter().map(Judged::as_command).collect();
            let (session_epoch, _) = connection.session_ids();
            let command = Command::Subscribe(quantumqtt_machine::Subscribe {
                origin: connection.origin(self.shared.node_id),
                client_id: &connection.client_id,
                session_epoch,
                packet_id: packet_id.get(),
                subscription_id,
                filters,
            });
            self.proposals.push(turn, &command);
            return Then::Continue;
        }
        let wanted = self.subscribe_transient(connection, &mut judged, subscription_id);
        let then = if judged.iter().any(Judged::is_for_machine) {
            let answer = |one: &Judged<'_>| (!one.is_for_machine()).then_some(one.code);
            let shared = judged.iter().filter(|one| one.is_for_machine());
            let subscribe = SharedSubscribe {
                packet_id: packet_id.get(),
                subscription_id,
                filters: shared.map(|one| (one.filter.into(), one.options)).collect(),
                answer: judged.iter().map(answer).collect(),
            };
            self.subscribe_guest(turn, connection, subscribe)
        } else {
            let codes: Vec<u8> = judged.iter().map(|judged| judged.code.0).collect();
            write_suback(turn, &connection.outlet, connection.version, packet_id, &codes);
            Then::Continue
        };
        self.begin_replay(turn, connection, wanted);
        then
    }

    /// Put the granted filters into the index; returns those whose retained messages are wanted.
    fn subscribe_transient(
        &self,
        connection: &mut Connection,
        judged: &mut [Judged<'_>],
        subscription_id: Option<u32>,
    ) -> Vec<RetainedWanted> {
        let mut wanted = Vec::new();
        for judged in judged.iter_mut().filter(|judged| !judged.code.is_error()) {
            let is_new = !connection.filters.contains(judged.filter);
            if is_new && connection.filters.len() >= self.shared.limits.subscriptions_max as usize {
                judged.code = ReasonCode::QUOTA_EXCEEDED;
                continue;
            }
            if judged.is_shared {
                continue; // the machine's to grant; nothing retained is sent for it (§4.8.2)
            }
            self.index_filter(connection, judged.filter, judged.options, subscription_id);
            let is_wanted = match judged.options.retain_handling {
                RetainHandling::Send => true,
                RetainHandling::SendIfNew => is_new,
                RetainHandling::DoNotSend => false,
            };
            if is_wanted {
                connection.stop_replay(judged.filter);
                let filter = judged.filter.into();
                let qos = judged.options.qos;
                wanted.push(RetainedWanted::new(filter, qos, subscription_id));
            }
        }
        wanted
    }

    /// From now on `connection` is routed to by `filter`.
    pub(crate) fn index_filter(
        &self,
        connection: &mut Connection,
        filter: &str,
        options: SubscriptionOptions,
        subscription_id: Option<u32>,
    ) {
        let Ok(parsed) = Filter::parse(filter) else {
            return;
        };
        let subscriber = Subscriber::of(connection, options, subscription_id);
        self.router.index().subscribe(&parsed, connection.id, subscriber);
        connection.filters.insert(filter.into());
    }

    /// From now on it is not; true when it was.
    pub(crate) fn unindex_filter(&self, connection: &mut Connection, filter: &str) -> bool {
        let Ok(parsed) = Filter::parse(filter) else {
            return false;
        };
        connection.stop_replay(filter);
        connection.filters.remove(filter) && self.router.index().unsubscribe(&parsed, connection.id)
    }

    pub(crate) fn on_unsubscribe(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Then {
        let is_malformed = unsubscribe.filters.iter().any(|text| Filter::parse(text).is_err());
        if is_malformed {
            return close(turn, connection, CloseReason::TopicFilterInvalid);
        }
        if connection.is_stored() {
            let (session_epoch, _) = connection.session_ids();
            let command = Command::Unsubscribe(quantumqtt_machine::Unsubscribe {
                origin: connection.origin(self.shared.node_id),
                client_id: &connection.client_id,
                session_epoch,
                packet_id: unsubscribe.packet_id.get(),
                filters: unsubscribe.filters.iter().collect(),
            });
            self.proposals.push(turn, &command);
            return Then::Continue;
        }
        let packet_id = unsubscribe.packet_id;
        let filters: Vec<&str> = unsubscribe.filters.iter().collect();
        if filters.iter().any(|filter| is_shared(filter))
            && self.unsubscribe_guest(turn, connection, packet_id.get(), &filters)
        {
            return Then::Continue;
        }
        let code = |filter| unsubscribed(self.unindex_filter(connection, filter)).0;
        let codes: Vec<u8> = filters.into_iter().map(code).collect();
        write_unsuback(turn, &connection.outlet, connection.version, packet_id, &codes);
        Then::Continue
    }
}

impl<'a> Judged<'a> {
    /// Whether it stands for a transient session in a share group.
    fn is_for_machine(&self) -> bool {
        self.is_shared && !self.code.is_error()
    }

    fn as_command(&self) -> SubscribeFilter<'a> {
        let refused = self.code.is_error().then_some(self.code);
        SubscribeFilter { filter: self.filter, options: self.options, refused }
    }
}

fn granted(options: SubscribeOptions) -> ReasonCode {
    ReasonCode(options.qos as u8)
}

fn machine_options(options: SubscribeOptions) -> SubscriptionOptions {
    SubscriptionOptions {
        qos: options.qos,
        no_local: options.no_local,
        retain_as_published: options.retain_as_published,
        retain_handling: match options.retain_handling {
            quantumqtt_wire::RetainHandling::Send => RetainHandling::Send,
            quantumqtt_wire::RetainHandling::SendIfNew => RetainHandling::SendIfNew,
            quantumqtt_wire::RetainHandling::DoNotSend => RetainHandling::DoNotSend,
        },
    }
}
