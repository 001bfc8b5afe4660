//! The subscriptions of one session, by filter.
//!
//! Sorted blocks behind shared pointers: a copy of the set shares every block, and a later change
//! copies the one it touches. A session with a million filters is thereby copied for a checkpoint
//! in the time of a few thousand pointers. A filter is stored once, not beside itself as key.

use std::sync::Arc;

use crate::effect::Subscription;

/// Filters of one block: what the first change after a copy has to copy at most.
const BLOCK_COUNT_MAX: usize = 64;

/// See the head of this file.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubscriptionSet {
    /// In order of their first filters; none is empty.
    blocks: Vec<Arc<Vec<Subscription>>>,
    count: usize,
}

/// A place in a set that does not change while it is walked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SubscriptionPlace {
    block: usize,
    within: usize,
}

impl SubscriptionSet {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, filter: &str) -> Option<&Subscription> {
        let block = self.blocks.get(self.block_of(filter))?;
        Some(&block[place_in(block, filter).ok()?])
    }

    pub(crate) fn contains(&self, filter: &str) -> bool {
        self.get(filter).is_some()
    }

    pub(crate) fn last(&self) -> Option<&Subscription> {
        self.blocks.last()?.last()
    }

    /// All subscriptions in the order of their filters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subscription> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// The subscription at `place`, which moves on to the next.
    pub(crate) fn walk(&self, place: &mut SubscriptionPlace) -> Option<&Subscription> {
        let block = self.blocks.get(place.block)?;
        let subscription = block.get(place.within);
        place.within += 1;
        if place.within >= block.len() {
            *place = SubscriptionPlace { block: place.block + 1, within: 0 };
        }
        subscription
    }

    /// Adds a subscription or replaces the one with its filter, which is returned.
    pub(crate) fn insert(&mut self, subscription: Subscription) -> Option<Subscription> {
        let block_no = self.block_of(&subscription.filter);
        let Some(block) = self.blocks.get_mut(block_no) else {
            self.blocks.push(Arc::new(vec![subscription]));
            self.count = 1;
            return None;
        };
        let block = Arc::make_mut(block);
        let place = match place_in(block, &subscription.filter) {
            Ok(place) => return Some(std::mem::replace(&mut block[place], subscription)),
            Err(place) => place,
        };
        block.insert(place, subscription);
        self.count += 1;
        if block.len() > BLOCK_COUNT_MAX {
            let behind = block.split_off(BLOCK_COUNT_MAX / 2);
            self.blocks.insert(block_no + 1, Arc::new(behind));
        }
        None
    }

    pub(crate) fn remove(&mut self, filter: &str) -> Option<Subscription> {
        let block_no = self.block_of(filter);
        let shared = self.blocks.get_mut(block_no)?;
        let place = place_in(shared, filter).ok()?;
        let block = Arc::make_mut(shared);
        let subscription = block.remove(place);
        if block.is_empty() {
            self.blocks.remove(block_no);
        }
        self.count -= 1;
        Some(subscription)
    }

    /// The block a filter stands in, or would stand in.
    fn block_of(&self, filter: &str) -> usize {
        let behind = self.blocks.partition_point(|block| *block[0].filter <= *filter);
        behind.saturating_sub(1)
    }
}

fn place_in(block: &[Subscription], filter: &str) -> Result<usize, usize> {
    block.binary_search_by(|subscription| (*subscription.filter).cmp(filter))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use quantumqtt_wire::QoS;

    use super::{SubscriptionPlace, SubscriptionSet};
    use crate::command::SubscriptionOptions;
    use crate::effect::Subscription;

    fn subscription(filter: &str, id: u32) -> Subscription {
        let options = SubscriptionOptions::with_qos(QoS::AtMostOnce);
        Subscription { filter: filter.into(), options, subscription_id: Some(id) }
    }

    proptest! {
        #[test]
        fn it_is_a_map_in_the_order_of_filters(
            steps in prop::collection::vec(("[a-d]{1,4}", any::<bool>(), any::<u32>()), 0..400),
        ) {
            let mut set = SubscriptionSet::default();
            let mut map = BTreeMap::new();
            for (filter, adds, id) in steps {
                let copy = set.clone();
                let before: Vec<Subscription> = set.iter().cloned().collect();
                if adds {
                    let subscription = subscription(&filter, id);
                    let replaced = map.insert(filter, subscription.clone());
                    prop_assert_eq!(set.insert(subscription), replaced);
                } else {
                    prop_assert_eq!(set.remove(&filter), map.remove(&filter));
                    prop_assert!(!set.contains(&filter));
                }
                prop_assert!(copy.iter().eq(before.iter()), "a copy stays as it was");
                prop_assert_eq!(set.len(), map.len());
            }
            prop_assert!(set.iter().eq(map.values()));
            let mut place = SubscriptionPlace::default();
            let walked = std::iter::from_fn(|| set.walk(&mut place));
            prop_assert!(walked.eq(map.values()));
        }
    }
}
