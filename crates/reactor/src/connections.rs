//! The connections of one shard, found by id.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::outlet::Outlet;
use crate::service::Service;
use crate::stream::Stream;
use crate::wrapped::Wrapped;

const SLOT_BITS: u32 = 24;
const GENERATION_BITS: u32 = 24;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

/// Names one connection of the process: shard, generation and slot in one word.
///
/// A slot is reused, its generation is not (for 16 million reuses), so a late message for a dead
/// connection finds nothing instead of a stranger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// Pack the three parts.
    pub fn new(shard: u16, generation: u32, slot: u32) -> Self {
        let generation = u64::from(generation) & GENERATION_MASK;
        let slot = u64::from(slot) & SLOT_MASK;
        Self(u64::from(shard) << 48 | generation << SLOT_BITS | slot)
    }

    /// Read an id that was written by [`ConnectionId::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The id as one number, for logs, entries and Python.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The shard that owns the connection.
    pub fn shard(self) -> u16 {
        (self.0 >> 48) as u16
    }

    fn generation(self) -> u32 {
        (self.0 >> SLOT_BITS & GENERATION_MASK) as u32
    }

    fn slot(self) -> usize {
        (self.0 & SLOT_MASK) as usize
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.shard(), self.slot(), self.generation())
    }
}

/// One socket and what the service keeps for it.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one socket")]
pub(crate) struct Slot<S: Service> {
    pub(crate) stream: Stream,
    pub(crate) outlet: Arc<Outlet<S::Outbound>>,
    /// None before the layers have agreed (`opening`), and while lingering: the service has not
    /// seen it yet, or has already let go.
    pub(crate) connection: Option<S::Connection>,
    /// What lies between the socket and the service; None for bare bytes.
    pub(crate) wrapped: Option<Box<Wrapped>>,
    /// The address it counts for, where addresses are counted.
    pub(crate) counted: Option<Box<IpAddr>>,
    /// The unread beginning of a packet; empty (and unallocated) most of the time.
    pub(crate) leftover: Vec<u8>,
    /// The kernel may have bytes for us.
    pub(crate) readable: bool,
    /// The kernel has told that the peer closed its side: read on until the end shows.
    pub(crate) read_closed: bool,
    /// The service asked for silence.
    pub(crate) paused: bool,
    /// Already on the shard's list of sockets to serve.
    pub(crate) queued: bool,
    /// The layers have not agreed yet.
    pub(crate) opening: bool,
    /// Position of its listener in the spec.
    pub(crate) listener: u16,
    pub(crate) deadline_ms: u64,
    /// The earliest wheel entry that will look at this slot.
    pub(crate) scheduled_ms: u64,
}

/// The connections of one shard.
pub struct Connections<S: Service> {
    shard: u16,
    slots: Vec<(u32, Option<Slot<S>>)>,
    free: Vec<u32>,
    count: usize,
}

impl<S: Service> Connections<S> {
    pub(crate) fn new(shard: u16) -> Self {
        Self { shard, slots: Vec::new(), free: Vec::new(), count: 0 }
    }

    /// How many sockets are open, lingering ones included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no socket is open.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What the service keeps for a connection of this shard, while it lives.
    pub fn get_mut(&mut self, id: ConnectionId) -> Option<&mut S::Connection> {
        self.slot_mut(id)?.connection.as_mut()
    }

    /// Every living connection, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ConnectionId, &mut S::Connection)> {
        self.slots.iter_mut().filter_map(|(_, slot)| {
            let slot = slot.as_mut()?;
            Some((slot.outlet.id(), slot.connection.as_mut()?))
        })
    }

    /// The id the next [`Connections::insert`] will have; None when every slot is taken.
    pub(crate) fn next_id(&self) -> Option<ConnectionId> {
        let slot = match self.free.last() {
            Some(&slot) => slot,
            None => u32::try_from(self.slots.len()).ok().filter(|&n| u64::from(n) <= SLOT_MASK)?,
        };
        let generation = self.slots.get(slot as usize).map_or(0, |(generation, _)| *generation);
        Some(ConnectionId::new(self.shard, generation, slot))
    }

    pub(crate) fn insert(&mut self, id: ConnectionId, slot: Slot<S>) {
        self.count += 1;
        if self.free.last().is_some_and(|&free| free as usize == id.slot()) {
            self.free.pop();
            self.slots[id.slot()].1 = Some(slot);
        } else {
            self.slots.push((id.generation(), Some(slot)));
        }
    }

    pub(crate) fn slot_mut(&mut self, id: ConnectionId) -> Option<&mut Slot<S>> {
        if id.shard() != self.shard {
            return None;
        }
        let (generation, slot) = self.slots.get_mut(id.slot())?;
        if *generation == id.generation() { slot.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Slot<S>> {
        self.slot_mut(id)?;
        let (generation, slot) = &mut self.slots[id.slot()];
        *generation = (*generation + 1) & (GENERATION_MASK as u32);
        self.free.push(id.slot() as u32);
        self.count -= 1;
        slot.take()
    }

    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.slots.iter().filter_map(|(_, slot)| Some(slot.as_ref()?.outlet.id())).collect()
    }
}

impl<S: Service> fmt::Debug for Connections<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("shard", &self.shard)
            .field("len", &self.count)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: DP-05
    // req: DP-16
    #[test]
    fn ids_keep_their_three_parts_apart() {
        let id = ConnectionId::new(7, 0x00ab_cdef, 0x0012_3456);
        assert_eq!((id.shard(), id.generation(), id.slot()), (7, 0x00ab_cdef, 0x0012_3456));
        assert_eq!(ConnectionId::from_bits(id.to_bits()), id);
        assert_ne!(id, ConnectionId::new(7, 0x00ab_cdf0, 0x0012_3456), "a reused slot is another");
    }
}
