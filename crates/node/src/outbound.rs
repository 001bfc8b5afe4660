//! What a connection keeps beside its unsent bytes: the sending half of a transient session.
//!
//! Theory of operation. Any shard may deliver to any connection, so packet ids, the window and the
//! messages behind it stand here, under the outlet's lock. A message is encoded once; its packet id
//! is patched in while it is pushed. With room in the window it goes out and the id is remembered;
//! otherwise the encoded bytes wait, shared with other subscribers, and leave in order as
//! acknowledgements come back. Nothing is ever sent twice: a transient session ends with its
//! connection, so there is no reconnect to resend for.
//!
//! A session that is held by the machine gets its packet ids there and uses none of this.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quantumqtt_reactor::{OutletGuard, Overflow};
use quantumqtt_wire::{PacketId, QoS};

use crate::limits::{WAITING_BYTES_MAX, WAITING_COUNT_MAX};

/// The sending half of one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// How many unacknowledged messages the client takes; 0 until CONNACK.
    pub(crate) window: u16,
    /// The largest packet the client takes.
    pub(crate) packet_bytes_max: u32,
    last_id: u16,
    unacknowledged: BTreeMap<u16, Stage>,
    waiting: VecDeque<Encoded>,
    waiting_bytes: usize,
}

/// What the client still owes for a packet id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Acknowledge,
    Receive,
    Complete,
}

/// A PUBLISH whose packet id is still open.
#[derive(Debug, Clone)]
pub(crate) struct Encoded {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) packet_id_at: usize,
    pub(crate) qos: QoS,
}

/// The client acknowledged something we never sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnknownId;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way, or waits its turn.
    Taken,
    /// The subscriber is too slow for what it asked for: its connection must end.
    TooSlow,
}

type Guard<'a> = OutletGuard<'a, Outbound>;

impl Outbound {
    fn has_room(&self) -> bool {
        self.unacknowledged.len() < usize::from(self.window)
    }

    /// The next id that is not in use. Call only with room in the window.
    fn take_id(&mut self, stage: Stage) -> PacketId {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if let Some(id) = PacketId::new(self.last_id)
                && !self.unacknowledged.contains_key(&self.last_id)
            {
                self.unacknowledged.insert(self.last_id, stage);
                return id;
            }
        }
    }
}

/// Send a QoS 1 or 2 message now, or let it wait behind the window.
///
/// `bytes` is only shared (and allocated) when it has to wait.
pub(crate) fn send(out: &mut Guard<'_>, bytes: &[u8], packet_id_at: usize, qos: QoS) -> Sent {
    let must_wait =
        !out.outbound.waiting.is_empty() || !out.outbound.has_room() || out.is_over_soft_limit();
    if !must_wait {
        return push_with_id(out, bytes, packet_id_at, qos);
    }
    let outbound = &mut *out.outbound;
    if outbound.waiting.len() >= WAITING_COUNT_MAX
        || outbound.waiting_bytes + bytes.len() > WAITING_BYTES_MAX
    {
        return Sent::TooSlow;
    }
    outbound.waiting_bytes += bytes.len();
    outbound.waiting.push_back(Encoded { bytes: bytes.into(), packet_id_at, qos });
    Sent::Taken
}

fn push_with_id(out: &mut Guard<'_>, bytes: &[u8], packet_id_at: usize, qos: QoS) -> Sent {
    let stage = if qos == QoS::ExactlyOnce { Stage::Receive } else { Stage::Acknowledge };
    let id = out.outbound.take_id(stage).get().to_be_bytes();
    let pushed = out
        .push(&bytes[..packet_id_at])
        .and_then(|()| out.push(&id))
        .and_then(|()| out.push(&bytes[packet_id_at + 2..]));
    match pushed {
        Ok(()) => Sent::Taken,
        Err(Overflow) => Sent::TooSlow,
    }
}

/// Send what waits, as far as window and buffer allow.
pub(crate) fn send_waiting(out: &mut Guard<'_>) -> Sent {
    while out.outbound.has_room() && !out.is_over_soft_limit() {
        let Some(next) = out.outbound.waiting.pop_front() else {
            return Sent::Taken;
        };
        out.outbound.waiting_bytes -= next.bytes.len();
        if push_with_id(out, &next.bytes, next.packet_id_at, next.qos) == Sent::TooSlow {
            return Sent::TooSlow;
        }
    }
    Sent::Taken
}

/// The client sent PUBACK.
pub(crate) fn on_puback(out: &mut Guard<'_>, id: PacketId) -> Result<(), UnknownId> {
    match out.outbound.unacknowledged.remove(&id.get()) {
        Some(Stage::Acknowledge) => Ok(()),
        Some(other) => {
            out.outbound.unacknowledged.insert(id.get(), other);
            Err(UnknownId)
        }
        None => Err(UnknownId),
    }
}

/// The client sent PUBREC; a failure ends the exchange [MQTT-4.3.3-4]. True: answer with PUBREL.
pub(crate) fn on_pubrec(
    out: &mut Guard<'_>,
    id: PacketId,
    failed: bool,
) -> Result<bool, UnknownId> {
    let stage = out.outbound.unacknowledged.get_mut(&id.get()).ok_or(UnknownId)?;
    match stage {
        Stage::Receive if failed => {
            out.outbound.unacknowledged.remove(&id.get());
            Ok(false)
        }
        Stage::Receive | Stage::Complete => {
            *stage = Stage::Complete;
            Ok(true)
        }
        Stage::Acknowledge => Err(UnknownId),
    }
}

/// The client sent PUBCOMP.
pub(crate) fn on_pubcomp(out: &mut Guard<'_>, id: PacketId) -> Result<(), UnknownId> {
    match out.outbound.unacknowledged.remove(&id.get()) {
        Some(Stage::Complete) => Ok(()),
        Some(other) => {
            out.outbound.unacknowledged.insert(id.get(), other);
            Err(UnknownId)
        }
        None => Err(UnknownId),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbound(window: u16) -> Outbound {
        Outbound { window, ..Outbound::default() }
    }

    // req: QOS-08
    #[test]
    fn ids_skip_zero_and_those_in_use() {
        let mut half = outbound(u16::MAX);
        half.last_id = 65_533;
        half.unacknowledged.insert(65_535, Stage::Receive);
        half.unacknowledged.insert(1, Stage::Acknowledge);
        let ids: Vec<u16> = (0..3).map(|_| half.take_id(Stage::Acknowledge).get()).collect();
        assert_eq!(ids, [65_534, 2, 3]);
    }

    #[test]
    fn full_window_has_no_room() {
        let mut half = outbound(2);
        half.take_id(Stage::Acknowledge);
        assert!(half.has_room());
        half.take_id(Stage::Receive);
        assert!(!half.has_room());
    }
}
