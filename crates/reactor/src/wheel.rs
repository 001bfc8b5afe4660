//! Deadlines of all connections of a shard, to a coarse tick.
//!
//! Theory of operation. A wheel of slots, one per tick; a connection is put into the slot of its
//! deadline, or into the farthest slot if that lies beyond the horizon. Nothing is ever moved: a
//! deadline that was postponed is found out when its old slot comes up, and put in again. So
//! activity on a connection costs a store, not a wheel operation, and the loop never looks at
//! connections that are not due [DP-31].

use crate::connections::ConnectionId;

const TICK_MS: u64 = 125;
const SLOTS: u64 = 512;

#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Vec<Vec<ConnectionId>>,
    /// The first tick that has not been served.
    next_tick: u64,
    count: usize,
}

impl Wheel {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { slots: vec![Vec::new(); SLOTS as usize], next_tick: now_ms / TICK_MS, count: 0 }
    }

    /// Look at `id` no later than `at_ms` (rounded up to a tick); returns when that will be.
    pub(crate) fn insert(&mut self, id: ConnectionId, at_ms: u64) -> u64 {
        let tick = at_ms.div_ceil(TICK_MS).clamp(self.next_tick, self.next_tick + SLOTS - 1);
        self.slots[(tick % SLOTS) as usize].push(id);
        self.count += 1;
        tick * TICK_MS
    }

    /// Move every id whose tick has come into `due`.
    pub(crate) fn advance(&mut self, now_ms: u64, due: &mut Vec<ConnectionId>) {
        let now_tick = now_ms / TICK_MS;
        // After a long sleep each slot needs one look, not one per missed tick.
        let last = now_tick.min(self.next_tick.saturating_add(SLOTS - 1));
        while self.next_tick <= last {
            let slot = &mut self.slots[(self.next_tick % SLOTS) as usize];
            self.count -= slot.len();
            due.append(slot);
            if slot.capacity() > 64 {
                slot.shrink_to(64);
            }
            self.next_tick += 1;
        }
        self.next_tick = self.next_tick.max(now_tick + 1);
    }

    /// When the next slot with anything in it comes up.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        (self.next_tick..self.next_tick + SLOTS)
            .find(|tick| !self.slots[(tick % SLOTS) as usize].is_empty())
            .map(|tick| tick * TICK_MS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId::new(0, 0, slot)
    }

    #[test]
    fn far_deadlines_come_up_at_the_horizon() {
        let mut wheel = Wheel::new(0);
        let looked_at = wheel.insert(id(1), 10_000_000);
        assert!(looked_at < 10_000_000, "the caller puts it in again");
        assert_eq!(wheel.next_due_ms(), Some(looked_at));
    }

    proptest! {
        // req: DP-31
        #[test]
        fn every_id_comes_up_once_and_not_early(
            deadlines in proptest::collection::vec(0u64..60_000, 1..50),
            steps in proptest::collection::vec(1u64..20_000, 1..60),
        ) {
            let mut wheel = Wheel::new(0);
            let planned: Vec<u64> = (0u32..)
                .zip(&deadlines)
                .map(|(slot, &at_ms)| wheel.insert(id(slot), at_ms))
                .collect();
            let (mut now_ms, mut seen) = (0, Vec::new());
            for step in steps {
                now_ms += step;
                let mut due = Vec::new();
                wheel.advance(now_ms, &mut due);
                for found in due {
                    let slot = (0u32..).zip(&planned).find(|&(slot, _)| id(slot) == found);
                    let (slot, at_ms) = slot.unwrap();
                    prop_assert!(*at_ms <= now_ms && deadlines[slot as usize] <= now_ms);
                    seen.push(found);
                }
                prop_assert!(wheel.next_due_ms().is_none_or(|due_ms| due_ms > now_ms));
            }
            seen.sort_unstable();
            let before = seen.len();
            seen.dedup();
            prop_assert_eq!(before, seen.len());
            let missing = planned.iter().filter(|&&at_ms| at_ms <= now_ms / TICK_MS * TICK_MS);
            prop_assert_eq!(missing.count(), before);
        }
    }
}
