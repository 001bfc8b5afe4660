//! Small packets to a client, written through its outlet.

use std::sync::Arc;

use quantumqtt_reactor::{CloseCause, Outlet, Turn};
use quantumqtt_wire::{
    Ack, AckKind, ConnAck, Disconnect, Packet, PacketId, PacketType, Properties, Property,
    PropertyBlock, ReasonCode, SubAck, UnsubAck, Version,
};

use crate::connection::Connection;
use crate::outbound::Outbound;
use crate::reasons::CloseReason;
use crate::shard::ShardService;

impl From<CloseReason> for CloseCause {
    fn from(reason: CloseReason) -> Self {
        Self::Service(reason as u16)
    }
}

/// Encode `packet` and queue it; false when it does not fit, which ends the connection.
pub(crate) fn write_packet(
    turn: &mut Turn<ShardService>,
    outlet: &Arc<Outlet<Outbound>>,
    version: Version,
    packet: &Packet<'_>,
) {
    let mut bytes = Vec::with_capacity(64);
    if packet.encode(version, &mut bytes).is_err() {
        // Only text that we made ourselves could be too long, and we make none that is.
        debug_assert!(false, "{packet:?} does not encode");
        return;
    }
    if turn.write(outlet, |out| out.push(&bytes)).is_err() {
        turn.close(outlet.id(), CloseReason::SlowSubscriber.into());
    }
}

/// An acknowledgement without properties, in its shortest form; older versions hear no reason.
///
/// Written by hand because it is written per message: an allocation would cost more than the rest.
pub(crate) fn write_ack(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    kind: PacketType,
    packet_id: PacketId,
    reason: ReasonCode,
) {
    let [high, low] = packet_id.get().to_be_bytes();
    let first = (kind as u8) << 4 | kind.fixed_flags();
    let short = [first, 2, high, low];
    let long = [first, 3, high, low, reason.0];
    let says_why = connection.version == Version::V5 && reason != ReasonCode::SUCCESS;
    let bytes = if says_why { &long[..] } else { &short[..] };
    if turn.write(&connection.outlet, |out| out.push(bytes)).is_err() {
        turn.close(connection.id, CloseReason::SlowSubscriber.into());
    }
}

/// An acknowledgement that refuses, with the reason in words for a client that wants any.
pub(crate) fn write_ack_why(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    kind: AckKind,
    packet_id: PacketId,
    reason: ReasonCode,
    why: &str,
) {
    let mut block = PropertyBlock::new();
    put_reason(&mut block, connection, why);
    let ack = Ack { packet_id, reason, properties: block.as_properties() };
    let packet = match kind {
        AckKind::PubAck => Packet::PubAck(ack),
        AckKind::PubRec => Packet::PubRec(ack),
        AckKind::PubRel => Packet::PubRel(ack),
        AckKind::PubComp => Packet::PubComp(ack),
    };
    write_packet(turn, &connection.outlet, connection.version, &packet);
}

/// A reason string, unless the client asked for none [MQTT-3.1.2-29] or it would be too much for
/// its packets [MQTT-3.4.2-2]: nothing else in such a packet comes near half a kilobyte.
fn put_reason(block: &mut PropertyBlock, connection: &Connection, why: &str) {
    let fits = connection.packet_bytes_max as usize > why.len() + 512;
    if connection.wants_reasons && fits && block.push(Property::ReasonString(why)).is_err() {
        debug_assert!(false, "our own words are text");
    }
}

/// The last word to a client, in the form its version knows.
pub(crate) fn write_disconnect(
    turn: &mut Turn<ShardService>,
    outlet: &Arc<Outlet<Outbound>>,
    version: Version,
    reason: CloseReason,
) {
    if version != Version::V5 {
        return; // the server of MQTT 3 says nothing, it closes
    }
    if let Some(reason) = reason.disconnect_code() {
        let packet = Disconnect { reason, properties: Properties::EMPTY };
        write_packet(turn, outlet, version, &Packet::Disconnect(packet));
    }
}

/// The last word to a client, with the reason in words if it wants any.
pub(crate) fn write_disconnect_why(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    reason: CloseReason,
    why: &str,
) {
    if let Some(reason) = reason.disconnect_code().filter(|_| connection.version == Version::V5) {
        let mut block = PropertyBlock::new();
        put_reason(&mut block, connection, why);
        let packet = Disconnect { reason, properties: block.as_properties() };
        write_packet(turn, &connection.outlet, connection.version, &Packet::Disconnect(packet));
    }
}

/// CONNACK that refuses; the caller closes.
pub(crate) fn write_refusal(
    turn: &mut Turn<ShardService>,
    outlet: &Arc<Outlet<Outbound>>,
    version: Version,
    reason: ReasonCode,
) {
    let packet = ConnAck { session_present: false, reason, properties: Properties::EMPTY };
    write_packet(turn, outlet, version, &Packet::ConnAck(packet));
}

/// SUBACK; MQTT 3.1 cannot say that a filter was refused, so there the connection ends.
pub(crate) fn write_suback(
    turn: &mut Turn<ShardService>,
    outlet: &Arc<Outlet<Outbound>>,
    version: Version,
    packet_id: PacketId,
    codes: &[u8],
) {
    if version == Version::V31 && codes.iter().any(|&code| ReasonCode(code).is_error()) {
        return turn.close(outlet.id(), CloseReason::ProtocolError.into());
    }
    let packet = SubAck { packet_id, properties: Properties::EMPTY, codes };
    write_packet(turn, outlet, version, &Packet::SubAck(packet));
}

/// SUBACK with a reason in words, for a client that wants any.
pub(crate) fn write_suback_why(
    turn: &mut Turn<ShardService>,
    connection: &Connection,
    packet_id: PacketId,
    codes: &[u8],
    why: &str,
) {
    if connection.version != Version::V5 {
        return write_suback(turn, &connection.outlet, connection.version, packet_id, codes);
    }
    let mut block = PropertyBlock::new();
    put_reason(&mut block, connection, why);
    let packet = SubAck { packet_id, properties: block.as_properties(), codes };
    write_packet(turn, &connection.outlet, connection.version, &Packet::SubAck(packet));
}

/// UNSUBACK; its codes exist in MQTT 5 only.
pub(crate) fn write_unsuback(
    turn: &mut Turn<ShardService>,
    outlet: &Arc<Outlet<Outbound>>,
    version: Version,
    packet_id: PacketId,
    codes: &[u8],
) {
    let codes = if version == Version::V5 { codes } else { &[] };
    let packet = UnsubAck { packet_id, properties: Properties::EMPTY, codes };
    write_packet(turn, outlet, version, &Packet::UnsubAck(packet));
}
