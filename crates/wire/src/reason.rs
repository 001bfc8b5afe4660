//! Reason codes: names, the packets that may carry them, and what older versions hear (§2.4).

use std::fmt;

use crate::error::DecodeError;
use crate::frame::PacketType;

/// The outcome of an operation, as one byte. 0x80 and above are failures.
///
/// A newtype, not an enum: a code travels through sessions and logs even when nobody named it.
/// Decoding accepts only the codes the standard lists for the packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReasonCode(pub u8);

/// The table of §2.4 in one place: constant, number, name, packets that may carry it.
macro_rules! reason_codes {
    ($($constant:ident = $code:literal, $name:literal, [$($packet:ident)*];)*) => {
        impl ReasonCode {
            $(#[doc = $name] pub const $constant: Self = Self($code);)*

            /// Every code the standard defines, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$constant),*];

            /// The standard's name. 0x00 means "Normal disconnection" in DISCONNECT and
            /// "Granted `QoS` 0" in SUBACK; here it is "Success".
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => $name,)*
                    _ => "Unknown",
                }
            }
        }

        /// For each code one bit per packet type that may carry it.
        const CARRIERS: [u16; 256] = {
            let mut carriers = [0_u16; 256];
            $($(carriers[$code] |= 1 << PacketType::$packet as u8;)*)*
            carriers
        };
    };
}

reason_codes! {
    SUCCESS = 0x00, "Success",
        [ConnAck PubAck PubRec PubRel PubComp SubAck UnsubAck Disconnect Auth];
    GRANTED_QOS_1 = 0x01, "Granted QoS 1", [SubAck];
    GRANTED_QOS_2 = 0x02, "Granted QoS 2", [SubAck];
    DISCONNECT_WITH_WILL = 0x04, "Disconnect with Will Message", [Disconnect];
    NO_MATCHING_SUBSCRIBERS = 0x10, "No matching subscribers", [PubAck PubRec];
    NO_SUBSCRIPTION_EXISTED = 0x11, "No subscription existed", [UnsubAck];
    CONTINUE_AUTHENTICATION = 0x18, "Continue authentication", [Auth];
    REAUTHENTICATE = 0x19, "Re-authenticate", [Auth];
    UNSPECIFIED_ERROR = 0x80, "Unspecified error",
        [ConnAck PubAck PubRec SubAck UnsubAck Disconnect];
    MALFORMED_PACKET = 0x81, "Malformed Packet", [ConnAck Disconnect];
    PROTOCOL_ERROR = 0x82, "Protocol Error", [ConnAck Disconnect];
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83, "Implementation specific error",
        [ConnAck PubAck PubRec SubAck UnsubAck Disconnect];
    UNSUPPORTED_PROTOCOL_VERSION = 0x84, "Unsupported Protocol Version", [ConnAck];
    CLIENT_IDENTIFIER_NOT_VALID = 0x85, "Client Identifier not valid", [ConnAck];
    BAD_USER_NAME_OR_PASSWORD = 0x86, "Bad User Name or Password", [ConnAck];
    NOT_AUTHORIZED = 0x87, "Not authorized", [ConnAck PubAck PubRec SubAck UnsubAck Disconnect];
    SERVER_UNAVAILABLE = 0x88, "Server unavailable", [ConnAck];
    SERVER_BUSY = 0x89, "Server busy", [ConnAck Disconnect];
    BANNED = 0x8A, "Banned", [ConnAck];
    SERVER_SHUTTING_DOWN = 0x8B, "Server shutting down", [Disconnect];
    BAD_AUTHENTICATION_METHOD = 0x8C, "Bad authentication method", [ConnAck Disconnect];
    KEEP_ALIVE_TIMEOUT = 0x8D, "Keep Alive timeout", [Disconnect];
    SESSION_TAKEN_OVER = 0x8E, "Session taken over", [Disconnect];
    TOPIC_FILTER_INVALID = 0x8F, "Topic Filter invalid", [SubAck UnsubAck Disconnect];
    TOPIC_NAME_INVALID = 0x90, "Topic Name invalid", [ConnAck PubAck PubRec Disconnect];
    PACKET_ID_IN_USE = 0x91, "Packet Identifier in use", [PubAck PubRec SubAck UnsubAck];
    PACKET_ID_NOT_FOUND = 0x92, "Packet Identifier not found", [PubRel PubComp];
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "Receive Maximum exceeded", [Disconnect];
    TOPIC_ALIAS_INVALID = 0x94, "Topic Alias invalid", [Disconnect];
    PACKET_TOO_LARGE = 0x95, "Packet too large", [ConnAck Disconnect];
    MESSAGE_RATE_TOO_HIGH = 0x96, "Message rate too high", [Disconnect];
    QUOTA_EXCEEDED = 0x97, "Quota exceeded", [ConnAck PubAck PubRec SubAck Disconnect];
    ADMINISTRATIVE_ACTION = 0x98, "Administrative action", [Disconnect];
    PAYLOAD_FORMAT_INVALID = 0x99, "Payload format invalid", [ConnAck PubAck PubRec Disconnect];
    RETAIN_NOT_SUPPORTED = 0x9A, "Retain not supported", [ConnAck Disconnect];
    QOS_NOT_SUPPORTED = 0x9B, "QoS not supported", [ConnAck Disconnect];
    USE_ANOTHER_SERVER = 0x9C, "Use another server", [ConnAck Disconnect];
    SERVER_MOVED = 0x9D, "Server moved", [ConnAck Disconnect];
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E, "Shared Subscriptions not supported",
        [SubAck Disconnect];
    CONNECTION_RATE_EXCEEDED = 0x9F, "Connection rate exceeded", [ConnAck Disconnect];
    MAXIMUM_CONNECT_TIME = 0xA0, "Maximum connect time", [Disconnect];
    SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1, "Subscription Identifiers not supported",
        [SubAck Disconnect];
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2, "Wildcard Subscriptions not supported",
        [SubAck Disconnect];
}

impl ReasonCode {
    /// Whether the operation failed.
    #[inline]
    pub const fn is_error(self) -> bool {
        self.0 >= 0x80
    }

    /// Whether the standard lets `packet_type` carry this code.
    #[inline]
    pub const fn legal_in(self, packet_type: PacketType) -> bool {
        CARRIERS[self.0 as usize] & (1 << packet_type as u8) != 0
    }

    #[inline]
    pub(crate) const fn check_legal_in(self, packet_type: PacketType) -> Result<(), DecodeError> {
        if self.legal_in(packet_type) {
            Ok(())
        } else {
            Err(DecodeError::IllegalReason { packet_type, reason: self })
        }
    }

    /// This code if the packet may carry it, else the legal one that says nearly the same.
    ///
    /// Failures stay failures. `None` means that the packet cannot say it at all: it has no reason
    /// code, or only codes that would turn a failure into a success (AUTH).
    pub fn nearest_legal_in(self, packet_type: PacketType) -> Option<Self> {
        let fallbacks: &[Self] = match self {
            // The server is there but cannot serve: the closest word of DISCONNECT is "busy".
            Self::SERVER_UNAVAILABLE => &[Self::SERVER_BUSY, Self::IMPLEMENTATION_SPECIFIC_ERROR],
            Self::SERVER_SHUTTING_DOWN => &[Self::SERVER_UNAVAILABLE],
            Self::MESSAGE_RATE_TOO_HIGH | Self::RECEIVE_MAXIMUM_EXCEEDED => &[Self::QUOTA_EXCEEDED],
            Self::BANNED
            | Self::BAD_USER_NAME_OR_PASSWORD
            | Self::BAD_AUTHENTICATION_METHOD
            | Self::CLIENT_IDENTIFIER_NOT_VALID => &[Self::NOT_AUTHORIZED],
            Self::UNSUPPORTED_PROTOCOL_VERSION => &[Self::PROTOCOL_ERROR],
            _ => &[],
        };
        let last_resort: &[Self] = if self.is_error() {
            &[
                Self::IMPLEMENTATION_SPECIFIC_ERROR,
                Self::UNSPECIFIED_ERROR,
                Self::PACKET_ID_NOT_FOUND,
            ]
        } else {
            &[Self::SUCCESS]
        };
        let mut candidates = std::iter::once(&self).chain(fallbacks).chain(last_resort).copied();
        candidates.find(|candidate| candidate.legal_in(packet_type))
    }

    /// The CONNACK return code a 3.x client hears.
    ///
    /// 0x01 version, 0x02 client id, 0x04 user name or password, 0x05 not authorised; every other
    /// failure is 0x03, server unavailable, so that a safety cause never reads as a refusal of the
    /// client's identity.
    pub const fn to_v3_connack(self) -> u8 {
        match self {
            _ if !self.is_error() => 0,
            Self::UNSUPPORTED_PROTOCOL_VERSION => 1,
            Self::CLIENT_IDENTIFIER_NOT_VALID => 2,
            Self::BAD_USER_NAME_OR_PASSWORD | Self::BAD_AUTHENTICATION_METHOD => 4,
            Self::NOT_AUTHORIZED | Self::BANNED => 5,
            _ => 3,
        }
    }

    /// The code behind a 3.x CONNACK return code, or `None` for the reserved ones.
    pub const fn from_v3_connack(return_code: u8) -> Option<Self> {
        Some(match return_code {
            0 => Self::SUCCESS,
            1 => Self::UNSUPPORTED_PROTOCOL_VERSION,
            2 => Self::CLIENT_IDENTIFIER_NOT_VALID,
            3 => Self::SERVER_UNAVAILABLE,
            4 => Self::BAD_USER_NAME_OR_PASSWORD,
            5 => Self::NOT_AUTHORIZED,
            _ => return None,
        })
    }
}

impl fmt::Debug for ReasonCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ReasonCode({:#04x})", self.0)
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#04x} {}", self.0, self.name())
    }
}
