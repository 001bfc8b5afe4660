//! The publishes of one client that wait for an acknowledgement, by packet id.
//!
//! Ids are given out in a circle of at least twice the window, so that an id comes round again only
//! long after its answer; one that is still taken is passed over. A slot holds when the message
//! left and what its answer must be:
//!
//! - QoS 1: `Acknowledgement` until PUBACK;
//! - QoS 2: `Received` until PUBREC, then `Completion` until PUBCOMP.
//!
//! An answer that its slot does not wait for is the broker's mistake and is reported, not obeyed.

use quantumqtt_wire::PacketId;

const ID_MAX: usize = 65_535;
const STATE_BITS: u32 = 2;

/// What a slot waits for. The numbers are what the slot stores; 0 means free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Awaited {
    /// PUBACK.
    Acknowledgement = 1,
    /// PUBREC.
    Received = 2,
    /// PUBCOMP.
    Completion = 3,
}

/// The window of one publishing client.
#[derive(Debug)]
pub(crate) struct Inflight {
    /// One word per id: the state in the low bits, nanoseconds above. A zeroed vector costs no
    /// memory until it is touched, which matters at a thousand clients with large windows.
    slots: Vec<u64>,
    cursor: usize,
    count: usize,
    window: usize,
}

impl Inflight {
    /// A window of `window` messages; 0 means as many as there are ids.
    pub(crate) fn new(window: u32) -> Self {
        let window = if window == 0 { ID_MAX } else { (window as usize).min(ID_MAX) };
        let slots = (2 * window).next_power_of_two().clamp(16, ID_MAX);
        Self { slots: vec![0; slots], cursor: 0, count: 0, window }
    }

    /// The broker takes fewer than we would like (Receive Maximum of its CONNACK).
    pub(crate) fn limit_window(&mut self, receive_maximum: u16) {
        self.window = self.window.min(usize::from(receive_maximum));
    }

    /// How many more messages may leave now.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.window.saturating_sub(self.count)
    }

    /// Takes an id for a message that leaves at `now_ns`. Ask [`Self::room`] first.
    #[inline]
    pub(crate) fn begin(&mut self, awaited: Awaited, now_ns: u64) -> PacketId {
        debug_assert!(self.room() > 0, "the window is full");
        while self.slots[self.cursor] != 0 {
            self.advance();
        }
        let at = self.cursor;
        self.slots[at] = now_ns << STATE_BITS | awaited as u64;
        self.count += 1;
        self.advance();
        PacketId::new(at as u16 + 1).expect("one above zero")
    }

    #[inline]
    fn advance(&mut self) {
        self.cursor += 1;
        if self.cursor == self.slots.len() {
            self.cursor = 0;
        }
    }

    /// PUBREC: from `Received` to `Completion`; whether that was awaited.
    #[inline]
    pub(crate) fn on_received(&mut self, packet_id: u16) -> bool {
        match self.slot(packet_id) {
            Some(slot) if *slot & STATE_MASK == Awaited::Received as u64 => {
                *slot = *slot & !STATE_MASK | Awaited::Completion as u64;
                true
            }
            _ => false,
        }
    }

    /// The last answer: frees the id and returns when its message left, if that was awaited.
    #[inline]
    pub(crate) fn finish(&mut self, packet_id: u16, awaited: Awaited) -> Option<u64> {
        let slot = self.slot(packet_id)?;
        if *slot & STATE_MASK != awaited as u64 {
            return None;
        }
        let sent_ns = *slot >> STATE_BITS;
        *slot = 0;
        self.count -= 1;
        Some(sent_ns)
    }

    #[inline]
    fn slot(&mut self, packet_id: u16) -> Option<&mut u64> {
        self.slots.get_mut(usize::from(packet_id).checked_sub(1)?)
    }
}

const STATE_MASK: u64 = (1 << STATE_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round_and_pass_over_the_one_still_taken() {
        let mut inflight = Inflight::new(2);
        let stuck = inflight.begin(Awaited::Acknowledgement, 5).get();
        for round in 0..50 {
            let id = inflight.begin(Awaited::Acknowledgement, round).get();
            assert_ne!(id, stuck);
            assert_eq!(inflight.room(), 0);
            assert_eq!(inflight.finish(id, Awaited::Acknowledgement), Some(round));
        }
        assert_eq!(inflight.finish(stuck, Awaited::Acknowledgement), Some(5));
        assert_eq!(inflight.count, 0);
    }

    #[test]
    fn only_the_awaited_answer_counts() {
        let mut inflight = Inflight::new(10);
        let id = inflight.begin(Awaited::Received, 9).get();
        assert_eq!(inflight.finish(id, Awaited::Completion), None, "no PUBREC yet");
        assert_eq!(inflight.finish(id, Awaited::Acknowledgement), None, "not QoS 1");
        assert!(inflight.on_received(id));
        assert!(!inflight.on_received(id), "the second PUBREC");
        assert_eq!(inflight.finish(id, Awaited::Completion), Some(9));
        assert_eq!(inflight.finish(id, Awaited::Completion), None, "the second PUBCOMP");
        assert_eq!(inflight.finish(0, Awaited::Completion), None);
        assert_eq!(inflight.finish(u16::MAX, Awaited::Completion), None);
    }

    #[test]
    fn the_widest_window_uses_every_id() {
        let mut inflight = Inflight::new(0);
        let mut ids: Vec<u16> =
            (0..ID_MAX).map(|_| inflight.begin(Awaited::Acknowledgement, 1).get()).collect();
        assert_eq!(inflight.room(), 0);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), ids[0]), (ID_MAX, 1));
    }

    #[test]
    fn the_brokers_receive_maximum_narrows_the_window() {
        let mut inflight = Inflight::new(100);
        inflight.limit_window(20);
        assert_eq!(inflight.room(), 20);
        inflight.limit_window(u16::MAX);
        assert_eq!(inflight.room(), 20);
    }
}
