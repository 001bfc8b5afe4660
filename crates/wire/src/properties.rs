//! Property blocks: borrowed and validated ([`Properties`]), owned and growing ([`PropertyBlock`]).
//!
//! A block is validated once, in one pass, when its packet is decoded: identifiers, legality in the
//! carrier, repetition, values, UTF-8. What the type keeps is the raw bytes and one bit per
//! property present. The bits make repetition and legality checks constant, and let a getter for an
//! absent property, the common case, answer without looking at the bytes. A getter for a present
//! one steps over its neighbours; none of them re-validates the block.
//!
//! Encoding copies the raw bytes, so order and repetition of user properties survive re-publishing.

use std::fmt;

use crate::error::{DecodeError, EncodeError};
use crate::frame::PacketType;
use crate::property::{self, Carrier, Property, PropertyId, Secret};
use crate::qos::QoS;
use crate::reader::Reader;
use crate::varint;
use crate::version::Version;

/// The properties a message keeps on its way to subscribers.
const FORWARDED: u64 = PropertyId::PayloadFormatIndicator.bit()
    | PropertyId::ContentType.bit()
    | PropertyId::ResponseTopic.bit()
    | PropertyId::CorrelationData.bit()
    | PropertyId::UserProperty.bit();

/// The properties a block holds at most once, subscription identifiers aside.
const SINGLE: u64 = !PropertyId::UserProperty.bit();

/// A validated property block inside somebody's buffer. Empty before MQTT 5.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Properties<'a> {
    bytes: &'a [u8],
    present: Present,
}

/// Writes a getter per property that appears at most once.
macro_rules! getters {
    ($($(#[$doc:meta])* $getter:ident: $variant:ident($bind:ident) -> $value:ty;)*) => {
        $($(#[$doc])*
        #[inline]
        pub fn $getter(&self) -> Option<$value> {
            match self.find(PropertyId::$variant)? {
                Property::$variant($bind) => Some($bind),
                _ => None,
            }
        })*
    };
}

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Self = Self { bytes: &[], present: Present(0) };

    /// Validates `bytes`, without their length prefix, as the properties of `carrier`.
    pub fn decode(carrier: Carrier, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut present = Present(0);
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let id = property::read_id(&mut reader)?;
            present.add(id)?;
            present.check_legal_in(carrier)?;
            Property::read(id, &mut reader)?;
        }
        present.check_complete()?;
        Ok(Self { bytes, present })
    }

    /// Validates a block that was stored after [`Properties::forwardable`], as a PUBLISH block.
    pub fn from_forwardable(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Self::decode(Carrier::Packet(PacketType::Publish), bytes)
    }

    /// Reads length and block; before MQTT 5 there is neither.
    #[inline]
    pub(crate) fn read(
        version: Version,
        carrier: Carrier,
        reader: &mut Reader<'a>,
    ) -> Result<Self, DecodeError> {
        if version != Version::V5 {
            return Ok(Self::EMPTY);
        }
        let count = reader.varint("property length")?;
        if count == 0 {
            return Ok(Self::EMPTY);
        }
        Self::decode(carrier, reader.take(count as usize, "properties")?)
    }

    /// The block as it stands on the wire, without its length prefix.
    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether there is no property at all.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a property of this kind is present; constant time.
    #[inline]
    pub const fn contains(&self, id: PropertyId) -> bool {
        self.present.0 & id.bit() != 0
    }

    /// All properties, in the order of the wire.
    pub fn iter(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        // The block was validated, so the errors below cannot happen; ending is the mild answer.
        std::iter::from_fn(move || {
            let id = property::read_id(&mut reader).ok()?;
            Property::read(id, &mut reader).ok()
        })
    }

    /// The first property of a kind.
    pub fn find(&self, id: PropertyId) -> Option<Property<'a>> {
        if !self.contains(id) {
            return None;
        }
        let mut reader = Reader::new(self.bytes);
        loop {
            let found = property::read_id(&mut reader).ok()?;
            if found == id {
                return Property::read(id, &mut reader).ok();
            }
            property::skip(found, &mut reader).ok()?;
        }
    }

    getters! {
        /// Whether the payload is declared to be UTF-8 text.
        payload_is_utf8: PayloadFormatIndicator(flag) -> bool;
        /// Message Expiry Interval.
        message_expiry_s: MessageExpiryInterval(seconds) -> u32;
        /// Content Type.
        content_type: ContentType(text) -> &'a str;
        /// Response Topic.
        response_topic: ResponseTopic(topic) -> &'a str;
        /// Correlation Data.
        correlation_data: CorrelationData(bytes) -> &'a [u8];
        /// Session Expiry Interval.
        session_expiry_s: SessionExpiryInterval(seconds) -> u32;
        /// Assigned Client Identifier.
        assigned_client_id: AssignedClientId(text) -> &'a str;
        /// Server Keep Alive.
        server_keep_alive_s: ServerKeepAlive(seconds) -> u16;
        /// Authentication Method.
        authentication_method: AuthenticationMethod(text) -> &'a str;
        /// Request Problem Information.
        request_problem_information: RequestProblemInformation(flag) -> bool;
        /// Will Delay Interval.
        will_delay_s: WillDelayInterval(seconds) -> u32;
        /// Request Response Information.
        request_response_information: RequestResponseInformation(flag) -> bool;
        /// Response Information.
        response_information: ResponseInformation(text) -> &'a str;
        /// Server Reference.
        server_reference: ServerReference(text) -> &'a str;
        /// Reason String.
        reason_string: ReasonString(text) -> &'a str;
        /// Receive Maximum; never 0.
        receive_maximum: ReceiveMaximum(count) -> u16;
        /// Topic Alias Maximum.
        topic_alias_maximum: TopicAliasMaximum(count) -> u16;
        /// Topic Alias; never 0.
        topic_alias: TopicAlias(alias) -> u16;
        /// Maximum QoS; 0 or 1.
        maximum_qos: MaximumQos(qos) -> QoS;
        /// Retain Available.
        retain_available: RetainAvailable(flag) -> bool;
        /// Maximum Packet Size; never 0.
        maximum_packet_bytes: MaximumPacketSize(bytes) -> u32;
        /// Wildcard Subscription Available.
        wildcard_subscription_available: WildcardSubscriptionAvailable(flag) -> bool;
        /// Subscription Identifiers Available.
        subscription_ids_available: SubscriptionIdAvailable(flag) -> bool;
        /// Shared Subscription Available.
        shared_subscription_available: SharedSubscriptionAvailable(flag) -> bool;
    }

    /// Authentication Data.
    pub fn authentication_data(&self) -> Option<&'a [u8]> {
        match self.find(PropertyId::AuthenticationData)? {
            Property::AuthenticationData(Secret(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The user properties, in order, repetitions included.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.of_kind(PropertyId::UserProperty).filter_map(|property| match property {
            Property::UserProperty(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// The subscription identifiers: in SUBSCRIBE at most one, in PUBLISH one per match.
    pub fn subscription_ids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.of_kind(PropertyId::SubscriptionId).filter_map(|property| match property {
            Property::SubscriptionId(number) => Some(number),
            _ => None,
        })
    }

    /// All properties of one kind; the others are stepped over unread.
    fn of_kind(&self, id: PropertyId) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let bytes = if self.contains(id) { self.bytes } else { &[] };
        let mut reader = Reader::new(bytes);
        std::iter::from_fn(move || {
            loop {
                let found = property::read_id(&mut reader).ok()?;
                if found == id {
                    return Property::read(id, &mut reader).ok();
                }
                property::skip(found, &mut reader).ok()?;
            }
        })
    }

    /// Appends to `into` what a subscriber must see unchanged, in order: payload format, content
    /// type, response topic, correlation data, user properties.
    ///
    /// Left behind: the expiry, which shrinks while the message waits; the alias, which belongs to
    /// one connection; subscription identifiers, which belong to each subscriber; the will delay. A
    /// single property that `into` holds already stays as it is there.
    pub fn forwardable(&self, into: &mut PropertyBlock) {
        let wanted = FORWARDED & !(into.present.0 & SINGLE);
        if self.present.0 & wanted == 0 {
            return;
        }
        if self.present.0 & !wanted == 0 {
            into.append(self.bytes, self.present);
            return;
        }
        let mut reader = Reader::new(self.bytes);
        while !reader.is_empty() {
            let from = reader.rest();
            let Ok(id) = property::read_id(&mut reader) else {
                return;
            };
            if property::skip(id, &mut reader).is_err() {
                return;
            }
            if id.bit() & wanted != 0 {
                let taken = from.len() - reader.rest().len();
                into.append(&from[..taken], Present(id.bit()));
            }
        }
    }

    /// Whether `carrier` may be sent with this block.
    #[inline]
    pub(crate) fn check(&self, version: Version, carrier: Carrier) -> Result<(), DecodeError> {
        if version != Version::V5 || self.is_empty() {
            return Ok(());
        }
        self.present.check_legal_in(carrier)?;
        self.present.check_complete()
    }

    /// Bytes of length prefix and block; before MQTT 5 there is neither.
    #[inline]
    pub(crate) const fn encoded_bytes(&self, version: Version) -> usize {
        match version {
            Version::V31 | Version::V311 => 0,
            Version::V5 => varint::encoded_bytes(self.bytes.len()) + self.bytes.len(),
        }
    }

    /// Appends length and block; before MQTT 5 nothing.
    #[inline]
    pub(crate) fn put(
        &self,
        version: Version,
        carrier: Carrier,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        self.check(version, carrier)?;
        if version == Version::V5 {
            varint::put(self.bytes.len(), out)?;
            out.extend_from_slice(self.bytes);
        }
        Ok(())
    }
}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

/// Which properties a block holds: one bit per identifier, all of which are below 64.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Present(u64);

impl Present {
    /// "More than one subscription identifier"; no property has this number.
    const REPEATED_SUBSCRIPTION_ID: u64 = 1 << 63;

    #[inline]
    fn add(&mut self, id: PropertyId) -> Result<(), DecodeError> {
        let second = self.0 & id.bit() != 0;
        self.0 |= match id {
            PropertyId::SubscriptionId if second => Self::REPEATED_SUBSCRIPTION_ID,
            PropertyId::UserProperty => id.bit(),
            _ if second => return Err(DecodeError::DuplicateProperty { id }),
            _ => id.bit(),
        };
        Ok(())
    }

    #[inline]
    fn check_legal_in(self, carrier: Carrier) -> Result<(), DecodeError> {
        let repeatable = match carrier {
            Carrier::Packet(PacketType::Publish) => Self::REPEATED_SUBSCRIPTION_ID,
            _ => 0,
        };
        let illegal = self.0 & !(property::legal_ids(carrier) | repeatable);
        if illegal == 0 {
            return Ok(());
        }
        Err(match PropertyId::from_number(illegal.trailing_zeros()) {
            Some(id) => DecodeError::PropertyNotAllowed { id, carrier },
            None => DecodeError::DuplicateProperty { id: PropertyId::SubscriptionId },
        })
    }

    #[inline]
    fn check_complete(self) -> Result<(), DecodeError> {
        let data = self.0 & PropertyId::AuthenticationData.bit() != 0;
        let method = self.0 & PropertyId::AuthenticationMethod.bit() != 0;
        if data && !method { Err(DecodeError::AuthenticationMethodMissing) } else { Ok(()) }
    }
}

/// An owned property block to send. Reuse it: [`PropertyBlock::clear`] keeps the memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PropertyBlock {
    bytes: Vec<u8>,
    present: Present,
}

impl PropertyBlock {
    /// An empty block; allocates nothing yet.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), present: Present(0) }
    }

    /// Appends a property. Values are checked here, legality when the carrying packet is encoded.
    ///
    /// On error (a value out of range or too long, a second one of its kind) nothing is appended.
    pub fn push(&mut self, property: Property<'_>) -> Result<(), EncodeError> {
        let mut present = self.present;
        present.add(property.id())?;
        let end = self.bytes.len();
        if let Err(error) = property.put(&mut self.bytes) {
            self.bytes.truncate(end);
            return Err(error);
        }
        self.present = present;
        Ok(())
    }

    /// Forgets all properties and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.present = Present(0);
    }

    /// The block as a packet takes it.
    #[inline]
    pub fn as_properties(&self) -> Properties<'_> {
        Properties { bytes: &self.bytes, present: self.present }
    }

    /// The raw block, to be stored; [`Properties::from_forwardable`] reads it back.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is no property at all.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn append(&mut self, bytes: &[u8], present: Present) {
        self.bytes.extend_from_slice(bytes);
        self.present.0 |= present.0;
    }
}

impl fmt::Debug for PropertyBlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_properties().fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::work;

    const PUBLISH: Carrier = Carrier::Packet(PacketType::Publish);

    fn block(properties: &[Property<'_>]) -> PropertyBlock {
        let mut block = PropertyBlock::new();
        for property in properties {
            block.push(*property).unwrap();
        }
        block
    }

    fn user_properties(count: usize) -> PropertyBlock {
        let mut block = PropertyBlock::new();
        block.push(Property::TopicAlias(7)).unwrap();
        for _ in 0..count {
            block.push(Property::UserProperty("name", "value")).unwrap();
        }
        block
    }

    /// CVE-2021-41039: many user properties once cost quadratic time.
    // hardening: many-properties
    #[test]
    fn thirty_thousand_user_properties_are_visited_once_per_pass() {
        let owned = user_properties(30_000);
        let (validated, visits) = work::of(|| Properties::decode(PUBLISH, owned.as_bytes()));
        let properties = validated.unwrap();
        assert_eq!(visits, 30_001);

        let (count, visits) = work::of(|| properties.user_properties().count());
        assert_eq!((count, visits), (30_000, 30_001));

        let mut forwarded = PropertyBlock::new();
        let ((), visits) = work::of(|| properties.forwardable(&mut forwarded));
        assert_eq!(visits, 30_001);
        assert_eq!(forwarded.as_properties().user_properties().count(), 30_000);
    }

    #[test]
    fn every_getter_finds_its_property_behind_all_others() {
        let all = [
            Property::UserProperty("k", "v"),
            Property::PayloadFormatIndicator(true),
            Property::MessageExpiryInterval(1),
            Property::ContentType("type"),
            Property::ResponseTopic("reply"),
            Property::CorrelationData(&[2]),
            Property::SubscriptionId(3),
            Property::SubscriptionId(300),
            Property::SessionExpiryInterval(4),
            Property::AssignedClientId("id"),
            Property::ServerKeepAlive(5),
            Property::AuthenticationMethod("method"),
            Property::AuthenticationData(Secret(&[6])),
            Property::RequestProblemInformation(false),
            Property::WillDelayInterval(7),
            Property::RequestResponseInformation(true),
            Property::ResponseInformation("response"),
            Property::ServerReference("server"),
            Property::ReasonString("reason"),
            Property::ReceiveMaximum(8),
            Property::TopicAliasMaximum(9),
            Property::TopicAlias(10),
            Property::MaximumQos(QoS::AtLeastOnce),
            Property::RetainAvailable(false),
            Property::MaximumPacketSize(11),
            Property::WildcardSubscriptionAvailable(true),
            Property::SubscriptionIdAvailable(false),
            Property::SharedSubscriptionAvailable(true),
        ];
        let owned = block(&all);
        let properties = owned.as_properties();
        assert_eq!(properties.iter().collect::<Vec<_>>(), all);
        for property in all.iter().filter(|property| **property != Property::SubscriptionId(300)) {
            assert_eq!(properties.find(property.id()), Some(*property));
        }
        assert_eq!(properties.payload_is_utf8(), Some(true));
        assert_eq!(properties.message_expiry_s(), Some(1));
        assert_eq!(properties.content_type(), Some("type"));
        assert_eq!(properties.response_topic(), Some("reply"));
        assert_eq!(properties.correlation_data(), Some(&[2][..]));
        assert_eq!(properties.subscription_ids().collect::<Vec<_>>(), [3, 300]);
        assert_eq!(properties.session_expiry_s(), Some(4));
        assert_eq!(properties.assigned_client_id(), Some("id"));
        assert_eq!(properties.server_keep_alive_s(), Some(5));
        assert_eq!(properties.authentication_method(), Some("method"));
        assert_eq!(properties.authentication_data(), Some(&[6][..]));
        assert_eq!(properties.request_problem_information(), Some(false));
        assert_eq!(properties.will_delay_s(), Some(7));
        assert_eq!(properties.request_response_information(), Some(true));
        assert_eq!(properties.response_information(), Some("response"));
        assert_eq!(properties.server_reference(), Some("server"));
        assert_eq!(properties.reason_string(), Some("reason"));
        assert_eq!(properties.receive_maximum(), Some(8));
        assert_eq!(properties.topic_alias_maximum(), Some(9));
        assert_eq!(properties.topic_alias(), Some(10));
        assert_eq!(properties.maximum_qos(), Some(QoS::AtLeastOnce));
        assert_eq!(properties.retain_available(), Some(false));
        assert_eq!(properties.user_properties().collect::<Vec<_>>(), [("k", "v")]);
        assert_eq!(properties.maximum_packet_bytes(), Some(11));
        assert_eq!(properties.wildcard_subscription_available(), Some(true));
        assert_eq!(properties.subscription_ids_available(), Some(false));
        assert_eq!(properties.shared_subscription_available(), Some(true));
    }

    #[test]
    fn getters_of_absent_properties_do_not_look_at_the_bytes() {
        let owned = user_properties(1_000);
        let properties = owned.as_properties();
        let (answer, visits) =
            work::of(|| (properties.message_expiry_s(), properties.subscription_ids().next()));
        assert_eq!((answer, visits), ((None, None), 0));
    }

    // req: WIRE-14
    #[test]
    fn forwarding_keeps_order_and_drops_what_belongs_to_one_hop() {
        let sent = block(&[
            Property::UserProperty("b", "1"),
            Property::MessageExpiryInterval(60),
            Property::ContentType("text/plain"),
            Property::SubscriptionId(4),
            Property::UserProperty("a", "2"),
            Property::TopicAlias(3),
            Property::CorrelationData(&[1, 2]),
            Property::PayloadFormatIndicator(true),
            Property::UserProperty("b", "1"),
            Property::ResponseTopic("answers"),
        ]);
        let mut forwarded = PropertyBlock::new();
        sent.as_properties().forwardable(&mut forwarded);
        let kept = block(&[
            Property::UserProperty("b", "1"),
            Property::ContentType("text/plain"),
            Property::UserProperty("a", "2"),
            Property::CorrelationData(&[1, 2]),
            Property::PayloadFormatIndicator(true),
            Property::UserProperty("b", "1"),
            Property::ResponseTopic("answers"),
        ]);
        assert_eq!(forwarded, kept);
        let stored = Properties::from_forwardable(forwarded.as_bytes()).unwrap();
        assert_eq!(stored, kept.as_properties());
    }

    #[test]
    fn a_will_block_forwards_without_its_delay() {
        let will = block(&[Property::WillDelayInterval(5), Property::ContentType("x")]);
        let mut forwarded = PropertyBlock::new();
        will.as_properties().forwardable(&mut forwarded);
        assert_eq!(forwarded, block(&[Property::ContentType("x")]));
    }

    #[test]
    fn forwarding_into_a_block_keeps_what_is_there() {
        let sent = block(&[Property::ContentType("theirs"), Property::UserProperty("k", "2")]);
        let mut into = block(&[Property::UserProperty("k", "1"), Property::ContentType("ours")]);
        sent.as_properties().forwardable(&mut into);
        let expected = block(&[
            Property::UserProperty("k", "1"),
            Property::ContentType("ours"),
            Property::UserProperty("k", "2"),
        ]);
        assert_eq!(into, expected);
        assert!(Properties::from_forwardable(into.as_bytes()).is_ok());
    }

    #[test]
    fn a_refused_push_leaves_the_block_alone() {
        let mut owned = block(&[Property::ContentType("x")]);
        let before = owned.clone();
        let long = "x".repeat(65_536);
        assert_eq!(
            owned.push(Property::ContentType("y")),
            Err(DecodeError::DuplicateProperty { id: PropertyId::ContentType }.into())
        );
        assert!(owned.push(Property::UserProperty("fits", &long)).is_err());
        assert!(owned.push(Property::TopicAlias(0)).is_err());
        assert!(owned.push(Property::ResponseTopic("a/#")).is_err());
        assert!(owned.push(Property::ReasonString("nul\0")).is_err());
        assert_eq!(owned, before);
    }

    #[test]
    fn debug_output_hides_authentication_data() {
        let owned = block(&[
            Property::AuthenticationMethod("SCRAM"),
            Property::AuthenticationData(Secret(b"hunter2")),
        ]);
        let shown = format!("{owned:?}");
        assert!(shown.contains("Secret(7 bytes)") && !shown.contains("104"), "{shown}");
    }
}
