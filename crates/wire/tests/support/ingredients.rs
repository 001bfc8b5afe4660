//! Strategies for every packet of every version.
//!
//! Packets borrow, so what is generated is a bag of owned ingredients; [`Ingredients::packet`]
//! makes the packet out of those it needs.

use proptest::prelude::*;
use proptest::sample::select;
use quantumqtt_wire::{
    Ack, Auth, Carrier, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, Properties,
    Property, PropertyBlock, PropertyId, Publish, QoS, ReasonCode, RetainHandling, Secret, SubAck,
    Subscribe, SubscribeBlock, SubscribeOptions, UnsubAck, Unsubscribe, UnsubscribeBlock, Version,
    Will,
};

#[derive(Debug, Clone)]
pub(crate) struct Ingredients {
    pub(crate) version: Version,
    pub(crate) packet_type: PacketType,
    properties: PropertyBlock,
    will_properties: PropertyBlock,
    qos: QoS,
    flags: [bool; 4],
    packet_id: PacketId,
    keep_alive_s: u16,
    reason: ReasonCode,
    codes: Vec<u8>,
    topic: String,
    texts: [String; 2],
    payload: Vec<u8>,
    subscribe: SubscribeBlock,
    unsubscribe: UnsubscribeBlock,
}

pub(crate) fn version() -> impl Strategy<Value = Version> {
    select(Version::ALL.as_slice())
}

/// Any packet the version has.
pub(crate) fn ingredients(version: Version) -> impl Strategy<Value = Ingredients> {
    let exists = move |packet: &PacketType| version == Version::V5 || *packet != PacketType::Auth;
    let types: Vec<_> = PacketType::ALL.into_iter().filter(exists).collect();
    select(types).prop_flat_map(move |packet_type| of_type(version, packet_type))
}

/// A packet of one type.
pub(crate) fn of_type(
    version: Version,
    packet_type: PacketType,
) -> impl Strategy<Value = Ingredients> {
    let blocks = (
        block(version, Carrier::Packet(packet_type)),
        block(version, Carrier::Will),
        filters(version),
    );
    let numbers =
        (qos(), any::<[bool; 4]>(), 1..=u16::MAX, any::<u16>(), reasons(version, packet_type));
    let bytes = (topic(), [text(), text()], prop::collection::vec(any::<u8>(), 0..200));
    (blocks, numbers, bytes).prop_map(move |(blocks, numbers, bytes)| {
        let (properties, will_properties, (subscribe, unsubscribe)) = blocks;
        let (qos, flags, packet_id, keep_alive_s, codes) = numbers;
        let (topic, texts, payload) = bytes;
        Ingredients {
            version,
            packet_type,
            properties,
            will_properties,
            qos,
            flags,
            packet_id: PacketId::new(packet_id).expect("the range starts at 1"),
            keep_alive_s,
            reason: ReasonCode(codes[0]),
            codes,
            topic,
            texts,
            payload,
            subscribe,
            unsubscribe,
        }
    })
}

impl Ingredients {
    pub(crate) fn packet(&self) -> Packet<'_> {
        let (packet_id, properties, reason) =
            (self.packet_id, self.properties.as_properties(), self.reason);
        let ack = Ack { packet_id, reason, properties };
        match self.packet_type {
            PacketType::Connect => Packet::Connect(self.connect()),
            PacketType::ConnAck => Packet::ConnAck(self.connack()),
            PacketType::Publish => Packet::Publish(self.publish()),
            PacketType::PubAck => Packet::PubAck(ack),
            PacketType::PubRec => Packet::PubRec(ack),
            PacketType::PubRel => Packet::PubRel(ack),
            PacketType::PubComp => Packet::PubComp(ack),
            PacketType::Subscribe => Packet::Subscribe(Subscribe {
                packet_id,
                properties,
                filters: self.subscribe.as_filters(),
            }),
            PacketType::SubAck => {
                Packet::SubAck(SubAck { packet_id, properties, codes: &self.codes })
            }
            PacketType::Unsubscribe => Packet::Unsubscribe(Unsubscribe {
                packet_id,
                properties,
                filters: self.unsubscribe.as_filters(),
            }),
            PacketType::UnsubAck => {
                let codes = if self.version == Version::V5 { &self.codes[..] } else { &[] };
                Packet::UnsubAck(UnsubAck { packet_id, properties, codes })
            }
            PacketType::PingReq => Packet::PingReq,
            PacketType::PingResp => Packet::PingResp,
            PacketType::Disconnect => Packet::Disconnect(Disconnect { reason, properties }),
            PacketType::Auth => Packet::Auth(Auth { reason, properties }),
        }
    }

    fn connect(&self) -> Connect<'_> {
        let [clean_start, has_will, has_user, has_password] = self.flags;
        let password_may_stand = has_user || self.version == Version::V5;
        let will = Will {
            qos: self.qos,
            retain: clean_start ^ has_user,
            topic: &self.topic,
            payload: &self.payload,
            properties: self.will_properties.as_properties(),
        };
        Connect {
            version: self.version,
            clean_start,
            keep_alive_s: self.keep_alive_s,
            client_id: &self.texts[0],
            will: has_will.then_some(will),
            user_name: has_user.then_some(&self.texts[1]),
            password: (has_password && password_may_stand).then_some(&self.codes),
            properties: self.properties.as_properties(),
        }
    }

    fn connack(&self) -> ConnAck<'_> {
        let may_have_session = self.version != Version::V31 && self.reason == ReasonCode::SUCCESS;
        ConnAck {
            session_present: self.flags[0] && may_have_session,
            reason: self.reason,
            properties: self.properties.as_properties(),
        }
    }

    fn publish(&self) -> Publish<'_> {
        let properties = self.properties.as_properties();
        let acknowledged = self.qos > QoS::AtMostOnce;
        let aliased = self.flags[2] && properties.contains(PropertyId::TopicAlias);
        Publish {
            dup: self.flags[0] && acknowledged,
            qos: self.qos,
            retain: self.flags[1],
            topic: if aliased { "" } else { &self.topic },
            packet_id: acknowledged.then_some(self.packet_id),
            properties,
            payload: &self.payload,
        }
    }
}

fn qos() -> impl Strategy<Value = QoS> {
    select(vec![QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,20}",
        prop::collection::vec(any::<char>().prop_filter("U+0000", |c| *c != '\0'), 0..20)
            .prop_map(String::from_iter),
    ]
}

fn topic() -> impl Strategy<Value = String> {
    text().prop_map(|text| format!("t/{}", text.replace(['+', '#'], "/")))
}

/// Codes the packet may carry and the version can say.
fn reasons(version: Version, packet_type: PacketType) -> impl Strategy<Value = Vec<u8>> {
    let sayable: Vec<u8> = match (version, packet_type) {
        (Version::V5, _) => {
            let legal = (0..=u8::MAX).filter(|code| ReasonCode(*code).legal_in(packet_type));
            legal.collect()
        }
        (_, PacketType::ConnAck) => {
            (0..=5).filter_map(ReasonCode::from_v3_connack).map(|reason| reason.0).collect()
        }
        (Version::V31, PacketType::SubAck) => vec![0, 1, 2],
        (Version::V311, PacketType::SubAck) => vec![0, 1, 2, 0x80],
        _ => vec![0],
    };
    let sayable = if sayable.is_empty() { vec![0] } else { sayable };
    prop::collection::vec(select(sayable), 1..5)
}

fn filters(version: Version) -> impl Strategy<Value = (SubscribeBlock, UnsubscribeBlock)> {
    let handling =
        select(vec![RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend]);
    let options = (qos(), any::<bool>(), any::<bool>(), handling).prop_map(
        move |(qos, no_local, retain_as_published, retain_handling)| match version {
            Version::V31 | Version::V311 => SubscribeOptions::with_qos(qos),
            Version::V5 => SubscribeOptions { qos, no_local, retain_as_published, retain_handling },
        },
    );
    let filter = prop_oneof![topic(), Just("a/+/#".to_owned()), Just("#".to_owned())];
    prop::collection::vec((filter, options), 1..6).prop_map(|filters| {
        let mut subscribe = SubscribeBlock::new();
        let mut unsubscribe = UnsubscribeBlock::new();
        for (filter, options) in &filters {
            subscribe.push(filter, *options).expect("the filter is legal");
            unsubscribe.push(filter).expect("the filter is legal");
        }
        (subscribe, unsubscribe)
    })
}

/// Some of the properties `carrier` may have, in any order.
fn block(version: Version, carrier: Carrier) -> impl Strategy<Value = PropertyBlock> {
    let is_legal = |id: &PropertyId| version == Version::V5 && id.legal_in(carrier);
    let legal: Vec<_> = PropertyId::ALL.into_iter().filter(is_legal).collect();
    let count = if legal.is_empty() { 0..1 } else { 0..12 };
    let legal = if legal.is_empty() { vec![PropertyId::UserProperty] } else { legal };
    let one = (select(legal), any::<u32>(), text(), text());
    prop::collection::vec(one, count).prop_map(move |ingredients| {
        let mut block = PropertyBlock::new();
        if carrier == Carrier::Packet(PacketType::Auth) {
            block.push(Property::AuthenticationMethod("SCRAM")).expect("the block is empty");
        }
        for (id, number, first, second) in &ingredients {
            push(&mut block, carrier, property(*id, *number, first, second));
        }
        block
    })
}

/// Appends a property unless it would break a rule of the whole block.
fn push(block: &mut PropertyBlock, carrier: Carrier, property: Property<'_>) {
    let held: Properties<'_> = block.as_properties();
    let id = property.id();
    let repeatable = id == PropertyId::UserProperty
        || (id == PropertyId::SubscriptionId && carrier == Carrier::Packet(PacketType::Publish));
    let lacks_method =
        id == PropertyId::AuthenticationData && !held.contains(PropertyId::AuthenticationMethod);
    if (held.contains(id) && !repeatable) || lacks_method {
        return;
    }
    block.push(property).expect("the value is in range");
}

/// A legal property made of a number and two texts.
pub(crate) fn property<'a>(
    id: PropertyId,
    number: u32,
    first: &'a str,
    second: &'a str,
) -> Property<'a> {
    use PropertyId as I;
    let flag = number % 2 == 1;
    let short = (number >> 16) as u16;
    match id {
        I::PayloadFormatIndicator => Property::PayloadFormatIndicator(flag),
        I::MessageExpiryInterval => Property::MessageExpiryInterval(number),
        I::ContentType => Property::ContentType(first),
        I::ResponseTopic => {
            let is_name = !first.is_empty() && !first.contains(['+', '#']);
            Property::ResponseTopic(if is_name { first } else { "reply" })
        }
        I::CorrelationData => Property::CorrelationData(first.as_bytes()),
        I::SubscriptionId => Property::SubscriptionId(number % 268_435_455 + 1),
        I::SessionExpiryInterval => Property::SessionExpiryInterval(number),
        I::AssignedClientId => Property::AssignedClientId(first),
        I::ServerKeepAlive => Property::ServerKeepAlive(short),
        I::AuthenticationMethod => Property::AuthenticationMethod(first),
        I::AuthenticationData => Property::AuthenticationData(Secret(second.as_bytes())),
        I::RequestProblemInformation => Property::RequestProblemInformation(flag),
        I::WillDelayInterval => Property::WillDelayInterval(number),
        I::RequestResponseInformation => Property::RequestResponseInformation(flag),
        I::ResponseInformation => Property::ResponseInformation(first),
        I::ServerReference => Property::ServerReference(first),
        I::ReasonString => Property::ReasonString(first),
        I::ReceiveMaximum => Property::ReceiveMaximum(short.max(1)),
        I::TopicAliasMaximum => Property::TopicAliasMaximum(short),
        I::TopicAlias => Property::TopicAlias(short.max(1)),
        I::MaximumQos => {
            Property::MaximumQos(if flag { QoS::AtLeastOnce } else { QoS::AtMostOnce })
        }
        I::RetainAvailable => Property::RetainAvailable(flag),
        I::UserProperty => Property::UserProperty(first, second),
        I::MaximumPacketSize => Property::MaximumPacketSize(number.max(1)),
        I::WildcardSubscriptionAvailable => Property::WildcardSubscriptionAvailable(flag),
        I::SubscriptionIdAvailable => Property::SubscriptionIdAvailable(flag),
        I::SharedSubscriptionAvailable => Property::SharedSubscriptionAvailable(flag),
    }
}
