//! Why a connection ended before, or below, MQTT.

/// One name for each; the same in metrics and events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fault {
    /// A listener behind a proxy was reached past the proxy.
    ProxyUntrusted,
    /// The PROXY header is missing or cannot be read.
    ProxyMalformed,
    /// Bytes on a TLS listener that are no TLS.
    NotTls,
    /// The handshake failed: no version, suite or protocol in common, or the peer broke it off.
    TlsHandshake,
    /// The listener wants a client certificate and there was none.
    CertificateMissing,
    /// The client's certificate is no longer, or not yet, valid.
    CertificateExpired,
    /// The client's certificate was revoked, or nothing current says that it was not.
    CertificateRevoked,
    /// The client's certificate is not of our authority, damaged, or not for clients.
    CertificateUntrusted,
    /// The client's certificate carries no name that could be a user name.
    CertificateUnnamed,
    /// A record of an established TLS connection is damaged.
    TlsBroken,
    /// The HTTP request is not one for our WebSocket.
    UpgradeRefused,
    /// Bytes that break WebSocket's framing.
    WebsocketProtocol,
    /// Not all of the above was over within the time for it.
    HandshakeTimeout,
    /// The listener has as many connections as it may.
    ListenerFull,
    /// The address has as many connections as it may.
    AddressFull,
}

impl Fault {
    /// Every fault, in declaration order.
    pub const ALL: [Self; 15] = [
        Self::ProxyUntrusted,
        Self::ProxyMalformed,
        Self::NotTls,
        Self::TlsHandshake,
        Self::CertificateMissing,
        Self::CertificateExpired,
        Self::CertificateRevoked,
        Self::CertificateUntrusted,
        Self::CertificateUnnamed,
        Self::TlsBroken,
        Self::UpgradeRefused,
        Self::WebsocketProtocol,
        Self::HandshakeTimeout,
        Self::ListenerFull,
        Self::AddressFull,
    ];
}
