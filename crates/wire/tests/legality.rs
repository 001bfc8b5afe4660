//! Two tables of the standard, written down a second time and compared cell by cell.
//!
//! The source keeps them by carrier (properties) and by code (reasons, §2.4). Here they stand the
//! other way round, as §2.2.2.2 and the sections of the packets have them, so that a slip in one is
//! not a slip in both.

#[path = "support/ingredients.rs"]
#[allow(dead_code, reason = "shared with other test files")]
mod ingredients;

use ingredients::property;
use quantumqtt_wire::{
    Carrier, DecodeError, Packet, PacketType, Properties, Property, PropertyBlock, PropertyId,
    ReasonCode, Version, decode, frame,
};

use PacketType as P;
use PropertyId as I;

const WILL: Carrier = Carrier::Will;

fn carriers(id: PropertyId) -> Vec<Carrier> {
    let packets: &[PacketType] = match id {
        I::PayloadFormatIndicator
        | I::MessageExpiryInterval
        | I::ContentType
        | I::ResponseTopic
        | I::CorrelationData
        | I::TopicAlias => &[P::Publish],
        I::SubscriptionId => &[P::Publish, P::Subscribe],
        I::SessionExpiryInterval => &[P::Connect, P::ConnAck, P::Disconnect],
        I::AssignedClientId
        | I::ServerKeepAlive
        | I::ResponseInformation
        | I::MaximumQos
        | I::RetainAvailable
        | I::WildcardSubscriptionAvailable
        | I::SubscriptionIdAvailable
        | I::SharedSubscriptionAvailable => &[P::ConnAck],
        I::AuthenticationMethod | I::AuthenticationData => &[P::Connect, P::ConnAck, P::Auth],
        I::RequestProblemInformation | I::RequestResponseInformation => &[P::Connect],
        I::WillDelayInterval => &[],
        I::ServerReference => &[P::ConnAck, P::Disconnect],
        I::ReasonString => &[
            P::ConnAck,
            P::PubAck,
            P::PubRec,
            P::PubRel,
            P::PubComp,
            P::SubAck,
            P::UnsubAck,
            P::Disconnect,
            P::Auth,
        ],
        I::ReceiveMaximum | I::TopicAliasMaximum | I::MaximumPacketSize => {
            &[P::Connect, P::ConnAck]
        }
        I::UserProperty => return Carrier::all().collect(),
    };
    let in_will = matches!(
        id,
        I::PayloadFormatIndicator
            | I::MessageExpiryInterval
            | I::ContentType
            | I::ResponseTopic
            | I::CorrelationData
            | I::WillDelayInterval
    );
    let packets = packets.iter().copied().map(Carrier::Packet);
    packets.chain(in_will.then_some(WILL)).collect()
}

/// A block of the given properties; authentication data brings the method it needs.
fn block(ids: &[PropertyId], carrier: Carrier) -> Vec<u8> {
    let mut bytes = Vec::new();
    let needs_method = ids.contains(&I::AuthenticationData)
        || (carrier == Carrier::Packet(P::Auth) && !ids.contains(&I::AuthenticationMethod));
    let method = needs_method.then_some(I::AuthenticationMethod);
    for id in method.iter().chain(ids) {
        // One block per property: a single block would refuse the repetitions we want to send.
        let mut single = PropertyBlock::new();
        single.push(property(*id, 0x0001_0001, "first", "second")).expect("the value is legal");
        bytes.extend_from_slice(single.as_bytes());
    }
    bytes
}

/// A v5 packet that carries `block` at the place `carrier` names.
fn packet_with(carrier: Carrier, block: &[u8]) -> Vec<u8> {
    let connect = |flags: u8| [b"\0\x04MQTT\x05".as_slice(), &[flags, 0, 0]].concat();
    let (packet_type, before, after): (P, Vec<u8>, &[u8]) = match carrier {
        Carrier::Will => {
            let no_properties_and_no_client_id = [0, 0, 0];
            let before = [connect(0b110).as_slice(), &no_properties_and_no_client_id].concat();
            (P::Connect, before, b"\0\x01w\0\0")
        }
        Carrier::Packet(packet_type) => match packet_type {
            P::Connect => (packet_type, connect(0b10), b"\0\0"),
            P::ConnAck => (packet_type, vec![0, 0], b""),
            P::Publish => (packet_type, b"\0\x01t".to_vec(), b""),
            P::Subscribe => (packet_type, vec![0, 1], b"\0\x01f\0"),
            P::SubAck | P::UnsubAck => (packet_type, vec![0, 1], b"\0"),
            P::Unsubscribe => (packet_type, vec![0, 1], b"\0\x01f"),
            P::Disconnect | P::Auth => (packet_type, vec![0], b""),
            _ => (packet_type, vec![0, 1, 0], b""),
        },
    };
    let body = [before.as_slice(), &[byte(block.len())], block, after].concat();
    let first = (packet_type as u8) << 4 | packet_type.fixed_flags();
    [&[first, byte(body.len())], body.as_slice()].concat()
}

fn byte(length: usize) -> u8 {
    u8::try_from(length).ok().filter(|length| *length < 0x80).expect("the packets are small")
}

fn outcome(bytes: &[u8]) -> Result<(), DecodeError> {
    let frame = frame::peek(bytes, usize::MAX)?.expect("the header is whole");
    let body = frame.body(bytes).expect("the body is whole");
    decode(Version::V5, &frame, body).map(|_: Packet<'_>| ())
}

// req: WIRE-02
#[test]
fn every_property_is_legal_exactly_where_the_standard_says() {
    for id in PropertyId::ALL {
        for carrier in Carrier::all() {
            let legal = carriers(id).contains(&carrier);
            assert_eq!(id.legal_in(carrier), legal, "{id:?} in {carrier:?}");
            let decoded = outcome(&packet_with(carrier, &block(&[id], carrier)));
            match decoded {
                Ok(()) => assert!(legal, "{id:?} was taken in {carrier:?}"),
                Err(DecodeError::PropertyNotAllowed { .. }) => {
                    assert!(!legal, "{id:?} was refused in {carrier:?}");
                }
                Err(other) => panic!("{id:?} in {carrier:?}: {other}"),
            }
        }
    }
}

// req: WIRE-02
#[test]
fn only_user_properties_and_publish_subscription_ids_may_repeat() {
    for id in PropertyId::ALL {
        for carrier in carriers(id) {
            let repeatable = id == I::UserProperty
                || (id == I::SubscriptionId && carrier == Carrier::Packet(P::Publish));
            let decoded = outcome(&packet_with(carrier, &block(&[id, id], carrier)));
            let expected =
                if repeatable { Ok(()) } else { Err(DecodeError::DuplicateProperty { id }) };
            assert_eq!(decoded, expected, "{id:?} twice in {carrier:?}");
        }
    }
}

#[test]
fn an_illegal_block_is_refused_when_writing_too() {
    for id in PropertyId::ALL {
        let mut owned = PropertyBlock::new();
        if id == I::AuthenticationData {
            owned.push(Property::AuthenticationMethod("m")).unwrap();
        }
        owned.push(property(id, 0x0001_0001, "first", "second")).unwrap();
        let publish = quantumqtt_wire::Publish {
            dup: false,
            qos: quantumqtt_wire::QoS::AtMostOnce,
            retain: false,
            topic: "t",
            packet_id: None,
            properties: owned.as_properties(),
            payload: b"",
        };
        let mut out = vec![7];
        let written = publish.encode(Version::V5, &mut out).is_ok();
        assert_eq!(written, carriers(id).contains(&Carrier::Packet(P::Publish)), "{id:?}");
        assert!(written || out == [7], "a refused packet left bytes behind");
    }
}

#[test]
fn every_identifier_outside_the_table_is_unknown() {
    for number in 0..=0x7F_u8 {
        let known = PropertyId::ALL.iter().any(|id| *id as u8 == number);
        let block = [number];
        let decoded = Properties::decode(Carrier::Packet(P::ConnAck), &block);
        let unknown = decoded == Err(DecodeError::UnknownProperty { id: u32::from(number) });
        assert_eq!(unknown, !known, "{number:#04x}");
    }
}

/// The codes of each packet, from its own section.
fn reasons(packet_type: PacketType) -> &'static [u8] {
    match packet_type {
        P::ConnAck => &[
            0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90,
            0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
        ],
        P::PubAck | P::PubRec => &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
        P::PubRel | P::PubComp => &[0x00, 0x92],
        P::SubAck => &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2],
        P::UnsubAck => &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91],
        // 0x8C stands in table 2-6 and is missing in §3.14.2.1; we follow the table.
        P::Disconnect => &[
            0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90,
            0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0,
            0xA1, 0xA2,
        ],
        P::Auth => &[0x00, 0x18, 0x19],
        P::Connect | P::Publish | P::Subscribe | P::Unsubscribe | P::PingReq | P::PingResp => &[],
    }
}

// req: WIRE-15
#[test]
fn every_reason_is_legal_exactly_where_the_standard_says() {
    for code in 0..=u8::MAX {
        for packet_type in PacketType::ALL {
            let expected = reasons(packet_type).contains(&code);
            let reason = ReasonCode(code);
            assert_eq!(reason.legal_in(packet_type), expected, "{reason} in {packet_type:?}");
        }
        let named = ReasonCode(code).name() != "Unknown";
        assert_eq!(named, ReasonCode::ALL.contains(&ReasonCode(code)));
    }
}

// req: WIRE-15
#[test]
fn every_cause_has_a_legal_code_on_every_packet_that_can_say_it() {
    for code in 0..=u8::MAX {
        for packet_type in PacketType::ALL {
            let cause = ReasonCode(code);
            let sent = cause.nearest_legal_in(packet_type);
            let cannot_say =
                reasons(packet_type).is_empty() || (packet_type == P::Auth && cause.is_error());
            let Some(sent) = sent else {
                assert!(cannot_say, "{cause} is unsayable in {packet_type:?}");
                continue;
            };
            assert!(sent.legal_in(packet_type), "{cause} became {sent} in {packet_type:?}");
            assert_eq!(sent.is_error(), cause.is_error(), "{cause} became {sent}");
            assert!(!cause.legal_in(packet_type) || sent == cause, "{cause} became {sent}");
        }
    }
}

// req: WIRE-15
#[test]
fn a_server_that_cannot_serve_says_so_in_each_packet_s_own_word() {
    let unavailable = ReasonCode::SERVER_UNAVAILABLE;
    for (packet_type, code) in [
        (P::ConnAck, 0x88),
        (P::Disconnect, 0x89),
        (P::PubAck, 0x83),
        (P::PubRec, 0x83),
        (P::SubAck, 0x83),
        (P::UnsubAck, 0x83),
        (P::PubComp, 0x92),
    ] {
        assert_eq!(unavailable.nearest_legal_in(packet_type), Some(ReasonCode(code)));
    }
}

// req: WIRE-05
#[test]
fn older_clients_hear_only_the_six_return_codes() {
    for code in 0..=u8::MAX {
        let reason = ReasonCode(code);
        let heard = reason.to_v3_connack();
        assert!(heard <= 5);
        assert_eq!(heard == 0, !reason.is_error(), "{reason}");
    }
    for return_code in 0..=5 {
        let reason = ReasonCode::from_v3_connack(return_code).unwrap();
        assert_eq!(reason.to_v3_connack(), return_code);
    }
    assert_eq!(ReasonCode::from_v3_connack(6), None);
    let safety =
        [ReasonCode::SERVER_UNAVAILABLE, ReasonCode::SERVER_BUSY, ReasonCode::QUOTA_EXCEEDED];
    assert!(safety.iter().all(|reason| reason.to_v3_connack() == 3));
}
