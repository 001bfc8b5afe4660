//! May this client come in? The native half of the answer.
//!
//! What can be decided by looking is decided here; the rest becomes an event that Python answers in
//! batches, while the connection waits with its reads paused. Waiting is bounded by the admission
//! time-out and by the event queue: when Python does not keep up, clients hear "server busy"
//! instead of nothing.

use quantumqtt_wire::ReasonCode;

use crate::connect::Opening;
use crate::reasons::RefusalReason;

/// What looking comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Come in.
    Admit,
    /// Stay out.
    Refuse(RefusalReason),
    /// Python must say.
    Ask,
}

/// The rules a shard holds; replaced whole when Python sends new ones.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) allow_anonymous: Vec<bool>,
    pub(crate) ask_python: bool,
}

impl Doors {
    pub(crate) fn look(&self, listener: u16, opening: &Opening) -> Verdict {
        let anonymous_may = self.allow_anonymous.get(usize::from(listener)).copied();
        let has_credentials = opening.user_name.is_some() || opening.password.is_some();
        match (self.ask_python, anonymous_may.unwrap_or(false), has_credentials) {
            (true, false, _) | (true, true, true) => Verdict::Ask,
            // Credentials nobody can check prove nothing: the client is as anonymous as before.
            (_, true, _) => Verdict::Admit,
            (false, false, _) => Verdict::Refuse(RefusalReason::AnonymousNotAllowed),
        }
    }
}

impl RefusalReason {
    /// What an MQTT 5 client hears in CONNACK; older ones hear `to_v3_connack` of it.
    pub(crate) fn connack_code(self) -> ReasonCode {
        match self {
            Self::UnsupportedVersion => ReasonCode::UNSUPPORTED_PROTOCOL_VERSION,
            Self::ClientIdInvalid => ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
            Self::AnonymousNotAllowed | Self::NotAuthorized | Self::IdentityMismatch => {
                ReasonCode::NOT_AUTHORIZED
            }
            Self::Busy => ReasonCode::SERVER_BUSY,
            Self::BadAuthenticationMethod => ReasonCode::BAD_AUTHENTICATION_METHOD,
            Self::WillInvalid => ReasonCode::TOPIC_NAME_INVALID,
            Self::Malformed => ReasonCode::MALFORMED_PACKET,
        }
    }
}
