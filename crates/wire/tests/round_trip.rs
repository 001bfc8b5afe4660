//! For every packet: writing and reading are inverse, however the bytes are cut.

#[path = "support/ingredients.rs"]
mod ingredients;

use ingredients::{Ingredients, ingredients, of_type, version};
use proptest::prelude::*;
use proptest::sample::Index;
use quantumqtt_wire::{
    DecodeError, Packet, PacketType, Properties, Property, Publish, Version, decode, frame,
};

const NO_LIMIT: usize = usize::MAX;

fn encode(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    packet.encode(version, &mut out).expect("the packet is legal");
    out
}

fn decode_whole(version: Version, bytes: &[u8]) -> Result<Option<Packet<'_>>, DecodeError> {
    let Some(frame) = frame::peek(bytes, NO_LIMIT)? else {
        return Ok(None);
    };
    match frame.body(bytes) {
        Some(body) => decode(version, &frame, body).map(Some),
        None => Ok(None),
    }
}

/// Touches everything a packet holds lazily, and counts it.
fn walk(packet: &Packet<'_>) -> usize {
    let properties = match packet {
        Packet::Connect(p) => {
            let will = p.will.map_or(0, |will| will.properties.iter().count());
            return will + p.properties.iter().count();
        }
        Packet::Subscribe(p) => return p.filters.iter().count() + p.properties.iter().count(),
        Packet::Unsubscribe(p) => return p.filters.iter().count() + p.properties.iter().count(),
        Packet::ConnAck(p) => p.properties,
        Packet::Publish(p) => p.properties,
        Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
            p.properties
        }
        Packet::SubAck(p) => p.properties,
        Packet::UnsubAck(p) => p.properties,
        Packet::Disconnect(p) => p.properties,
        Packet::Auth(p) => p.properties,
        Packet::PingReq | Packet::PingResp => return 0,
    };
    properties.iter().count()
}

/// Whatever bytes were accepted can be written, and reads back the same.
fn accepted_is_stable(version: Version, packet: &Packet<'_>) {
    walk(packet);
    let version = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version,
    };
    let bytes = encode(packet, version);
    assert_eq!(decode_whole(version, &bytes), Ok(Some(*packet)));
}

/// Feeds `stream` to one receive buffer that grows to each of `ends` in turn.
fn receive_in_pieces(stream: &[u8], mut ends: Vec<usize>) -> Vec<Vec<u8>> {
    ends.push(stream.len());
    ends.sort_unstable();
    let mut received = Vec::new();
    let mut consumed = 0;
    for end in ends {
        let mut seen = &stream[consumed..end];
        while let Some(frame) = frame::peek(seen, NO_LIMIT).expect("the stream is legal") {
            if frame.body(seen).is_none() {
                break;
            }
            let (packet, rest) = seen.split_at(frame.total());
            received.push(packet.to_vec());
            consumed += packet.len();
            seen = rest;
        }
    }
    received
}

fn any_ingredients() -> impl Strategy<Value = Ingredients> {
    version().prop_flat_map(ingredients)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    // req: WIRE-01
    // req: WIRE-02
    #[test]
    fn decode_undoes_encode(sent in any_ingredients()) {
        let packet = sent.packet();
        let bytes = encode(&packet, sent.version);
        prop_assert_eq!(decode_whole(sent.version, &bytes), Ok(Some(packet)));
        if let Packet::Publish(publish) = packet {
            prop_assert_eq!(publish.encoded_bytes(sent.version), bytes.len());
        }
    }

    // req: WIRE-14
    #[test]
    fn properties_come_back_in_order(sent in of_type(Version::V5, PacketType::Publish)) {
        let bytes = encode(&sent.packet(), Version::V5);
        let received = decode_whole(Version::V5, &bytes).unwrap().unwrap();
        let (Packet::Publish(sent), Packet::Publish(received)) = (sent.packet(), received) else {
            unreachable!("only PUBLISH is generated");
        };
        let sent: Vec<Property<'_>> = sent.properties.iter().collect();
        let received: Vec<Property<'_>> = received.properties.iter().collect();
        prop_assert_eq!(sent, received);
    }

    // req: WIRE-05
    #[test]
    fn older_peers_get_the_same_bytes_with_and_without_v5_properties(
        sent in of_type(Version::V5, PacketType::Publish),
        older in prop_oneof![Just(Version::V31), Just(Version::V311)],
    ) {
        let Packet::Publish(publish) = sent.packet() else {
            unreachable!("only PUBLISH is generated");
        };
        let plain = Publish { properties: Properties::EMPTY, ..publish };
        let mut with = Vec::new();
        let mut without = Vec::new();
        let outcome = publish.encode(older, &mut with);
        prop_assert_eq!(outcome, plain.encode(older, &mut without));
        prop_assert_eq!(with, without);
    }

    // req: WIRE-07
    #[test]
    fn any_chunking_yields_the_same_packets(
        (version, sent) in version().prop_flat_map(|version| {
            (Just(version), prop::collection::vec(ingredients(version), 1..6))
        }),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let packets: Vec<Vec<u8>> =
            sent.iter().map(|sent| encode(&sent.packet(), version)).collect();
        let stream = packets.concat();
        let ends = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        prop_assert_eq!(&receive_in_pieces(&stream, ends), &packets);
        let every_byte = (0..stream.len()).collect();
        prop_assert_eq!(&receive_in_pieces(&stream, every_byte), &packets);
    }

    #[test]
    fn random_streams_never_panic(
        version in version(),
        bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        if let Ok(Some(packet)) = decode_whole(version, &bytes) {
            accepted_is_stable(version, &packet);
        }
    }

    #[test]
    fn random_bodies_never_panic(
        version in version(),
        first in any::<u8>(),
        body in prop::collection::vec(prop_oneof![0_u8..6, any::<u8>()], 0..60),
    ) {
        if let Ok(Some(frame)) = frame::peek(&[first, body.len() as u8], NO_LIMIT)
            && let Ok(packet) = decode(version, &frame, &body)
        {
            accepted_is_stable(version, &packet);
        }
    }

    #[test]
    fn damaged_packets_never_panic(
        sent in any_ingredients(),
        read_as in version(),
        damage in prop::collection::vec((any::<Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut bytes = encode(&sent.packet(), sent.version);
        for (place, byte, kind) in damage {
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(place)),
                _ => {}
            }
        }
        if let Ok(Some(packet)) = decode_whole(read_as, &bytes) {
            accepted_is_stable(read_as, &packet);
        }
    }
}
