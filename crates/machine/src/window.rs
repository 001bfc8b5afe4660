//! The out-window of one session: packet ids, what the client still owes us, in which order.
//!
//! Rules:
//! - Ids run 1 to 65 535 and around, skipping every id that is in use (X-15). They are given out
//!   here, inside apply, so every replica gives the same message the same id.
//! - `QoS` 1 is held until PUBACK, `QoS` 2 until PUBCOMP. After PUBREC only PUBREL may be sent
//!   again, so the message itself is let go then [MQTT-4.3.3-6].
//! - At most `maximum` exchanges are open on the present connection: the smaller of the client's
//!   Receive Maximum and our own bound. Everything else waits in `backlog.rs`.
//! - A new connection repeats what is open: PUBLISH in the original order, PUBREL in the order in
//!   which PUBREC came [MQTT-4.6.0-1, MQTT-4.6.0-4]. It may take less than the one before; what
//!   does not fit is repeated as room appears, ahead of the backlog.
//!
//! Stages of an exchange:
//!
//! ```text
//! begin ──► Sent ──PUBACK / PUBREC≥0x80──► gone          resume: Sent ──► Unsent ──► Sent
//!             └────PUBREC──► Released ──PUBCOMP──► gone          Released stays Released
//! ```
//!
//! Absent on purpose: timers. Nothing is ever repeated within one connection.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::backlog::Delivery;

/// Where an exchange stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Begun on an earlier connection and not yet repeated on this one.
    Unsent(Delivery),
    /// PUBLISH was sent on this connection.
    Sent(Delivery),
    /// PUBREC was received: only PUBREL is left.
    Released,
}

/// One open exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) packet_id: u16,
    pub(crate) stage: Stage,
}

/// What an acknowledgement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckOutcome {
    /// The exchange is over and its id is free.
    Finished,
    /// PUBREL is due.
    Release,
    /// No exchange waits for this acknowledgement.
    Unknown,
}

/// What a new connection is sent of an exchange that an earlier one began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repeat {
    Publish(u16, Delivery),
    Release(u16),
}

/// See the head of this file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// Exchanges in the order in which they are repeated: as begun, released ones as released.
    exchanges: BTreeMap<u64, Exchange>,
    /// From packet id to place in `exchanges`.
    places: BTreeMap<u16, u64>,
    next_place: u64,
    next_id: u16,
    maximum: u16,
    /// Exchanges at `Sent` or `Released`: those that count against `maximum`.
    open_count: usize,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            exchanges: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
            next_id: 1,
            maximum: 0,
            open_count: 0,
        }
    }

    /// A window as it was stored: exchanges in the order in which they would be repeated. `None`
    /// if no window can ever have been like that.
    pub(crate) fn restore(next_id: u16, maximum: u16, exchanges: Vec<Exchange>) -> Option<Self> {
        let mut window = Self { next_id, maximum, ..Self::new() };
        for exchange in exchanges {
            let is_open = !matches!(exchange.stage, Stage::Unsent(_));
            window.open_count += usize::from(is_open);
            window.places.insert(exchange.packet_id, window.next_place);
            window.exchanges.insert(window.next_place, exchange);
            window.next_place += 1;
        }
        (next_id != 0 && window.is_sound()).then_some(window)
    }

    /// The first exchange behind a place, and its place; `None` begins at the first.
    pub(crate) fn walk(&self, after: Option<u64>) -> Option<(u64, &Exchange)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut ahead = self.exchanges.range((from, Bound::Unbounded));
        ahead.next().map(|(place, exchange)| (*place, exchange))
    }

    /// Exchanges that are not finished.
    pub(crate) fn len(&self) -> usize {
        self.exchanges.len()
    }

    /// Whether a new exchange may begin: there is room, and nothing older waits to be repeated.
    pub(crate) fn admits(&self) -> bool {
        self.open_count < usize::from(self.maximum) && self.open_count == self.exchanges.len()
    }

    /// Begins an exchange and returns its packet id. The caller has asked `admits`.
    pub(crate) fn begin(&mut self, delivery: Delivery) -> u16 {
        debug_assert!(self.admits(), "the window is full");
        let packet_id = self.take_free_id();
        self.places.insert(packet_id, self.next_place);
        self.exchanges
            .insert(self.next_place, Exchange { packet_id, stage: Stage::Sent(delivery) });
        self.next_place += 1;
        self.open_count += 1;
        packet_id
    }

    /// A free id exists: `maximum` is below 65 535, so the walk ends.
    fn take_free_id(&mut self) -> u16 {
        loop {
            let packet_id = self.next_id;
            self.next_id = packet_id.checked_add(1).unwrap_or(1);
            if !self.places.contains_key(&packet_id) {
                return packet_id;
            }
        }
    }

    /// PUBACK ends a `QoS` 1 exchange.
    pub(crate) fn on_puback(&mut self, packet_id: u16) -> AckOutcome {
        match self.stage(packet_id) {
            Some(Stage::Sent(delivery) | Stage::Unsent(delivery))
                if !delivery.is_exactly_once() =>
            {
                self.remove(packet_id);
                AckOutcome::Finished
            }
            _ => AckOutcome::Unknown,
        }
    }

    /// PUBREC lets go of the message; with an error it ends the exchange.
    pub(crate) fn on_pubrec(&mut self, packet_id: u16, is_error: bool) -> AckOutcome {
        let is_unsent = match self.stage(packet_id) {
            Some(Stage::Released) => return AckOutcome::Release,
            Some(Stage::Sent(delivery)) if delivery.is_exactly_once() => false,
            Some(Stage::Unsent(delivery)) if delivery.is_exactly_once() => true,
            _ => return AckOutcome::Unknown,
        };
        if is_error {
            self.remove(packet_id);
            return AckOutcome::Finished;
        }
        self.move_to_end(packet_id, Stage::Released);
        self.open_count += usize::from(is_unsent);
        AckOutcome::Release
    }

    /// PUBCOMP ends a `QoS` 2 exchange.
    pub(crate) fn on_pubcomp(&mut self, packet_id: u16) -> AckOutcome {
        match self.stage(packet_id) {
            Some(Stage::Released) => {
                self.remove(packet_id);
                AckOutcome::Finished
            }
            _ => AckOutcome::Unknown,
        }
    }

    /// Forgets an exchange whose message the client was not sent, and gives the message back.
    pub(crate) fn decline(&mut self, packet_id: u16) -> Option<Delivery> {
        let delivery = match self.stage(packet_id)? {
            Stage::Sent(delivery) | Stage::Unsent(delivery) => delivery.clone(),
            Stage::Released => return None,
        };
        self.remove(packet_id);
        Some(delivery)
    }

    /// Forgets an exchange the client cannot be sent, as if it had acknowledged [MQTT-3.1.2-25].
    pub(crate) fn discard(&mut self, packet_id: u16) {
        self.remove(packet_id);
    }

    /// A new connection that takes `maximum`: returns what it is sent at once, releases first.
    ///
    /// A release is always repeated: it takes no room that its exchange does not take already.
    pub(crate) fn resume(&mut self, maximum: u16) -> Vec<Repeat> {
        self.maximum = maximum;
        self.open_count = 0;
        let mut repeats = Vec::with_capacity(self.exchanges.len());
        for exchange in self.exchanges.values_mut() {
            exchange.stage = match std::mem::replace(&mut exchange.stage, Stage::Released) {
                Stage::Sent(delivery) | Stage::Unsent(delivery) => Stage::Unsent(delivery),
                Stage::Released => {
                    self.open_count += 1;
                    repeats.push(Repeat::Release(exchange.packet_id));
                    Stage::Released
                }
            };
        }
        for exchange in self.exchanges.values_mut() {
            match &exchange.stage {
                Stage::Unsent(delivery) if self.open_count < usize::from(maximum) => {
                    let delivery = delivery.clone();
                    repeats.push(Repeat::Publish(exchange.packet_id, delivery.clone()));
                    exchange.stage = Stage::Sent(delivery);
                    self.open_count += 1;
                }
                Stage::Unsent(_) | Stage::Sent(_) | Stage::Released => {}
            }
        }
        repeats
    }

    /// The oldest exchange not yet repeated on this connection, if there is room for it.
    pub(crate) fn take_unsent(&mut self) -> Option<(u16, Delivery)> {
        if self.open_count >= usize::from(self.maximum) || self.open_count == self.exchanges.len() {
            return None;
        }
        let is_unsent = |exchange: &&mut Exchange| matches!(exchange.stage, Stage::Unsent(_));
        let exchange = self.exchanges.values_mut().find(is_unsent)?;
        let Stage::Unsent(delivery) = &exchange.stage else {
            return None;
        };
        let delivery = delivery.clone();
        exchange.stage = Stage::Sent(delivery.clone());
        self.open_count += 1;
        Some((exchange.packet_id, delivery))
    }

    /// Exchanges in the order in which they are repeated.
    pub(crate) fn exchanges(&self) -> impl ExactSizeIterator<Item = &Exchange> {
        self.exchanges.values()
    }

    /// Messages whose exchange was begun and not finished, in order; for a session that is no more.
    pub(crate) fn into_deliveries(self) -> impl Iterator<Item = Delivery> {
        self.exchanges.into_values().filter_map(|exchange| match exchange.stage {
            Stage::Unsent(delivery) | Stage::Sent(delivery) => Some(delivery),
            Stage::Released => None,
        })
    }

    /// The id the next search for a free one begins at: state, since it decides ids to come.
    pub(crate) fn next_id(&self) -> u16 {
        self.next_id
    }

    /// Whether places and counts agree with the exchanges, and no more are sent than allowed.
    pub(crate) fn is_sound(&self) -> bool {
        let count = |is_counted: fn(&Stage) -> bool| {
            self.exchanges.values().filter(|exchange| is_counted(&exchange.stage)).count()
        };
        let sent_count = count(|stage| matches!(stage, Stage::Sent(_)));
        let released_count = count(|stage| matches!(stage, Stage::Released));
        let is_placed = self.places.iter().all(|(id, place)| {
            *id != 0 && self.exchanges.get(place).is_some_and(|found| found.packet_id == *id)
        });
        is_placed
            && self.places.len() == self.exchanges.len()
            && self.open_count == sent_count + released_count
            && sent_count <= usize::from(self.maximum)
    }

    /// How many exchanges the present connection takes.
    pub(crate) fn maximum(&self) -> u16 {
        self.maximum
    }

    fn move_to_end(&mut self, packet_id: u16, stage: Stage) {
        if let Some(place) = self.places.insert(packet_id, self.next_place) {
            self.exchanges.remove(&place);
        }
        self.exchanges.insert(self.next_place, Exchange { packet_id, stage });
        self.next_place += 1;
    }

    fn stage(&self, packet_id: u16) -> Option<&Stage> {
        Some(&self.exchanges.get(self.places.get(&packet_id)?)?.stage)
    }

    fn remove(&mut self, packet_id: u16) {
        let exchange = self.places.remove(&packet_id).and_then(|at| self.exchanges.remove(&at));
        if exchange.is_some_and(|exchange| !matches!(exchange.stage, Stage::Unsent(_))) {
            self.open_count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;
    use quantumqtt_wire::QoS;

    use super::{AckOutcome, Repeat, Window};
    use crate::backlog::Delivery;
    use crate::message::Message;

    fn delivery(qos: QoS, offset: u64) -> Delivery {
        let message = Message {
            offset,
            accepted_ms: 0,
            expiry_s: None,
            qos,
            topic: "t".into(),
            properties: Bytes::new(),
            payload: Bytes::new(),
        };
        Delivery::new(Arc::new(message), qos, false)
    }

    fn open_window(maximum: u16) -> Window {
        let mut window = Window::new();
        assert_eq!(window.resume(maximum), Vec::new());
        window
    }

    // req: QOS-08
    // see: X-15
    #[test]
    fn ids_skip_zero_and_every_id_still_in_use() {
        let mut window = open_window(10);
        assert_eq!(window.begin(delivery(QoS::AtLeastOnce, 0)), 1);
        for round in 2..=u16::MAX {
            let packet_id = window.begin(delivery(QoS::AtLeastOnce, 1));
            assert_eq!(packet_id, round);
            assert_eq!(window.on_puback(packet_id), AckOutcome::Finished);
        }
        // Around: 0 is never an id, and 1 is still the oldest exchange's.
        assert_eq!(window.begin(delivery(QoS::AtLeastOnce, 2)), 2);
    }

    // req: QOS-07
    #[test]
    fn an_exchange_is_held_until_its_own_acknowledgement() {
        let mut window = open_window(10);
        let once = window.begin(delivery(QoS::AtLeastOnce, 0));
        let exactly = window.begin(delivery(QoS::ExactlyOnce, 1));
        assert_eq!(window.on_pubrec(once, false), AckOutcome::Unknown);
        assert_eq!(window.on_pubcomp(exactly), AckOutcome::Unknown);
        assert_eq!(window.on_puback(exactly), AckOutcome::Unknown);
        assert_eq!(window.len(), 2);
        assert_eq!(window.on_puback(once), AckOutcome::Finished);
        assert_eq!(window.on_pubrec(exactly, false), AckOutcome::Release);
        assert_eq!(window.on_pubrec(exactly, false), AckOutcome::Release);
        assert_eq!(window.resume(10), [Repeat::Release(exactly)]);
        assert_eq!(window.on_pubcomp(exactly), AckOutcome::Finished);
        assert_eq!(window.len(), 0);
    }

    #[test]
    fn an_error_in_pubrec_ends_the_exchange() {
        let mut window = open_window(1);
        let packet_id = window.begin(delivery(QoS::ExactlyOnce, 0));
        assert!(!window.admits());
        assert_eq!(window.on_pubrec(packet_id, true), AckOutcome::Finished);
        assert!(window.admits());
    }

    #[test]
    fn a_smaller_window_repeats_as_room_appears_and_before_anything_new() {
        let mut window = open_window(5);
        let released = window.begin(delivery(QoS::ExactlyOnce, 0));
        for offset in 1..5 {
            window.begin(delivery(QoS::AtLeastOnce, offset));
        }
        assert_eq!(window.on_pubrec(released, false), AckOutcome::Release);
        let repeats = window.resume(2);
        assert_eq!(repeats[0], Repeat::Release(released));
        assert!(matches!(repeats[1], Repeat::Publish(2, _)));
        assert_eq!(repeats.len(), 2);
        assert_eq!(window.take_unsent(), None);
        assert_eq!(window.on_puback(2), AckOutcome::Finished);
        assert!(!window.admits(), "older exchanges are repeated before new ones begin");
        assert_eq!(window.take_unsent().map(|(packet_id, _)| packet_id), Some(3));
        assert_eq!(window.take_unsent(), None);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Begin(QoS),
        PubAck(u16),
        PubRec(u16, bool),
        PubComp(u16),
        Resume(u16),
        Repeat,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop_oneof![Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)].prop_map(Step::Begin),
            2 => (0..20_u16).prop_map(Step::PubAck),
            2 => (0..20_u16, any::<bool>()).prop_map(|(id, error)| Step::PubRec(id, error)),
            2 => (0..20_u16).prop_map(Step::PubComp),
            1 => (1..6_u16).prop_map(Step::Resume),
            1 => Just(Step::Repeat),
        ];
        proptest::collection::vec(step, 1..200)
    }

    proptest! {
        // req: QOS-08
        #[test]
        fn ids_stay_unique_and_the_open_count_stays_true(steps in steps()) {
            let mut window = open_window(4);
            for step in steps {
                match step {
                    Step::Begin(qos) if window.admits() => {
                        let before: Vec<u16> =
                            window.exchanges().map(|exchange| exchange.packet_id).collect();
                        let packet_id = window.begin(delivery(qos, 0));
                        prop_assert!(packet_id != 0 && !before.contains(&packet_id));
                    }
                    Step::Begin(_) => {}
                    Step::PubAck(id) => drop(window.on_puback(id)),
                    Step::PubRec(id, is_error) => drop(window.on_pubrec(id, is_error)),
                    Step::PubComp(id) => drop(window.on_pubcomp(id)),
                    Step::Resume(maximum) => drop(window.resume(maximum)),
                    Step::Repeat => drop(window.take_unsent()),
                }
                prop_assert!(window.is_sound());
            }
        }
    }
}
