//! Playbacks: the committed log, streamed to whoever subscribed to `$replay/{from}/{filter}`.
//!
//! # Theory of operation
//!
//! A playback is a place in the log and a filter, kept with its connection. It is served from the
//! log and from nothing else, at the live edge too: so its order is the log's, and between what was
//! and what comes there is no seam at which a message could be lost or doubled. A step goes:
//!
//! 1. The client has taken what it was sent: there is room in its buffer and in its window.
//! 2. A reader thread is asked for the next stretch (`quantumqtt_records::ReaderPool`). If what is
//!    next was committed and readers cannot see it yet, the log is asked to catch up first.
//! 3. The answer comes by mail. Records are written until there is no more room; the place moves
//!    behind the last that was written, and the rest is forgotten: answers hold memory that all
//!    readers share, and a client that is slow must not sit on it.
//!
//! At the end of the log a playback waits, and the partition's owner rings its shard once per turn
//! in which something was committed. A shard never waits for a disk.
//!
//! # Rules
//!
//! - One question per connection is under way; its playbacks take turns.
//! - Every record is judged by the rules of the moment it is sent, as every delivery is.
//! - What retention has taken is never stepped over: the connection ends and says which offsets.
//! - A playback lives on its connection, whatever session that has: the client knows the offset of
//!   each message, and begins there when it comes back. A stored session's packet ids are the
//!   machine's, so there it is sent at `QoS` 0, paced by its buffer, which loses nothing.
//! - What has expired since, or is larger than the client takes, is left out as anywhere else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use quantumqtt_machine::SubscriptionOptions;
use quantumqtt_reactor::{ConnectionId, Connections, Then, Turn};
use quantumqtt_records::{Answer, Ask, Error as LogError, Record, Reply, Row, Start, Stretch};
use quantumqtt_topics::{Action, Filter};
use quantumqtt_wire::{PacketId, Property, PropertyBlock, Publish, QoS, Version};

use crate::connection::Connection;
use crate::limits::{
    PLAYBACK_BYTES, PLAYBACK_RETRY_MS, PLAYBACK_ROWS, PLAYBACKS_MAX, REPLAY_OFFSET,
    REPLAY_TIMESTAMP,
};
use crate::outbound::{Encoded, Expiry, Room, Sent, push_publish, room, send};
use crate::packets::write_disconnect_why;
use crate::reasons::{CloseReason, DropReason};
use crate::replay_from::{ReplayError, parse_replay};
use crate::shard::{Mail, ShardService, go_on};
use crate::utc::write_utc;

/// A playback that is about to begin.
pub(crate) struct PlaybackWanted {
    pub(crate) text: Box<str>,
    pattern: Arc<str>,
    start: Start,
}

/// One playback of a connection.
struct Playback {
    /// Tells it from the one before it by the same filter.
    number: u64,
    wanted: PlaybackWanted,
    options: SubscriptionOptions,
    subscription_id: Option<u32>,
    /// What the message takes that found no room last; 0 for none.
    due_bytes: usize,
    _counted: Counted,
}

/// Says that there is a playback, as long as it is there.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All playbacks of a connection.
#[derive(Default)]
pub(crate) struct Playbacks {
    row: Vec<Playback>,
    /// Whose turn it is.
    next: usize,
    next_number: u64,
    /// The one for which something is under way.
    asked_for: Option<u64>,
}

/// What a reader thread found for a playback.
pub(crate) struct Played {
    number: u64,
    answer: Result<Answer, LogError>,
}

/// What a shard knows of the playbacks of its connections.
#[derive(Default)]
pub(crate) struct PlaybackDesk {
    /// Those who wait for the log to grow.
    at_edge: BTreeSet<ConnectionId>,
    /// Those whom the reader threads had no room for, and when to ask once more.
    postponed: Vec<ConnectionId>,
    retry_at_ms: Option<u64>,
    /// On the partition's owner: the end that others were told of.
    told_offset: u64,
}

impl PlaybackDesk {
    /// A connection is gone.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.at_edge.remove(&connection);
    }

    pub(crate) fn next_wake_ms(&self) -> Option<u64> {
        self.retry_at_ms
    }
}

impl Connection {
    /// How many playbacks it has by other filters than this.
    pub(crate) fn playback_count_without(&self, text: &str) -> usize {
        let playbacks = self.rare.as_ref().and_then(|rare| rare.playbacks.as_ref());
        let others = |playback: &&Playback| *playback.wanted.text != *text;
        playbacks.map_or(0, |playbacks| playbacks.row.iter().filter(others).count())
    }

    /// Ends the playback by this filter; true when there was one.
    pub(crate) fn stop_playback(&mut self, text: &str) -> bool {
        let rare = self.rare.as_mut();
        let Some(playbacks) = rare.and_then(|rare| rare.playbacks.as_mut()) else { return false };
        let before = playbacks.row.len();
        playbacks.row.retain(|playback| *playback.wanted.text != *text);
        playbacks.row.len() < before
    }
}

impl ShardService {
    /// What a filter that begins with `$replay/` asks for, if that is possible now, beside what the
    /// same packet has `begun`. Whether the client may have it was looked at before.
    pub(crate) fn plan_playback(
        &self,
        now_ms: u64,
        connection: &Connection,
        text: &str,
        begun: usize,
    ) -> Result<PlaybackWanted, ReplayError> {
        let (from, pattern) = parse_replay(text)?;
        let log = self.shared.message_log.as_ref().ok_or(ReplayError::NoLog)?;
        if connection.playback_count_without(text) + begun >= PLAYBACKS_MAX {
            return Err(ReplayError::TooMany(PLAYBACKS_MAX));
        }
        let end = self.shared.next_offset.load(Ordering::Acquire);
        let start = from.start(now_ms, log.reader().bounds(), end)?;
        Ok(PlaybackWanted { text: text.into(), pattern: pattern.into(), start })
    }

    /// Begins a playback, in place of one by the same filter.
    pub(crate) fn begin_playback(
        &self,
        connection: &mut Connection,
        wanted: PlaybackWanted,
        options: SubscriptionOptions,
        subscription_id: Option<u32>,
    ) {
        connection.stop_playback(&wanted.text);
        let playbacks = connection.rare().playbacks.get_or_insert_default();
        let number = playbacks.next_number;
        playbacks.next_number += 1;
        let counted = Counted::new(&self.shared.playbacks);
        playbacks.row.push(Playback {
            number,
            wanted,
            options,
            subscription_id,
            due_bytes: 0,
            _counted: counted,
        });
    }

    /// Takes the next step, if a playback has one to take and the client has room for it.
    pub(crate) fn play_on(&mut self, turn: &mut Turn<Self>, connection: &mut Connection) {
        let is_stored = connection.is_stored();
        let id = connection.id;
        let rare = connection.rare.as_mut().and_then(|rare| rare.playbacks.as_mut());
        let Some(playbacks) = rare.filter(|playbacks| playbacks.asked_for.is_none()) else {
            return;
        };
        // The owner rings whoever is at the edge after it has moved the end; see `tell_of_growth`.
        fence(Ordering::SeqCst);
        let end = self.shared.next_offset.load(Ordering::SeqCst);
        let count = playbacks.row.len();
        let has_more = |at: &usize| match playbacks.row[*at].wanted.start {
            Start::At(offset) => offset < end,
            Start::Earliest | Start::Since(_) => true,
        };
        let next = (0..count).map(|step| (playbacks.next + step) % count).find(has_more);
        let Some(next) = next else {
            if count > 0 {
                self.playbacks.at_edge.insert(id);
            }
            return;
        };
        let needs_id = !is_stored && playbacks.row[next].options.qos != QoS::AtMostOnce;
        let due_bytes = playbacks.row[next].due_bytes;
        match turn.write(&connection.outlet, |out| room(out, needs_id, due_bytes)) {
            Room::There => {}
            // Acknowledgements and room in the socket bring us back.
            Room::NoId | Room::Blocked => return,
            // The end of the turn flushes; after that it is one or the other.
            Room::Unflushed => return turn.post(id.shard(), Mail::PlayOn { connection: id }),
        }
        playbacks.next = next;
        playbacks.asked_for = Some(playbacks.row[next].number);
        if !self.ask_for_stretch(id, &playbacks.row[next]) {
            playbacks.asked_for = None;
            self.playbacks.postponed.push(id);
            self.playbacks.retry_at_ms = Some(turn.now_ms() + PLAYBACK_RETRY_MS);
        }
    }

    /// Asks a reader thread, or the log to catch up; false when no thread has room for us.
    fn ask_for_stretch(&self, connection: ConnectionId, playback: &Playback) -> bool {
        let (Some(log), Some(poster)) = (&self.shared.message_log, self.shared.poster.get()) else {
            return false; // in the first moment of a node's life; later a shard has both
        };
        let (number, poster) = (playback.number, Arc::clone(poster));
        let reader = log.reader();
        let start = playback.wanted.start;
        if let Start::At(offset) = start
            && offset >= reader.bounds().end
        {
            let shard = connection.shard();
            log.catch_up(move || poster.post(shard, Mail::CaughtUp { connection, number }));
            return true;
        }
        let pattern = Arc::clone(&playback.wanted.pattern);
        let topics = Arc::new(move |topic: &str| {
            Filter::parse(&pattern).is_ok_and(|filter| filter.matches(topic))
        });
        let stretch = Stretch { start, end: u64::MAX, topics, rows_max: PLAYBACK_ROWS };
        let complete = move |answer| {
            let played = Box::new(Played { number, answer });
            poster.post(connection.shard(), Mail::Played { connection, played });
        };
        log.pool().submit(&reader, Ask::Stretch(stretch), PLAYBACK_BYTES, complete).is_ok()
    }

    /// Readers see what a playback waits for.
    pub(crate) fn on_caught_up(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        number: u64,
    ) {
        if let Some(playbacks) = connection.rare.as_mut().and_then(|r| r.playbacks.as_mut())
            && playbacks.asked_for == Some(number)
        {
            playbacks.asked_for = None;
        }
        self.play_on(turn, connection);
    }

    /// A reader thread has answered.
    pub(crate) fn on_played(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        played: Played,
    ) {
        let Played { number, answer } = played;
        let rare = connection.rare.as_mut().and_then(|rare| rare.playbacks.as_mut());
        let Some(playbacks) = rare else { return };
        playbacks.asked_for = None;
        let Some(at) = playbacks.row.iter().position(|playback| playback.number == number) else {
            return self.play_on(turn, connection); // it was taken back meanwhile
        };
        let (options, subscription_id) =
            (playbacks.row[at].options, playbacks.row[at].subscription_id);
        let answer = match answer {
            Ok(answer) => answer,
            Err(LogError::Stopped) => return,
            Err(error) => return give_up(turn, connection, &error),
        };
        let Reply::Passage(passage) = &answer.reply else { return };
        let (mut next, mut due_bytes) = (passage.next, 0);
        for row in &passage.rows {
            if !self.play(turn, connection, row, options, subscription_id) {
                (next, due_bytes) = (row.offset(), self.bytes.len());
                break;
            }
        }
        drop(answer);
        if let Some(playbacks) = connection.rare().playbacks.as_mut()
            && let Some(playback) = playbacks.row.get_mut(at)
        {
            playback.wanted.start = Start::At(next);
            playback.due_bytes = due_bytes;
            playbacks.next = at + 1;
        }
        self.play_on(turn, connection);
    }

    /// Sends one record, unless it is none for this client; false when there is no room for it.
    fn play(
        &mut self,
        turn: &mut Turn<Self>,
        connection: &mut Connection,
        row: &Row,
        options: SubscriptionOptions,
        subscription_id: Option<u32>,
    ) -> bool {
        if !self.rights.may(connection, Action::Read, row.topic()) {
            return true;
        }
        row.with(|record| {
            let is_own = record.client_id == Some(&*connection.client_id);
            if options.no_local && is_own {
                return true;
            }
            let now_ms = turn.now_ms();
            let expires_at_ms =
                record.expiry_s.map(|s| record.now_ms.saturating_add(u64::from(s) * 1000));
            if expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                self.cells().count_drop(DropReason::Expired, 1);
                return true;
            }
            let left_s = expires_at_ms.map(|at_ms| (at_ms - now_ms).div_ceil(1000) as u32);
            let expiry = expires_at_ms.map(|at_ms| Expiry { at_ms, value_at: None });
            let qos = match record.qos {
                2 => QoS::ExactlyOnce,
                1 => QoS::AtLeastOnce,
                _ => QoS::AtMostOnce,
            };
            let qos = if connection.is_stored() { QoS::AtMostOnce } else { qos.min(options.qos) };
            self.block.clear();
            if connection.version == Version::V5 {
                fill_from_record(&mut self.block, record, left_s, subscription_id);
            }
            let publish = Publish {
                dup: false,
                qos,
                retain: record.retain && options.retain_as_published,
                topic: record.topic,
                packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MIN),
                properties: self.block.as_properties(),
                payload: record.payload,
            };
            self.bytes.clear();
            let Ok(encoded) = publish.encode(connection.version, &mut self.bytes) else {
                return true; // what was a packet once encodes; if it ever does not, it is not sent
            };
            // What we add may make a packet larger than any buffer.
            let bytes_max = turn.write(&connection.outlet, |out| out.limits().out_bytes_max);
            if self.bytes.len() > bytes_max.min(connection.packet_bytes_max as usize) {
                self.cells().count_drop(DropReason::PacketTooLarge, 1);
                return true;
            }
            let packet_id_at = encoded.packet_id_at.unwrap_or(0);
            let message =
                Encoded { bytes: &self.bytes, packet_id_at, qos, expiry, shared_id: None };
            let sent = turn.write(&connection.outlet, |out| {
                match room(out, qos != QoS::AtMostOnce, message.bytes.len()) {
                    Room::There if qos == QoS::AtMostOnce => {
                        push_publish(out, message.bytes).is_ok()
                    }
                    Room::There => send(out, message) == Sent::Taken,
                    Room::NoId | Room::Blocked | Room::Unflushed => false,
                }
            });
            if sent {
                self.cells().count_sent(qos, 1);
            }
            sent
        })
    }

    /// On the partition's owner, once it has moved the end: whoever is at the edge goes on.
    pub(crate) fn tell_of_growth(&mut self, turn: &mut Turn<Self>) {
        let end = self.shared.next_offset.load(Ordering::SeqCst);
        if end == self.playbacks.told_offset {
            return;
        }
        self.playbacks.told_offset = end;
        // Whoever begins counts itself before it looks at the end; we move the end before we look
        // at the count. So one of us sees the other.
        fence(Ordering::SeqCst);
        if self.shared.playbacks.load(Ordering::SeqCst) > 0 {
            for shard in (0..).take(self.effects_out.len()) {
                turn.post(shard, Mail::LogHasGrown);
            }
        }
    }

    /// The log has grown.
    pub(crate) fn on_growth(&mut self, turn: &mut Turn<Self>, connections: &mut Connections<Self>) {
        for id in std::mem::take(&mut self.playbacks.at_edge) {
            if let Some(connection) = connections.get_mut(id) {
                self.play_on(turn, connection);
            }
        }
    }

    /// Asks once more for those the reader threads had no room for.
    pub(crate) fn retry_playbacks(
        &mut self,
        turn: &mut Turn<Self>,
        connections: &mut Connections<Self>,
    ) {
        if self.playbacks.retry_at_ms.is_none_or(|at_ms| at_ms > turn.now_ms()) {
            return;
        }
        self.playbacks.retry_at_ms = None;
        for id in std::mem::take(&mut self.playbacks.postponed) {
            if let Some(connection) = connections.get_mut(id) {
                self.play_on(turn, connection);
            }
        }
    }
}

/// The properties of a record as a subscriber sees them, and behind them where it stands.
fn fill_from_record(
    block: &mut PropertyBlock,
    record: &Record<'_>,
    left_s: Option<u32>,
    subscription_id: Option<u32>,
) {
    let offset = record.offset.to_string();
    let timestamp = write_utc(record.now_ms);
    let single = [
        record.payload_format.map(|format| Property::PayloadFormatIndicator(format != 0)),
        record.content_type.map(Property::ContentType),
        record.response_topic.map(Property::ResponseTopic),
        record.correlation_data.map(Property::CorrelationData),
        left_s.map(Property::MessageExpiryInterval),
        subscription_id.map(Property::SubscriptionId),
    ];
    let own = [
        Some((REPLAY_OFFSET, &*offset)),
        timestamp.as_deref().map(|timestamp| (REPLAY_TIMESTAMP, timestamp)),
    ];
    let pairs = record.user_properties.iter().copied().chain(own.into_iter().flatten());
    let pairs = pairs.map(|(key, value)| Property::UserProperty(key, value));
    for property in single.into_iter().flatten().chain(pairs) {
        // What was published is valid, and what we add is; nothing of it is there twice.
        let pushed = block.push(property);
        debug_assert!(pushed.is_ok(), "{property:?} of a record is no property");
    }
}

/// Retention was faster than the client, or the log cannot be read: it hears which offsets.
fn give_up(turn: &mut Turn<ShardService>, connection: &Connection, error: &LogError) {
    let reason = match error {
        LogError::OffsetExpired { .. } => CloseReason::ReplayExpired,
        _ => CloseReason::ReplayFailed,
    };
    write_disconnect_why(turn, connection, reason, &error.to_string());
    go_on(turn, connection, Then::Close(reason.into()));
}
