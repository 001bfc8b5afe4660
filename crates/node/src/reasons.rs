//! Why something ended, was refused or was dropped: one name each, the same in metrics, events and
//! logs, and the code an MQTT 5 client hears.

use quantumqtt_reactor::Fault;
use quantumqtt_wire::{DecodeError, ReasonCode};

/// Declares an enum whose variants have a stable metric label.
macro_rules! labelled {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $label:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every reason, in declaration order: the index into counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The metric label and event reason; never changes.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }
        }
    };
}

labelled! {
    /// Why a connection ended.
    CloseReason {
        /// The client said DISCONNECT.
        Normal = "normal",
        /// The client said DISCONNECT and asked for its will to be published.
        WithWill = "disconnect_with_will",
        /// The client closed the socket without a word.
        PeerClosed = "peer_closed",
        /// The socket broke.
        SocketError = "socket_error",
        /// A TLS record is damaged.
        TlsBroken = "tls_broken",
        /// WebSocket's framing is broken.
        WebsocketProtocol = "websocket_protocol",
        /// No CONNECT within the time for it.
        ConnectTimeout = "connect_timeout",
        /// CONNECT was answered with a refusal.
        Refused = "refused",
        /// Silence for one and a half keep-alive intervals.
        KeepAliveTimeout = "keep_alive_timeout",
        /// Another connection opened the session.
        TakenOver = "taken_over",
        /// A packet that cannot be read.
        MalformedPacket = "malformed_packet",
        /// A packet that may not come now, or with such contents.
        ProtocolError = "protocol_error",
        /// A packet larger than announced.
        PacketTooLarge = "packet_too_large",
        /// More unacknowledged publishes than announced.
        ReceiveMaximumExceeded = "receive_maximum_exceeded",
        /// A topic alias that was never set, or above the announced maximum.
        TopicAliasInvalid = "topic_alias_invalid",
        /// Topic aliases whose topics take more memory than one client gets.
        TopicAliasesTooLarge = "topic_aliases_too_large",
        /// A name no message can be published to.
        TopicNameInvalid = "topic_name_invalid",
        /// A filter nobody can subscribe to.
        TopicFilterInvalid = "topic_filter_invalid",
        /// It reads too slowly for what it asked to receive.
        SlowSubscriber = "slow_subscriber",
        /// It published where it may not.
        NotAuthorized = "not_authorized",
        /// Its user is no longer one, or has another password.
        CredentialsRevoked = "credentials_revoked",
        /// The certificate it came in by is on a newer revocation list.
        CertificateRevoked = "certificate_revoked",
        /// AUTH with another method than CONNECT had.
        BadAuthenticationMethod = "bad_authentication_method",
        /// It began to authenticate again and could not.
        ReauthenticationFailed = "reauthentication_failed",
        /// The machine ended its session, for example over its limits.
        SessionEnded = "session_ended",
        /// Retention was faster than its replay.
        ReplayExpired = "replay_expired",
        /// The log it replays cannot be read.
        ReplayFailed = "replay_failed",
        /// The node drains.
        Draining = "draining",
        /// The node stopped without draining.
        Stopping = "stopping",
    }
}

impl CloseReason {
    /// What an MQTT 5 client hears in DISCONNECT before the close; None when nothing is sent.
    pub fn disconnect_code(self) -> Option<ReasonCode> {
        Some(match self {
            Self::KeepAliveTimeout => ReasonCode::KEEP_ALIVE_TIMEOUT,
            Self::TakenOver => ReasonCode::SESSION_TAKEN_OVER,
            Self::MalformedPacket => ReasonCode::MALFORMED_PACKET,
            Self::ProtocolError => ReasonCode::PROTOCOL_ERROR,
            Self::PacketTooLarge => ReasonCode::PACKET_TOO_LARGE,
            Self::ReceiveMaximumExceeded => ReasonCode::RECEIVE_MAXIMUM_EXCEEDED,
            Self::TopicAliasInvalid => ReasonCode::TOPIC_ALIAS_INVALID,
            Self::TopicNameInvalid => ReasonCode::TOPIC_NAME_INVALID,
            Self::TopicFilterInvalid => ReasonCode::TOPIC_FILTER_INVALID,
            Self::SlowSubscriber | Self::SessionEnded | Self::TopicAliasesTooLarge => {
                ReasonCode::QUOTA_EXCEEDED
            }
            Self::BadAuthenticationMethod => ReasonCode::BAD_AUTHENTICATION_METHOD,
            Self::NotAuthorized
            | Self::CredentialsRevoked
            | Self::CertificateRevoked
            | Self::ReauthenticationFailed => ReasonCode::NOT_AUTHORIZED,
            Self::ReplayExpired | Self::ReplayFailed => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
            Self::Draining => ReasonCode::SERVER_SHUTTING_DOWN,
            _ => return None,
        })
    }

    /// Whether a will that is held for the connection is published.
    ///
    /// Who fails to authenticate again, or has lost what it came in by, is no longer allowed to
    /// publish one.
    pub fn fires_will(self) -> bool {
        !matches!(
            self,
            Self::Normal | Self::Refused | Self::ReauthenticationFailed | Self::CertificateRevoked
        )
    }

    /// Whether that will waits first, because the end was ours and no failure of the client.
    pub fn defers_will(self) -> bool {
        matches!(self, Self::Draining | Self::Stopping)
    }

    pub(crate) fn from_index(index: u16) -> Self {
        Self::ALL.get(usize::from(index)).copied().unwrap_or(Self::SocketError)
    }
}

impl From<Fault> for CloseReason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::WebsocketProtocol | Fault::UpgradeRefused => Self::WebsocketProtocol,
            _ => Self::TlsBroken,
        }
    }
}

impl From<DecodeError> for CloseReason {
    fn from(error: DecodeError) -> Self {
        match error.reason_code() {
            ReasonCode::PACKET_TOO_LARGE => Self::PacketTooLarge,
            ReasonCode::PROTOCOL_ERROR => Self::ProtocolError,
            ReasonCode::TOPIC_NAME_INVALID => Self::TopicNameInvalid,
            ReasonCode::TOPIC_FILTER_INVALID => Self::TopicFilterInvalid,
            ReasonCode::TOPIC_ALIAS_INVALID => Self::TopicAliasInvalid,
            ReasonCode::RECEIVE_MAXIMUM_EXCEEDED => Self::ReceiveMaximumExceeded,
            _ => Self::MalformedPacket,
        }
    }
}

impl From<Fault> for RefusalReason {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::ProxyUntrusted => Self::ProxyUntrusted,
            Fault::ProxyMalformed => Self::ProxyMalformed,
            Fault::NotTls => Self::NotTls,
            Fault::TlsHandshake => Self::TlsHandshake,
            Fault::CertificateMissing => Self::CertificateMissing,
            Fault::CertificateExpired => Self::CertificateExpired,
            Fault::CertificateRevoked => Self::CertificateRevoked,
            Fault::CertificateUntrusted => Self::CertificateUntrusted,
            Fault::CertificateUnnamed => Self::CertificateUnnamed,
            Fault::UpgradeRefused => Self::UpgradeRefused,
            Fault::TlsBroken | Fault::WebsocketProtocol => Self::LayerBroken,
            Fault::HandshakeTimeout => Self::HandshakeTimeout,
            Fault::ListenerFull => Self::ListenerFull,
            Fault::AddressFull => Self::AddressFull,
        }
    }
}

labelled! {
    /// Why a message did not reach a subscriber that it matched.
    DropReason {
        /// QoS 0, and the subscriber has too many bytes waiting.
        SlowSubscriber = "slow_subscriber",
        /// Larger than the subscriber accepts.
        PacketTooLarge = "packet_too_large",
        /// Its message expiry was over before the subscriber had room for it.
        Expired = "expired",
        /// Queued or retained, and the subscriber may not read it any more.
        NotAuthorized = "not_authorized",
        /// What waited for an absent client was as much as it may be, by a policy that drops.
        QueueFull = "queue_full",
        /// A share group's, and none of its members could take, keep or read it.
        ShareUnserved = "share_unserved",
    }
}

labelled! {
    /// What the rules refused.
    DenialReason {
        /// A message that may not be published there.
        Publish = "publish",
        /// A filter that may bring nothing.
        Subscribe = "subscribe",
        /// A will that may no longer go out.
        Will = "will",
    }
}

labelled! {
    /// Why a CONNECT was refused.
    RefusalReason {
        /// A protocol name or level we do not speak.
        UnsupportedVersion = "unsupported_version",
        /// A client id the version does not allow.
        ClientIdInvalid = "client_id_invalid",
        /// Nobody vouched for it and the listener lets no one in anonymously.
        AnonymousNotAllowed = "anonymous_not_allowed",
        /// Python said no.
        NotAuthorized = "not_authorized",
        /// Python did not answer in time, or too many CONNECTs wait.
        Busy = "busy",
        /// The session under this id belongs to somebody else.
        IdentityMismatch = "identity_mismatch",
        /// An authentication method we do not have.
        BadAuthenticationMethod = "bad_authentication_method",
        /// A packet between CONNECT and CONNACK that nobody had asked for.
        AuthenticationOutOfTurn = "authentication_out_of_turn",
        /// The client did not go on with its authentication.
        AuthenticationTimeout = "authentication_timeout",
        /// A will that could never be published.
        WillInvalid = "will_invalid",
        /// A will for a topic the client may not publish to.
        WillNotAuthorized = "will_not_authorized",
        /// A password that came where others may read it.
        PlaintextPassword = "plaintext_password",
        /// Client ids are bound to users, and this one is not that user's.
        ClientIdNotYours = "client_id_not_yours",
        /// A session would have to be stored, and the disk of the log has no room.
        LogFull = "log_full",
        /// CONNECT itself cannot be read.
        Malformed = "malformed",
        /// TLS where plain MQTT is spoken.
        TlsOnPlainListener = "tls_on_plain_listener",
        /// It came past the proxy.
        ProxyUntrusted = "proxy_untrusted",
        /// No PROXY header, or a damaged one.
        ProxyMalformed = "proxy_malformed",
        /// Something else where TLS is spoken.
        NotTls = "not_tls",
        /// No TLS version, cipher or protocol in common, or it broke off.
        TlsHandshake = "tls_handshake",
        /// It has no certificate and the listener wants one.
        CertificateMissing = "certificate_missing",
        /// Its certificate is out of its time.
        CertificateExpired = "certificate_expired",
        /// Its certificate was revoked, or nothing current says otherwise.
        CertificateRevoked = "certificate_revoked",
        /// Its certificate is not of our authority, or damaged.
        CertificateUntrusted = "certificate_untrusted",
        /// Its certificate names no user.
        CertificateUnnamed = "certificate_unnamed",
        /// Its HTTP request is none for our WebSocket.
        UpgradeRefused = "websocket_upgrade_refused",
        /// TLS or WebSocket broke before there was MQTT.
        LayerBroken = "layer_broken",
        /// TLS, WebSocket or the PROXY header took too long.
        HandshakeTimeout = "handshake_timeout",
        /// The listener has its share of connections.
        ListenerFull = "listener_full",
        /// The address has its share of connections.
        AddressFull = "address_full",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quantumqtt_wire::PacketType;

    use super::*;

    #[test]
    fn labels_are_unique_and_indexes_come_back() {
        let labels: BTreeSet<_> = CloseReason::ALL.iter().map(|reason| reason.label()).collect();
        assert_eq!(labels.len(), CloseReason::ALL.len());
        for &reason in CloseReason::ALL {
            assert_eq!(CloseReason::from_index(reason as u16), reason);
        }
    }

    #[test]
    fn disconnect_codes_are_legal_in_disconnect() {
        for code in CloseReason::ALL.iter().filter_map(|reason| reason.disconnect_code()) {
            assert!(code.legal_in(PacketType::Disconnect), "{code:?}");
        }
    }
}
