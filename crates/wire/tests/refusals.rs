//! What is not written: packets that a peer would refuse, and outcomes that a version cannot say.

use quantumqtt_wire::{
    Auth, ConnAck, Connect, DecodeError, Disconnect, EncodeError, Packet, PacketId, PacketType,
    Properties, Property, PropertyBlock, QoS, ReasonCode, RetainHandling, SubAck, Subscribe,
    SubscribeBlock, SubscribeOptions, UnsubAck, Unsubscribe, UnsubscribeBlock, Version, Will,
};

const CONNECT: Connect<'static> = Connect {
    version: Version::V5,
    clean_start: true,
    keep_alive_s: 0,
    client_id: "c",
    will: None,
    user_name: None,
    password: None,
    properties: Properties::EMPTY,
};

const WILL: Will<'static> = Will {
    qos: QoS::AtMostOnce,
    retain: false,
    topic: "w",
    payload: b"",
    properties: Properties::EMPTY,
};

fn encode_error(packet: &Packet<'_>, version: Version) -> EncodeError {
    let mut out = vec![1, 2, 3];
    let error = packet.encode(version, &mut out).expect_err("the packet is refused");
    assert_eq!(out, [1, 2, 3], "{packet:?} left bytes behind");
    error
}

#[track_caller]
fn assert_refused(packet: &Packet<'_>, version: Version, why: DecodeError) {
    assert_eq!(encode_error(packet, version), EncodeError::Refused(why));
}

#[test]
fn a_connect_that_a_peer_would_refuse_is_not_written() {
    let connect = Packet::Connect;
    let will = |will| connect(Connect { will: Some(will), ..CONNECT });
    let v5 = Version::V5;
    assert_refused(&will(Will { topic: "", ..WILL }), v5, DecodeError::EmptyTopic);
    assert_refused(&will(Will { topic: "w/+", ..WILL }), v5, DecodeError::TopicWildcard);
    assert_refused(&connect(Connect { client_id: "\0", ..CONNECT }), v5, DecodeError::NulCharacter);
    for version in [Version::V31, Version::V311] {
        let password_alone = connect(Connect { version, password: Some(b"pw"), ..CONNECT });
        assert_refused(&password_alone, version, DecodeError::PasswordWithoutUserName);
    }
    let long = vec![0; 65_536];
    let error = encode_error(&connect(Connect { password: Some(&long), ..CONNECT }), v5);
    assert_eq!(error, EncodeError::TooLong { field: "password", bytes: 65_536 });
}

#[test]
fn a_refusal_never_claims_a_session() {
    for version in Version::ALL {
        let connack = ConnAck {
            session_present: true,
            reason: ReasonCode::NOT_AUTHORIZED,
            properties: Properties::EMPTY,
        };
        let why = DecodeError::SessionPresentOnRefusal;
        assert_refused(&Packet::ConnAck(connack), version, why);
    }
}

#[test]
fn acknowledgements_of_filters_carry_legal_codes_and_at_least_one() {
    let (packet_id, properties) = (PacketId::MIN, Properties::EMPTY);
    for version in Version::ALL {
        let suback = |codes| Packet::SubAck(SubAck { packet_id, properties, codes });
        assert_refused(&suback(&[]), version, DecodeError::NoReasonCodes);
        let illegal = DecodeError::IllegalReason {
            packet_type: PacketType::SubAck,
            reason: ReasonCode::SESSION_TAKEN_OVER,
        };
        assert_refused(&suback(&[0, 0x8E]), version, illegal);
    }
    let unsuback = |codes| Packet::UnsubAck(UnsubAck { packet_id, properties, codes });
    assert_refused(&unsuback(&[]), Version::V5, DecodeError::NoReasonCodes);
    let illegal = DecodeError::IllegalReason {
        packet_type: PacketType::UnsubAck,
        reason: ReasonCode::GRANTED_QOS_1,
    };
    assert_refused(&unsuback(&[1]), Version::V5, illegal);
}

#[test]
fn requests_without_filters_are_not_written() {
    let (packet_id, properties) = (PacketId::MIN, Properties::EMPTY);
    let subscribe = SubscribeBlock::new();
    let unsubscribe = UnsubscribeBlock::new();
    for version in Version::ALL {
        let filters = subscribe.as_filters();
        let packet = Packet::Subscribe(Subscribe { packet_id, properties, filters });
        assert_refused(&packet, version, DecodeError::NoFilters);
        let filters = unsubscribe.as_filters();
        let packet = Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters });
        assert_refused(&packet, version, DecodeError::NoFilters);
    }
}

#[test]
fn filter_lists_take_legal_filters_only() {
    let mut subscribe = SubscribeBlock::new();
    let options = SubscribeOptions::with_qos(QoS::AtMostOnce);
    let no_local = SubscribeOptions { no_local: true, ..options };
    let refused = |why| Err(EncodeError::Refused(why));
    assert_eq!(subscribe.push("", options), refused(DecodeError::EmptyFilter));
    assert_eq!(subscribe.push("a\0", options), refused(DecodeError::NulCharacter));
    assert_eq!(subscribe.push("$share/g/a", no_local), refused(DecodeError::NoLocalOnShared));
    let long = "f".repeat(65_536);
    let too_long = Err(EncodeError::TooLong { field: "topic filter", bytes: 65_536 });
    assert_eq!(subscribe.push(&long, options), too_long);
    assert_eq!(subscribe, SubscribeBlock::new());

    let mut unsubscribe = UnsubscribeBlock::new();
    assert_eq!(unsubscribe.push(""), refused(DecodeError::EmptyFilter));
    assert_eq!(unsubscribe.push("a\0"), refused(DecodeError::NulCharacter));
    assert_eq!(unsubscribe.push(&long), too_long);
    assert_eq!(unsubscribe, UnsubscribeBlock::new());
}

// req: WIRE-05
#[test]
fn older_versions_get_the_qos_of_a_subscription_only() {
    let mut filters = SubscribeBlock::new();
    let options = SubscribeOptions {
        qos: QoS::ExactlyOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    filters.push("f", options).unwrap();
    let subscribe = Subscribe {
        packet_id: PacketId::MIN,
        properties: Properties::EMPTY,
        filters: filters.as_filters(),
    };
    for version in [Version::V31, Version::V311] {
        let mut out = Vec::new();
        subscribe.encode(version, &mut out).unwrap();
        assert_eq!(out, b"\x82\x06\0\x01\0\x01f\x02");
    }
}

// req: WIRE-05
#[test]
fn older_versions_have_no_auth_and_no_reason_to_leave() {
    let mut method = PropertyBlock::new();
    method.push(Property::AuthenticationMethod("m")).unwrap();
    let properties = method.as_properties();
    for version in [Version::V31, Version::V311] {
        let auth = Auth { reason: ReasonCode::CONTINUE_AUTHENTICATION, properties };
        let packet_type = PacketType::Auth;
        assert_eq!(
            encode_error(&Packet::Auth(auth), version),
            EncodeError::NotInVersion { packet_type, version }
        );
        for reason in [ReasonCode::DISCONNECT_WITH_WILL, ReasonCode::SERVER_BUSY] {
            let packet_type = PacketType::Disconnect;
            assert_eq!(
                encode_error(&Packet::Disconnect(Disconnect::with_reason(reason)), version),
                EncodeError::ReasonNotInVersion { packet_type, reason, version }
            );
        }
    }
}

#[test]
fn an_auth_that_names_no_method_is_not_written() {
    let reason = ReasonCode::CONTINUE_AUTHENTICATION;
    let auth = Packet::Auth(Auth { reason, properties: Properties::EMPTY });
    assert_refused(&auth, Version::V5, DecodeError::AuthenticationMethodMissing);
}
