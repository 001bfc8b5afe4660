//! What can be wrong with bytes, and with a packet we were asked to write.

use crate::frame::PacketType;
use crate::property::{Carrier, PropertyId};
use crate::reason::ReasonCode;
use crate::version::Version;

/// Why received bytes are no packet. All of them end the connection.
///
/// Clause ids are those of MQTT 5.0 unless the message says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Packet type 0, or AUTH before MQTT 5.
    #[error("packet type {packet_type} is reserved in this version (§2.1.2)")]
    ReservedPacketType {
        /// The four type bits.
        packet_type: u8,
    },
    /// The four low bits of the first byte are not what the type prescribes.
    #[error("{packet_type:?} with reserved header flags {flags:#06b} [MQTT-2.1.3-1]")]
    ReservedHeaderFlags {
        /// The type the flags came with.
        packet_type: PacketType,
        /// The four flag bits.
        flags: u8,
    },
    /// Both QoS bits are set: PUBLISH, a will, or a subscription.
    #[error("quality of service 3 does not exist [MQTT-3.3.1-4] [MQTT-3.1.2-12] (§3.8.3.1)")]
    QosThree,
    /// DUP on a message that is never sent twice.
    #[error("DUP is set on a QoS 0 PUBLISH [MQTT-3.3.1-2]")]
    DupAtQosZero,
    /// A variable byte integer asks for a fifth byte.
    #[error("variable byte integer is longer than four bytes (§1.5.5)")]
    VarintTooLong,
    /// A variable byte integer had a shorter form.
    #[error("variable byte integer is not in its shortest form [MQTT-1.5.5-1]")]
    VarintNotMinimal,
    /// The header announces more than the receiver takes.
    #[error("packet of {packet_bytes} bytes, limit is {packet_bytes_max} [MQTT-3.2.2-15]")]
    PacketTooLarge {
        /// What the header announces, itself included.
        packet_bytes: usize,
        /// The receiver's limit.
        packet_bytes_max: usize,
    },
    /// The body ends before or inside a field.
    #[error("packet ends inside its {field} (§2.1.4)")]
    Truncated {
        /// The field that was being read.
        field: &'static str,
    },
    /// The body goes on after the last field.
    #[error("packet goes on after its last field (§2.1.4)")]
    TrailingBytes,
    /// Text is not well-formed UTF-8.
    #[error("text is not well-formed UTF-8 [MQTT-1.5.4-1]")]
    InvalidUtf8,
    /// Text contains U+0000.
    #[error("text contains U+0000 [MQTT-1.5.4-2]")]
    NulCharacter,
    /// A packet identifier of zero.
    #[error("packet identifier is zero [MQTT-2.2.1-3]")]
    ZeroPacketId,
    /// A topic name with `+` or `#`.
    #[error("topic name contains a wildcard [MQTT-3.3.2-2] [MQTT-3.3.2-14]")]
    TopicWildcard,
    /// A topic name of no bytes, and no alias to stand for it.
    #[error("topic name is empty [MQTT-4.7.3-1]")]
    EmptyTopic,
    /// A topic filter of no bytes.
    #[error("topic filter is empty [MQTT-4.7.3-1]")]
    EmptyFilter,
    /// SUBSCRIBE or UNSUBSCRIBE without a filter.
    #[error("no topic filter [MQTT-3.8.3-2] [MQTT-3.10.3-2]")]
    NoFilters,
    /// Reserved bits of the subscription options are set.
    #[error("reserved subscription options are set: {options:#010b} [MQTT-3.8.3-5]")]
    ReservedSubscribeOptions {
        /// The whole options byte.
        options: u8,
    },
    /// Retain Handling 3.
    #[error("retain handling 3 does not exist (§3.8.3.1)")]
    RetainHandlingThree,
    /// No Local on a shared subscription.
    #[error("no local is set on a shared subscription [MQTT-3.8.3-4]")]
    NoLocalOnShared,
    /// SUBACK or UNSUBACK without a code.
    #[error("acknowledgement carries no reason code (§3.9.3)")]
    NoReasonCodes,
    /// A protocol name and level that are no version of ours.
    #[error("protocol level {level:#04x} with its protocol name is not supported [MQTT-3.1.2-2]")]
    UnsupportedVersion {
        /// The level byte, so that the refusal can be spoken in the right version.
        level: u8,
    },
    /// The lowest CONNECT flag is set.
    #[error("reserved CONNECT flag is set [MQTT-3.1.2-3]")]
    ReservedConnectFlag,
    /// Will QoS or will retain without a will.
    #[error("will options are set without a will [MQTT-3.1.2-11] [MQTT-3.1.2-13]")]
    WillOptionsWithoutWill,
    /// A password without a user name, before MQTT 5.
    #[error("password without user name (3.1.1: [MQTT-3.1.2-22])")]
    PasswordWithoutUserName,
    /// Reserved bits of the CONNACK flags are set.
    #[error("reserved CONNACK flags are set: {flags:#010b} [MQTT-3.2.2-1]")]
    ReservedConnAckFlags {
        /// The whole flags byte.
        flags: u8,
    },
    /// CONNACK refuses and claims a session at once.
    #[error("session present is set on a refusal [MQTT-3.2.2-6]")]
    SessionPresentOnRefusal,
    /// A reason code that this packet may not carry.
    #[error("{packet_type:?} with reason code {reason} (§2.4)")]
    IllegalReason {
        /// The packet that carried it.
        packet_type: PacketType,
        /// The code.
        reason: ReasonCode,
    },
    /// A property identifier the standard does not define.
    #[error("property identifier {id:#04x} does not exist (§2.2.2.2)")]
    UnknownProperty {
        /// The identifier read.
        id: u32,
    },
    /// A property in a packet that may not carry it.
    #[error("property {id:?} is not allowed in {carrier:?} (§2.2.2.2)")]
    PropertyNotAllowed {
        /// The property.
        id: PropertyId,
        /// Where it stood.
        carrier: Carrier,
    },
    /// A property twice where once is the rule.
    #[error("property {id:?} appears more than once (§2.2.2.2)")]
    DuplicateProperty {
        /// The property.
        id: PropertyId,
    },
    /// A value outside the property's range.
    #[error("property {id:?} has a value outside its range (§2.2.2.2)")]
    PropertyValue {
        /// The property.
        id: PropertyId,
    },
    /// A topic alias of zero.
    #[error("topic alias is zero [MQTT-3.3.2-8]")]
    ZeroTopicAlias,
    /// Authentication data, or an AUTH with content, that names no method.
    #[error("authentication method is missing (§3.1.2.11.10, §3.15.2.2.2)")]
    AuthenticationMethodMissing,
}

impl DecodeError {
    /// The reason code that tells a v5 peer; see [`ReasonCode::nearest_legal_in`] before sending.
    pub const fn reason_code(self) -> ReasonCode {
        match self {
            Self::ReservedPacketType { .. }
            | Self::ReservedHeaderFlags { .. }
            | Self::QosThree
            | Self::DupAtQosZero
            | Self::VarintTooLong
            | Self::VarintNotMinimal
            | Self::Truncated { .. }
            | Self::TrailingBytes
            | Self::InvalidUtf8
            | Self::NulCharacter
            | Self::ReservedSubscribeOptions { .. }
            | Self::ReservedConnectFlag
            | Self::WillOptionsWithoutWill
            | Self::PasswordWithoutUserName
            | Self::ReservedConnAckFlags { .. }
            | Self::UnknownProperty { .. }
            | Self::PropertyNotAllowed { .. } => ReasonCode::MALFORMED_PACKET,
            Self::ZeroPacketId
            | Self::EmptyTopic
            | Self::NoFilters
            | Self::RetainHandlingThree
            | Self::NoLocalOnShared
            | Self::NoReasonCodes
            | Self::SessionPresentOnRefusal
            | Self::IllegalReason { .. }
            | Self::DuplicateProperty { .. }
            | Self::PropertyValue { .. }
            | Self::AuthenticationMethodMissing => ReasonCode::PROTOCOL_ERROR,
            Self::PacketTooLarge { .. } => ReasonCode::PACKET_TOO_LARGE,
            Self::TopicWildcard => ReasonCode::TOPIC_NAME_INVALID,
            Self::EmptyFilter => ReasonCode::TOPIC_FILTER_INVALID,
            Self::UnsupportedVersion { .. } => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            Self::ZeroTopicAlias => ReasonCode::TOPIC_ALIAS_INVALID,
        }
    }

    /// A stable name for metrics and golden files.
    pub const fn label(self) -> &'static str {
        match self {
            Self::ReservedPacketType { .. } => "reserved_packet_type",
            Self::ReservedHeaderFlags { .. } => "reserved_header_flags",
            Self::QosThree => "qos_three",
            Self::DupAtQosZero => "dup_at_qos_zero",
            Self::VarintTooLong => "varint_too_long",
            Self::VarintNotMinimal => "varint_not_minimal",
            Self::PacketTooLarge { .. } => "packet_too_large",
            Self::Truncated { .. } => "truncated",
            Self::TrailingBytes => "trailing_bytes",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::NulCharacter => "nul_character",
            Self::ZeroPacketId => "zero_packet_id",
            Self::TopicWildcard => "topic_wildcard",
            Self::EmptyTopic => "empty_topic",
            Self::EmptyFilter => "empty_filter",
            Self::NoFilters => "no_filters",
            Self::ReservedSubscribeOptions { .. } => "reserved_subscribe_options",
            Self::RetainHandlingThree => "retain_handling_three",
            Self::NoLocalOnShared => "no_local_on_shared",
            Self::NoReasonCodes => "no_reason_codes",
            Self::UnsupportedVersion { .. } => "unsupported_version",
            Self::ReservedConnectFlag => "reserved_connect_flag",
            Self::WillOptionsWithoutWill => "will_options_without_will",
            Self::PasswordWithoutUserName => "password_without_user_name",
            Self::ReservedConnAckFlags { .. } => "reserved_connack_flags",
            Self::SessionPresentOnRefusal => "session_present_on_refusal",
            Self::IllegalReason { .. } => "illegal_reason",
            Self::UnknownProperty { .. } => "unknown_property",
            Self::PropertyNotAllowed { .. } => "property_not_allowed",
            Self::DuplicateProperty { .. } => "duplicate_property",
            Self::PropertyValue { .. } => "property_value",
            Self::ZeroTopicAlias => "zero_topic_alias",
            Self::AuthenticationMethodMissing => "authentication_method_missing",
        }
    }
}

/// Why a packet cannot be written. The output is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A string or binary value that two length bytes cannot announce.
    #[error("{field} of {bytes} bytes is longer than 65535 bytes (§1.5.4)")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// A body, or a property block, above the ceiling of the Remaining Length.
    #[error("{body_bytes} bytes do not fit a variable byte integer (§1.5.5)")]
    PacketTooLarge {
        /// The size of what should have been announced.
        body_bytes: usize,
    },
    /// PUBLISH needs a packet id exactly when its QoS is above 0.
    #[error("packet identifier and QoS {qos} do not go together [MQTT-2.2.1-2]")]
    PacketIdAgainstQos {
        /// The QoS bits.
        qos: u8,
    },
    /// The version has no such packet.
    #[error("{packet_type:?} does not exist in {version:?}")]
    NotInVersion {
        /// The packet.
        packet_type: PacketType,
        /// The version asked for.
        version: Version,
    },
    /// The version cannot say this reason, and leaving it out would say something else.
    #[error("{packet_type:?} cannot say {reason} in {version:?}")]
    ReasonNotInVersion {
        /// The packet.
        packet_type: PacketType,
        /// The reason.
        reason: ReasonCode,
        /// The version asked for.
        version: Version,
    },
    /// CONNECT carries its own version, and was asked to be another.
    #[error("CONNECT for {own:?} cannot be written as {asked:?}")]
    VersionMismatch {
        /// The version inside the packet.
        own: Version,
        /// The version asked for.
        asked: Version,
    },
    /// A peer would refuse what we were about to write.
    #[error("a peer would refuse this packet: {0}")]
    Refused(#[from] DecodeError),
}
