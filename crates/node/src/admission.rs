//! May this client come in? The native half of the answer.
//!
//! What can be decided by looking is decided here; the rest becomes an event that Python answers in
//! batches, while the connection waits with its reads paused. Waiting is bounded by the admission
//! time-out and by the event queue: when Python does not keep up, clients hear "server busy"
//! instead of nothing.

use quantumqtt_wire::ReasonCode;

use crate::connect::Opening;
use crate::reasons::RefusalReason;
use crate::verdicts::{Credential, Verdicts};

/// What looking comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Come in, as nobody in particular.
    Admit,
    /// Come in: these credentials were good before.
    Known,
    /// Stay out.
    Refuse(RefusalReason),
    /// Python must say.
    Ask,
}

/// The rules a shard holds; replaced whole when Python sends new ones.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) allow_anonymous: Vec<bool>,
    pub(crate) allow_passwords: Vec<bool>,
    /// The largest packet that may come in by each.
    pub(crate) packet_bytes_max: Vec<u32>,
    pub(crate) ask_python: bool,
}

impl Doors {
    /// Takes note of the credentials in `opening`, for when they turn out to be good.
    pub(crate) fn look(
        &self,
        listener: u16,
        opening: &mut Opening,
        verdicts: &Verdicts,
    ) -> Verdict {
        let door = usize::from(listener);
        let anonymous_may = self.allow_anonymous.get(door).copied();
        let has_credentials = opening.user_name.is_some() || opening.password.is_some();
        if self.ask_python && has_credentials {
            if !self.allow_passwords.get(door).copied().unwrap_or(false) {
                return Verdict::Refuse(RefusalReason::PlaintextPassword);
            }
            opening.credential = credential_of(opening, verdicts);
            if opening.credential.is_some_and(|credential| verdicts.is_good(credential)) {
                return Verdict::Known;
            }
        }
        match (self.ask_python, anonymous_may.unwrap_or(false), has_credentials) {
            (true, false, _) | (true, true, true) => Verdict::Ask,
            // Credentials nobody can check prove nothing: the client is as anonymous as before.
            (_, true, _) => Verdict::Admit,
            (false, false, _) => Verdict::Refuse(RefusalReason::AnonymousNotAllowed),
        }
    }
}

/// Name and password as one; a client that keeps one of them back has nothing to remember.
fn credential_of(opening: &Opening, verdicts: &Verdicts) -> Option<Credential> {
    let (name, password) = (opening.user_name.as_ref()?, opening.password.as_ref()?);
    Some(verdicts.credential(name, password))
}

impl RefusalReason {
    /// What an MQTT 5 client hears in CONNACK; older ones hear `to_v3_connack` of it.
    pub(crate) fn connack_code(self) -> ReasonCode {
        match self {
            Self::UnsupportedVersion => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            Self::ClientIdInvalid | Self::ClientIdNotYours => {
                ReasonCode::CLIENT_IDENTIFIER_NOT_VALID
            }
            Self::AnonymousNotAllowed
            | Self::NotAuthorized
            | Self::IdentityMismatch
            | Self::WillNotAuthorized
            | Self::AuthenticationTimeout
            | Self::PlaintextPassword => ReasonCode::NOT_AUTHORIZED,
            Self::Busy => ReasonCode::SERVER_BUSY,
            Self::LogFull => ReasonCode::QUOTA_EXCEEDED,
            Self::BadAuthenticationMethod => ReasonCode::BAD_AUTHENTICATION_METHOD,
            Self::AuthenticationOutOfTurn => ReasonCode::PROTOCOL_ERROR,
            Self::WillInvalid => ReasonCode::TOPIC_NAME_INVALID,
            // Below MQTT nobody hears a code; above it these are as good as malformed.
            Self::Malformed
            | Self::TlsOnPlainListener
            | Self::ProxyUntrusted
            | Self::ProxyMalformed
            | Self::NotTls
            | Self::TlsHandshake
            | Self::CertificateMissing
            | Self::CertificateExpired
            | Self::CertificateRevoked
            | Self::CertificateUntrusted
            | Self::CertificateUnnamed
            | Self::UpgradeRefused
            | Self::LayerBroken
            | Self::HandshakeTimeout
            | Self::ListenerFull
            | Self::AddressFull => ReasonCode::MALFORMED_PACKET,
        }
    }
}
