//! Topic aliases on the way out: names that a client lets us shorten (§3.3.2.3.4).
//!
//! Theory of operation. A client says in CONNECT how many it takes. Topics get them in the order in
//! which they are first sent, and keep them until the connection ends; when all are given away,
//! other topics are spelled out. The packet is rewritten at the last moment, when it goes into the
//! socket's buffer: what waits or is dropped before that has set no alias, so none is ever used
//! that its client was not told. Clients that ask for none, nearly all, pay nothing.

use std::collections::BTreeMap;

use quantumqtt_wire::{PacketType, Property, PropertyBlock, Publish, Version, frame};
use smallvec::SmallVec;

use crate::effects::fill_block;
use crate::limits::ALIAS_BYTES_MAX;

/// What one client was told.
#[derive(Debug)]
pub(crate) struct Aliases {
    maximum: u16,
    packet_bytes_max: usize,
    known: BTreeMap<Box<str>, u16>,
    topic_bytes: usize,
    block: PropertyBlock,
    bytes: Vec<u8>,
}

impl Aliases {
    pub(crate) fn new(maximum: u16, packet_bytes_max: u32) -> Self {
        Self {
            maximum,
            packet_bytes_max: packet_bytes_max as usize,
            known: BTreeMap::new(),
            topic_bytes: 0,
            block: PropertyBlock::new(),
            bytes: Vec::new(),
        }
    }

    /// One encoded PUBLISH as this client is to get it.
    pub(crate) fn shorten<'a>(&'a mut self, packet: &'a [u8]) -> &'a [u8] {
        match self.rewrite(packet) {
            Some(()) if self.bytes.len() <= self.packet_bytes_max => &self.bytes,
            _ => packet,
        }
    }

    fn rewrite(&mut self, packet: &[u8]) -> Option<()> {
        let frame = frame::peek(packet, usize::MAX).ok()??;
        if frame.packet_type != PacketType::Publish {
            return None;
        }
        let publish = Publish::decode(Version::V5, frame.flags, frame.body(packet)?).ok()?;
        let known = self.known.get(publish.topic).copied();
        let alias = known.or_else(|| self.next_for(publish.topic))?;
        let properties = publish.properties;
        let ids: SmallVec<[u32; 2]> = properties.subscription_ids().collect();
        fill_block(&mut self.block, properties, properties.message_expiry_s(), &ids);
        self.block.push(Property::TopicAlias(alias)).ok()?;
        let topic = if known.is_some() { "" } else { publish.topic };
        let properties = self.block.as_properties();
        self.bytes.clear();
        Publish { topic, properties, ..publish }.encode(Version::V5, &mut self.bytes).ok()?;
        if known.is_none() && self.bytes.len() <= self.packet_bytes_max {
            self.topic_bytes += publish.topic.len();
            self.known.insert(publish.topic.into(), alias);
        }
        Some(())
    }

    fn next_for(&self, topic: &str) -> Option<u16> {
        let alias = self.known.len() as u16 + 1;
        let has_room = self.topic_bytes + topic.len() <= ALIAS_BYTES_MAX;
        (alias <= self.maximum && has_room).then_some(alias)
    }
}
