//! One MQTT 5 property: its 27 kinds, where each may stand, its bytes (§2.2.2).
//!
//! A property is an identifier and a value; the identifier alone decides the value's layout. Two
//! readers exist: [`Property::read`] checks the value and returns it, [`skip`] only finds its end.
//! Blocks are validated with the first and searched with the second, so asking a large block for
//! one number does not validate every string again.

use std::fmt;

use crate::error::{DecodeError, EncodeError};
use crate::frame::PacketType;
use crate::qos::QoS;
use crate::reader::Reader;
use crate::text::{self, put_binary, put_text};
use crate::varint;

/// Where a property block stands: in a packet, or in front of a will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The will properties inside CONNECT.
    Will,
    /// The properties of a packet.
    Packet(PacketType),
}

impl Carrier {
    /// All places a property block can have.
    pub fn all() -> impl Iterator<Item = Self> {
        let with_properties =
            |packet: &PacketType| !matches!(packet, PacketType::PingReq | PacketType::PingResp);
        let packets = PacketType::ALL.into_iter().filter(with_properties).map(Self::Packet);
        std::iter::once(Self::Will).chain(packets)
    }

    /// Packet type 0 does not exist, so its bit is free for the will.
    const fn index(self) -> usize {
        match self {
            Self::Will => 0,
            Self::Packet(packet) => packet as usize,
        }
    }
}

/// Binary data that must not appear in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret<'a>(pub &'a [u8]);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({} bytes)", self.0.len())
    }
}

/// Which property; the number is its identifier on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the same 27 names carry their documentation on Property")]
pub enum PropertyId {
    PayloadFormatIndicator = 0x01,
    MessageExpiryInterval = 0x02,
    ContentType = 0x03,
    ResponseTopic = 0x08,
    CorrelationData = 0x09,
    SubscriptionId = 0x0B,
    SessionExpiryInterval = 0x11,
    AssignedClientId = 0x12,
    ServerKeepAlive = 0x13,
    AuthenticationMethod = 0x15,
    AuthenticationData = 0x16,
    RequestProblemInformation = 0x17,
    WillDelayInterval = 0x18,
    RequestResponseInformation = 0x19,
    ResponseInformation = 0x1A,
    ServerReference = 0x1C,
    ReasonString = 0x1F,
    ReceiveMaximum = 0x21,
    TopicAliasMaximum = 0x22,
    TopicAlias = 0x23,
    MaximumQos = 0x24,
    RetainAvailable = 0x25,
    UserProperty = 0x26,
    MaximumPacketSize = 0x27,
    WildcardSubscriptionAvailable = 0x28,
    SubscriptionIdAvailable = 0x29,
    SharedSubscriptionAvailable = 0x2A,
}

/// The layout of a value.
#[derive(Clone, Copy)]
enum Layout {
    OneByte,
    TwoBytes,
    FourBytes,
    Varint,
    Prefixed,
    PrefixedPair,
}

impl PropertyId {
    /// All kinds, ascending.
    pub const ALL: [Self; 27] = [
        Self::PayloadFormatIndicator,
        Self::MessageExpiryInterval,
        Self::ContentType,
        Self::ResponseTopic,
        Self::CorrelationData,
        Self::SubscriptionId,
        Self::SessionExpiryInterval,
        Self::AssignedClientId,
        Self::ServerKeepAlive,
        Self::AuthenticationMethod,
        Self::AuthenticationData,
        Self::RequestProblemInformation,
        Self::WillDelayInterval,
        Self::RequestResponseInformation,
        Self::ResponseInformation,
        Self::ServerReference,
        Self::ReasonString,
        Self::ReceiveMaximum,
        Self::TopicAliasMaximum,
        Self::TopicAlias,
        Self::MaximumQos,
        Self::RetainAvailable,
        Self::UserProperty,
        Self::MaximumPacketSize,
        Self::WildcardSubscriptionAvailable,
        Self::SubscriptionIdAvailable,
        Self::SharedSubscriptionAvailable,
    ];

    /// The kind behind an identifier, or `None` when the standard defines none.
    #[inline]
    pub const fn from_number(number: u32) -> Option<Self> {
        if number < BY_NUMBER.len() as u32 { BY_NUMBER[number as usize] } else { None }
    }

    /// Whether the standard allows this property in `carrier` (table 2-4).
    #[inline]
    pub const fn legal_in(self, carrier: Carrier) -> bool {
        legal_ids(carrier) & self.bit() != 0
    }

    /// One bit per kind: all identifiers are below 64.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }

    const fn layout(self) -> Layout {
        match self {
            Self::PayloadFormatIndicator
            | Self::RequestProblemInformation
            | Self::RequestResponseInformation
            | Self::MaximumQos
            | Self::RetainAvailable
            | Self::WildcardSubscriptionAvailable
            | Self::SubscriptionIdAvailable
            | Self::SharedSubscriptionAvailable => Layout::OneByte,
            Self::ServerKeepAlive
            | Self::ReceiveMaximum
            | Self::TopicAliasMaximum
            | Self::TopicAlias => Layout::TwoBytes,
            Self::MessageExpiryInterval
            | Self::SessionExpiryInterval
            | Self::WillDelayInterval
            | Self::MaximumPacketSize => Layout::FourBytes,
            Self::SubscriptionId => Layout::Varint,
            Self::ContentType
            | Self::ResponseTopic
            | Self::CorrelationData
            | Self::AssignedClientId
            | Self::AuthenticationMethod
            | Self::AuthenticationData
            | Self::ResponseInformation
            | Self::ServerReference
            | Self::ReasonString => Layout::Prefixed,
            Self::UserProperty => Layout::PrefixedPair,
        }
    }
}

/// The identifier's bit set in the allowance of each carrier.
#[inline]
pub(crate) const fn legal_ids(carrier: Carrier) -> u64 {
    LEGAL_IDS[carrier.index()]
}

const BY_NUMBER: [Option<PropertyId>; 0x2B] = {
    let mut by_number = [None; 0x2B];
    let mut index = 0;
    while index < PropertyId::ALL.len() {
        let id = PropertyId::ALL[index];
        by_number[id as usize] = Some(id);
        index += 1;
    }
    by_number
};

/// Table 2-4, by carrier. User properties are allowed everywhere.
const LEGAL_IDS: [u64; 16] = {
    use PacketType as P;
    use PropertyId as I;
    let message = I::PayloadFormatIndicator.bit()
        | I::MessageExpiryInterval.bit()
        | I::ContentType.bit()
        | I::ResponseTopic.bit()
        | I::CorrelationData.bit();
    let authentication = I::AuthenticationMethod.bit() | I::AuthenticationData.bit();
    let limits = I::SessionExpiryInterval.bit()
        | I::ReceiveMaximum.bit()
        | I::MaximumPacketSize.bit()
        | I::TopicAliasMaximum.bit();
    let reason = I::ReasonString.bit() | I::UserProperty.bit();

    let mut legal = [reason; 16];
    legal[Carrier::Will.index()] = message | I::WillDelayInterval.bit() | I::UserProperty.bit();
    legal[P::Connect as usize] = limits
        | authentication
        | I::RequestProblemInformation.bit()
        | I::RequestResponseInformation.bit()
        | I::UserProperty.bit();
    legal[P::ConnAck as usize] = limits
        | authentication
        | reason
        | I::AssignedClientId.bit()
        | I::ServerKeepAlive.bit()
        | I::ResponseInformation.bit()
        | I::ServerReference.bit()
        | I::MaximumQos.bit()
        | I::RetainAvailable.bit()
        | I::WildcardSubscriptionAvailable.bit()
        | I::SubscriptionIdAvailable.bit()
        | I::SharedSubscriptionAvailable.bit();
    legal[P::Publish as usize] =
        message | I::SubscriptionId.bit() | I::TopicAlias.bit() | I::UserProperty.bit();
    legal[P::Subscribe as usize] = I::SubscriptionId.bit() | I::UserProperty.bit();
    legal[P::Unsubscribe as usize] = I::UserProperty.bit();
    legal[P::PingReq as usize] = 0;
    legal[P::PingResp as usize] = 0;
    legal[P::Disconnect as usize] =
        reason | I::SessionExpiryInterval.bit() | I::ServerReference.bit();
    legal[P::Auth as usize] = reason | authentication;
    legal
};

/// A property with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property<'a> {
    /// Whether the payload is UTF-8 text.
    PayloadFormatIndicator(bool),
    /// Seconds until the message is stale.
    MessageExpiryInterval(u32),
    /// What the payload is, in the application's own words.
    ContentType(&'a str),
    /// Where an answer should go; a topic name.
    ResponseTopic(&'a str),
    /// Ties an answer to its request.
    CorrelationData(&'a [u8]),
    /// The subscription a message matched; 1 to 268,435,455.
    SubscriptionId(u32),
    /// Seconds the session outlives its connection.
    SessionExpiryInterval(u32),
    /// The client id the server chose.
    AssignedClientId(&'a str),
    /// Seconds of keep alive the server insists on.
    ServerKeepAlive(u16),
    /// Name of the enhanced authentication method.
    AuthenticationMethod(&'a str),
    /// Its data.
    AuthenticationData(Secret<'a>),
    /// Whether the client wants reason strings and user properties on failures.
    RequestProblemInformation(bool),
    /// Seconds between the end of the connection and the will.
    WillDelayInterval(u32),
    /// Whether the client wants response information in CONNACK.
    RequestResponseInformation(bool),
    /// Basis for response topics.
    ResponseInformation(&'a str),
    /// Another server to use.
    ServerReference(&'a str),
    /// Why, in words for a person.
    ReasonString(&'a str),
    /// How many QoS 1 and 2 messages may be in flight; not 0.
    ReceiveMaximum(u16),
    /// The highest topic alias accepted; 0 means none.
    TopicAliasMaximum(u16),
    /// A number standing for a topic name; not 0.
    TopicAlias(u16),
    /// The highest QoS the server takes; 0 or 1.
    MaximumQos(QoS),
    /// Whether the server keeps retained messages.
    RetainAvailable(bool),
    /// A name and a value; may repeat, in order.
    UserProperty(&'a str, &'a str),
    /// The largest packet accepted, in bytes; not 0.
    MaximumPacketSize(u32),
    /// Whether filters may have wildcards.
    WildcardSubscriptionAvailable(bool),
    /// Whether subscriptions may have identifiers.
    SubscriptionIdAvailable(bool),
    /// Whether subscriptions may be shared.
    SharedSubscriptionAvailable(bool),
}

const FIELD: &str = "property value";

/// Reads an identifier.
#[inline]
pub(crate) fn read_id(reader: &mut Reader<'_>) -> Result<PropertyId, DecodeError> {
    let id = reader.varint("property identifier")?;
    PropertyId::from_number(id).ok_or(DecodeError::UnknownProperty { id })
}

/// Steps over a value without looking into it.
pub(crate) fn skip(id: PropertyId, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    #[cfg(test)]
    work::count();
    match id.layout() {
        Layout::OneByte => reader.take(1, FIELD)?,
        Layout::TwoBytes => reader.take(2, FIELD)?,
        Layout::FourBytes => reader.take(4, FIELD)?,
        Layout::Varint => {
            reader.varint(FIELD)?;
            &[]
        }
        Layout::Prefixed => reader.binary(FIELD)?,
        Layout::PrefixedPair => {
            reader.binary(FIELD)?;
            reader.binary(FIELD)?
        }
    };
    Ok(())
}

impl<'a> Property<'a> {
    /// Reads the value of `id` and checks it against the property's range.
    pub(crate) fn read(id: PropertyId, reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        use PropertyId as I;
        #[cfg(test)]
        work::count();
        let property = match id {
            I::PayloadFormatIndicator => Self::PayloadFormatIndicator(read_flag(id, reader)?),
            I::MessageExpiryInterval => Self::MessageExpiryInterval(reader.four_bytes(FIELD)?),
            I::ContentType => Self::ContentType(reader.text(FIELD)?),
            I::ResponseTopic => Self::ResponseTopic(reader.topic_name(FIELD)?),
            I::CorrelationData => Self::CorrelationData(reader.binary(FIELD)?),
            I::SubscriptionId => Self::SubscriptionId(reader.varint(FIELD)?),
            I::SessionExpiryInterval => Self::SessionExpiryInterval(reader.four_bytes(FIELD)?),
            I::AssignedClientId => Self::AssignedClientId(reader.text(FIELD)?),
            I::ServerKeepAlive => Self::ServerKeepAlive(reader.two_bytes(FIELD)?),
            I::AuthenticationMethod => Self::AuthenticationMethod(reader.text(FIELD)?),
            I::AuthenticationData => Self::AuthenticationData(Secret(reader.binary(FIELD)?)),
            I::RequestProblemInformation => Self::RequestProblemInformation(read_flag(id, reader)?),
            I::WillDelayInterval => Self::WillDelayInterval(reader.four_bytes(FIELD)?),
            I::RequestResponseInformation => {
                Self::RequestResponseInformation(read_flag(id, reader)?)
            }
            I::ResponseInformation => Self::ResponseInformation(reader.text(FIELD)?),
            I::ServerReference => Self::ServerReference(reader.text(FIELD)?),
            I::ReasonString => Self::ReasonString(reader.text(FIELD)?),
            I::ReceiveMaximum => Self::ReceiveMaximum(reader.two_bytes(FIELD)?),
            I::TopicAliasMaximum => Self::TopicAliasMaximum(reader.two_bytes(FIELD)?),
            I::TopicAlias => Self::TopicAlias(reader.two_bytes(FIELD)?),
            I::MaximumQos => Self::MaximumQos(
                QoS::from_bits(reader.byte(FIELD)?).ok_or(DecodeError::PropertyValue { id })?,
            ),
            I::RetainAvailable => Self::RetainAvailable(read_flag(id, reader)?),
            I::UserProperty => Self::UserProperty(reader.text(FIELD)?, reader.text(FIELD)?),
            I::MaximumPacketSize => Self::MaximumPacketSize(reader.four_bytes(FIELD)?),
            I::WildcardSubscriptionAvailable => {
                Self::WildcardSubscriptionAvailable(read_flag(id, reader)?)
            }
            I::SubscriptionIdAvailable => Self::SubscriptionIdAvailable(read_flag(id, reader)?),
            I::SharedSubscriptionAvailable => {
                Self::SharedSubscriptionAvailable(read_flag(id, reader)?)
            }
        };
        property.check_range()?;
        Ok(property)
    }

    /// Which property this is.
    pub const fn id(&self) -> PropertyId {
        use PropertyId as I;
        match self {
            Self::PayloadFormatIndicator(_) => I::PayloadFormatIndicator,
            Self::MessageExpiryInterval(_) => I::MessageExpiryInterval,
            Self::ContentType(_) => I::ContentType,
            Self::ResponseTopic(_) => I::ResponseTopic,
            Self::CorrelationData(_) => I::CorrelationData,
            Self::SubscriptionId(_) => I::SubscriptionId,
            Self::SessionExpiryInterval(_) => I::SessionExpiryInterval,
            Self::AssignedClientId(_) => I::AssignedClientId,
            Self::ServerKeepAlive(_) => I::ServerKeepAlive,
            Self::AuthenticationMethod(_) => I::AuthenticationMethod,
            Self::AuthenticationData(_) => I::AuthenticationData,
            Self::RequestProblemInformation(_) => I::RequestProblemInformation,
            Self::WillDelayInterval(_) => I::WillDelayInterval,
            Self::RequestResponseInformation(_) => I::RequestResponseInformation,
            Self::ResponseInformation(_) => I::ResponseInformation,
            Self::ServerReference(_) => I::ServerReference,
            Self::ReasonString(_) => I::ReasonString,
            Self::ReceiveMaximum(_) => I::ReceiveMaximum,
            Self::TopicAliasMaximum(_) => I::TopicAliasMaximum,
            Self::TopicAlias(_) => I::TopicAlias,
            Self::MaximumQos(_) => I::MaximumQos,
            Self::RetainAvailable(_) => I::RetainAvailable,
            Self::UserProperty(..) => I::UserProperty,
            Self::MaximumPacketSize(_) => I::MaximumPacketSize,
            Self::WildcardSubscriptionAvailable(_) => I::WildcardSubscriptionAvailable,
            Self::SubscriptionIdAvailable(_) => I::SubscriptionIdAvailable,
            Self::SharedSubscriptionAvailable(_) => I::SharedSubscriptionAvailable,
        }
    }

    /// Refuses values that the layout can carry and the standard forbids.
    fn check_range(&self) -> Result<(), DecodeError> {
        match self {
            Self::TopicAlias(0) => Err(DecodeError::ZeroTopicAlias),
            Self::ResponseTopic("") => Err(DecodeError::EmptyTopic),
            Self::ReceiveMaximum(0)
            | Self::MaximumPacketSize(0)
            | Self::SubscriptionId(0)
            | Self::MaximumQos(QoS::ExactlyOnce) => {
                Err(DecodeError::PropertyValue { id: self.id() })
            }
            Self::SubscriptionId(number) if *number > varint::VARINT_MAX => {
                Err(DecodeError::PropertyValue { id: self.id() })
            }
            _ => Ok(()),
        }
    }

    /// Appends identifier and value. On error `out` may hold a part of them.
    pub(crate) fn put(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check_range()?;
        out.push(self.id() as u8);
        match *self {
            Self::PayloadFormatIndicator(flag)
            | Self::RequestProblemInformation(flag)
            | Self::RequestResponseInformation(flag)
            | Self::RetainAvailable(flag)
            | Self::WildcardSubscriptionAvailable(flag)
            | Self::SubscriptionIdAvailable(flag)
            | Self::SharedSubscriptionAvailable(flag) => out.push(u8::from(flag)),
            Self::MaximumQos(qos) => out.push(qos.bits()),
            Self::ServerKeepAlive(number)
            | Self::ReceiveMaximum(number)
            | Self::TopicAliasMaximum(number)
            | Self::TopicAlias(number) => out.extend_from_slice(&number.to_be_bytes()),
            Self::MessageExpiryInterval(number)
            | Self::SessionExpiryInterval(number)
            | Self::WillDelayInterval(number)
            | Self::MaximumPacketSize(number) => out.extend_from_slice(&number.to_be_bytes()),
            Self::SubscriptionId(number) => varint::put(number as usize, out)?,
            Self::ContentType(text)
            | Self::AssignedClientId(text)
            | Self::AuthenticationMethod(text)
            | Self::ResponseInformation(text)
            | Self::ServerReference(text)
            | Self::ReasonString(text) => put_text(FIELD, text, out)?,
            Self::ResponseTopic(topic) => {
                text::refuse_nul_and_wildcards(topic)?;
                put_text(FIELD, topic, out)?;
            }
            Self::CorrelationData(bytes) | Self::AuthenticationData(Secret(bytes)) => {
                put_binary(FIELD, bytes, out)?;
            }
            Self::UserProperty(name, value) => {
                put_text(FIELD, name, out)?;
                put_text(FIELD, value, out)?;
            }
        }
        Ok(())
    }
}

#[inline]
fn read_flag(id: PropertyId, reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match reader.byte(FIELD)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::PropertyValue { id }),
    }
}

/// Counts property visits, so that tests can show linear work without a clock.
#[cfg(test)]
pub(crate) mod work {
    use std::cell::Cell;

    thread_local!(static VISITS: Cell<usize> = const { Cell::new(0) });

    pub(crate) fn count() {
        VISITS.set(VISITS.get() + 1);
    }

    /// Property visits made by `task`.
    pub(crate) fn of<T>(task: impl FnOnce() -> T) -> (T, usize) {
        let before = VISITS.get();
        let result = task();
        (result, VISITS.get() - before)
    }
}
