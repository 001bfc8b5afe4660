//! SUBSCRIBE and UNSUBSCRIBE of a connected client.
//!
//! A transient session subscribes here and now, in the node's index. A stored session's filters are
//! a command; its SUBACK and its place in the index come with the effect. So do shared filters of a
//! transient session (`guest.rs`). Retained messages are
//! the machine's to know: for a transient session they are asked for by mail (`retained.rs`), and
//! arrive after SUBACK.
//!
//! A replay (`$replay/…`) is the connection's own, in whatever session: it is granted here and
//! goes into no index (`playback.rs`). In a stored session the machine writes the SUBACK of
//! everything else, so there a replay is subscribed to in a packet without anything else.

use quantumqtt_machine::{Command, RetainHandling, SubscribeFilter, SubscriptionOptions};
use quantumqtt_reactor::{Then, Turn};
use quantumqtt_topics::Filter;
use quantumqtt_wire::{PacketId, ReasonCode, Subscribe, SubscribeOptions, Unsubscribe};

use crate::connection::Connection;
use crate::guest::{SharedSubscribe, is_shared, unsubscribed};
use crate::index::Subscriber;
use crate::packets::{write_suback, write_suback_why, write_unsuback};
use crate::playback::PlaybackWanted;
use crate::reasons::CloseReason;
use crate::replay_from::{REPLAY_PREFIX, ReplayError, parse_replay};
use crate::retained::RetainedWanted;
use crate::shard::{ShardService, close};

/// A filter with its options and the code SUBACK gives it.
struct Judged<'a> {
    filter: &'a str,
    is_shared: bool,
    options: SubscriptionOptions,
    code: ReasonCode,
    replay: Replayed,
}

/// Whether a filter asks for a replay.
enum Replayed {
    No,
    Granted(PlaybackWanted),
    /// Of what cannot be granted the client may hear why.
    Refused(Option<ReplayError>),
}

impl ShardService {
    pub(crate) fn on_subscribe(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        subscribe: &Subscribe<'_>,
    ) -> Then {
        let mut judged: Vec<Judged<'_>> = Vec::new();
        for (text, options) in subscribe.filters.iter() {
            let Ok(filter) = Filter::parse(text) else {
                return close(turn, connection, CloseReason::TopicFilterInvalid);
            };
            let is_shared = filter.share.is_some();
            if is_shared && options.no_local {
                return close(turn, connection, CloseReason::ProtocolError); // [MQTT-3.8.3-4]
            }
            if filter.pattern.starts_with(REPLAY_PREFIX) {
                let begun = judged.iter().filter(|judged| judged.is_replay()).count();
                let judgement = self.judge_replay(turn.now_ms(), connection, &filter, text, begun);
                judged.push(Judged::replay(text, options, judgement, connection.is_stored()));
                continue;
            }
            let code = if self.may_subscribe(turn.now_ms(), connection, &filter) {
                granted(options)
            } else {
                ReasonCode::NOT_AUTHORIZED
            };
            let options = machine_options(options);
            judged.push(Judged { filter: text, is_shared, options, code, replay: Replayed::No });
        }
        let subscription_id = subscribe.properties.subscription_ids().next();
        let packet_id = subscribe.packet_id;
        let replay_count = judged.iter().filter(|judged| judged.is_replay()).count();
        if replay_count == judged.len() {
            self.answer_and_replay(turn, connection, packet_id, judged, subscription_id);
            return Then::Continue;
        }
        if connection.is_stored() {
            judged.iter_mut().for_each(Judged::refuse_replay_among_others);
        }
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
        let wanted = self.subscribe_transient(turn, connection, &mut judged, subscription_id);
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
            answer(turn, connection, packet_id, &judged);
            Then::Continue
        };
        self.begin_replay(turn, connection, wanted);
        if replay_count > 0 {
            self.begin_playbacks(turn, connection, judged, subscription_id);
        }
        then
    }

    /// Whether a replay is possible, and allowed: what it brings is judged by its inner filter.
    fn judge_replay(
        &mut self,
        now_ms: u64,
        connection: &Connection,
        filter: &Filter<'_>,
        text: &str,
        begun: usize,
    ) -> Result<PlaybackWanted, Option<ReplayError>> {
        if filter.share.is_some() {
            return Err(Some(ReplayError::Nested));
        }
        // First whether it may: who may not is told nothing of the log, not even where it begins.
        let (_, pattern) = parse_replay(text).map_err(Some)?;
        let inner = Filter::parse(pattern).map_err(|_| Some(ReplayError::Nested))?;
        if !self.may_subscribe(now_ms, connection, &inner) {
            return Err(None);
        }
        self.plan_playback(now_ms, connection, text, begun).map_err(Some)
    }

    /// A SUBSCRIBE of nothing but replays.
    fn answer_and_replay(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        packet_id: PacketId,
        judged: Vec<Judged<'_>>,
        subscription_id: Option<u32>,
    ) {
        answer(turn, connection, packet_id, &judged);
        self.begin_playbacks(turn, connection, judged, subscription_id);
    }

    fn begin_playbacks(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        judged: Vec<Judged<'_>>,
        subscription_id: Option<u32>,
    ) {
        for Judged { replay, options, .. } in judged {
            if let Replayed::Granted(wanted) = replay {
                self.begin_playback(connection, wanted, options, subscription_id);
            }
        }
        self.play_on(turn, connection);
    }

    /// Put the granted filters into the index; returns those whose retained messages are wanted.
    fn subscribe_transient(
        &self,
        turn: &mut Turn<Self>,
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
            if judged.is_replay() {
                continue; // in no index, and the log has what is retained
            }
            if judged.is_shared {
                continue; // the machine's to grant; nothing retained is sent for it (§4.8.2)
            }
            let is_wanted = match judged.options.retain_handling {
                RetainHandling::Send => true,
                RetainHandling::SendIfNew => is_new,
                RetainHandling::DoNotSend => false,
            };
            if is_wanted {
                Self::hold_live(turn, connection);
            }
            self.index_filter(connection, judged.filter, judged.options, subscription_id);
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
        let filters: Vec<&str> = unsubscribe.filters.iter().collect();
        let are_replays = filters.iter().all(|filter| filter.starts_with(REPLAY_PREFIX));
        if connection.is_stored() && !are_replays {
            // The machine answers, and knows of no replay; what there is of them ends all the same.
            for filter in &filters {
                connection.stop_playback(filter);
            }
            let (session_epoch, _) = connection.session_ids();
            let command = Command::Unsubscribe(quantumqtt_machine::Unsubscribe {
                origin: connection.origin(self.shared.node_id),
                client_id: &connection.client_id,
                session_epoch,
                packet_id: unsubscribe.packet_id.get(),
                filters,
            });
            self.proposals.push(turn, &command);
            return Then::Continue;
        }
        let packet_id = unsubscribe.packet_id;
        if filters.iter().any(|filter| is_shared(filter))
            && self.unsubscribe_guest(turn, connection, packet_id.get(), &filters)
        {
            return Then::Continue;
        }
        let code = |filter: &str| {
            let is_replay = filter.starts_with(REPLAY_PREFIX);
            let was_there = is_replay && connection.stop_playback(filter);
            unsubscribed(was_there || self.unindex_filter(connection, filter)).0
        };
        let codes: Vec<u8> = filters.into_iter().map(code).collect();
        self.go_on_with_replay(turn, connection);
        write_unsuback(turn, &connection.outlet, connection.version, packet_id, &codes);
        Then::Continue
    }
}

/// SUBACK, with the first reason there is for a replay that cannot be.
fn answer(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    packet_id: PacketId,
    judged: &[Judged<'_>],
) {
    let codes: Vec<u8> = judged.iter().map(|judged| judged.code.0).collect();
    match judged.iter().find_map(Judged::why) {
        Some(why) => write_suback_why(turn, connection, packet_id, &codes, &why.to_string()),
        None => write_suback(turn, &connection.outlet, connection.version, packet_id, &codes),
    }
}

impl<'a> Judged<'a> {
    fn replay(
        filter: &'a str,
        options: SubscribeOptions,
        judgement: Result<PlaybackWanted, Option<ReplayError>>,
        is_stored: bool,
    ) -> Self {
        let (code, replay) = match judgement {
            // Packet ids of a stored session are the machine's: what it does not send has none.
            Ok(wanted) if is_stored => (ReasonCode(0), Replayed::Granted(wanted)),
            Ok(wanted) => (granted(options), Replayed::Granted(wanted)),
            Err(None) => (ReasonCode::NOT_AUTHORIZED, Replayed::Refused(None)),
            Err(Some(why @ ReplayError::TooMany(_))) => {
                (ReasonCode::QUOTA_EXCEEDED, Replayed::Refused(Some(why)))
            }
            Err(why) => (ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, Replayed::Refused(why)),
        };
        Self { filter, is_shared: false, options: machine_options(options), code, replay }
    }

    fn is_replay(&self) -> bool {
        !matches!(self.replay, Replayed::No)
    }

    fn why(&self) -> Option<&ReplayError> {
        if let Replayed::Refused(why) = &self.replay { why.as_ref() } else { None }
    }

    fn refuse_replay_among_others(&mut self) {
        if matches!(self.replay, Replayed::Granted(_)) {
            self.code = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            self.replay = Replayed::Refused(Some(ReplayError::Mixed));
        }
    }

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
