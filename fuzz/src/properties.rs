//! Invariant: a property block is refused, or every view of it tells the same story.
//!
//! Input: one byte for the carrying packet, then the bytes of the block without its length. What
//! the iterator yields is what `contains` and `find` say; pushed one by one into a fresh block, the
//! same properties give a block that reads the same; what may be forwarded may be forwarded again.

use quantumqtt_wire::{Carrier, Properties, PropertyBlock, PropertyId};

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let carriers: Vec<Carrier> = Carrier::all().collect();
    let carrier = carriers[usize::from(choice) % carriers.len()];
    if let Ok(properties) = Properties::from_forwardable(rest) {
        views_agree(&properties);
    }
    let Ok(properties) = Properties::decode(carrier, rest) else { return };
    assert_eq!(properties.as_bytes(), rest);
    views_agree(&properties);
    let mut block = PropertyBlock::new();
    for property in properties.iter() {
        assert_eq!(block.push(property), Ok(()), "read once, so it can be written");
    }
    assert!(block.as_properties().iter().eq(properties.iter()));
    assert!(Properties::decode(carrier, block.as_bytes()).is_ok(), "legal in the same packet");
    let mut forwarded = PropertyBlock::new();
    properties.forwardable(&mut forwarded);
    let read = Properties::from_forwardable(forwarded.as_bytes());
    assert!(read.is_ok(), "what we forward we accept: {read:?}");
}

fn views_agree(properties: &Properties<'_>) {
    let mut seen = 0;
    for property in properties.iter() {
        let id: PropertyId = property.id();
        assert!(properties.contains(id));
        assert!(properties.find(id).is_some());
        seen += 1;
    }
    assert_eq!(properties.is_empty(), seen == 0);
    assert!(properties.user_properties().count() <= seen);
    assert!(properties.subscription_ids().all(|id| id > 0));
}
