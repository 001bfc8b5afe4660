//! How many connections each address has, when that is bounded.
//!
//! Asked once per connection, at its beginning and its end; without a bound not at all. The map is
//! cut in parts, each under its own small lock, so that shards which accept at once rarely meet.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use parking_lot::Mutex;

const PARTS: usize = 16;

#[derive(Debug)]
pub(crate) struct Addresses {
    count_max: usize,
    /// Keyed: clients choose their addresses.
    hasher: RandomState,
    parts: [Mutex<HashMap<IpAddr, usize>>; PARTS],
}

impl Addresses {
    pub(crate) fn new(count_max: usize) -> Self {
        Self { count_max, hasher: RandomState::new(), parts: Default::default() }
    }

    fn part(&self, address: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        &self.parts[self.hasher.hash_one(address) as usize % PARTS]
    }

    /// Count one more; false when it is one too many, and then it is not counted.
    pub(crate) fn enter(&self, address: IpAddr) -> bool {
        let mut part = self.part(address).lock();
        let count = part.entry(address).or_default();
        let has_room = *count < self.count_max;
        *count += usize::from(has_room);
        has_room
    }

    /// Count one less.
    pub(crate) fn leave(&self, address: IpAddr) {
        let mut part = self.part(address).lock();
        if let Some(count) = part.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                part.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: NET-15
    #[test]
    fn address_that_left_may_come_again_and_leaves_no_trace() {
        let addresses = Addresses::new(2);
        let one: IpAddr = [10, 0, 0, 1].into();
        assert!(addresses.enter(one) && addresses.enter(one) && !addresses.enter(one));
        assert!(addresses.enter([10, 0, 0, 2].into()), "another address is another matter");
        addresses.leave(one);
        assert!(addresses.enter(one));
        (0..2).for_each(|_| addresses.leave(one));
        assert!(addresses.part(one).lock().get(&one).is_none());
    }
}
