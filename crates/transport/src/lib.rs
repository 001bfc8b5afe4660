//! What may lie between a socket and MQTT, as bytes in and bytes out.
//!
//! A [`Wrapping`] is a row of layers: a PROXY header that tells who is really at the other end,
//! TLS, WebSocket. The reactor hands it what a socket delivered and gets plaintext and answers; it
//! hands it plaintext and gets what the socket must be given. Nothing here opens, reads, waits or
//! knows MQTT; the one clock is the wall clock by which rustls judges certificates.
//!
//! Whatever a peer sends is bounded before anybody trusted it: see `limits.rs`. Whatever is wrong
//! with it is a [`Fault`], by name.

#![forbid(unsafe_code)]

mod base64;
mod fault;
mod frames;
mod identity;
mod limits;
mod network;
mod proxy;
mod tls;
mod upgrade;
mod verifier;
mod websocket;
mod wrapping;

pub use fault::Fault;
pub use frames::{FrameFault, FrameReader, Piece, write_frame};
pub use identity::{CertificateUser, not_after_s, user_of};
pub use network::{BadNetwork, Network};
pub use proxy::{ProxyFault, ProxyMode, ProxyPeer, read_proxy_header};
pub use tls::{TlsContext, TlsFiles, TlsPart, TlsRefused, TlsVersion};
pub use upgrade::{Refusal, UpgradeRules, read_upgrade};
pub use wrapping::{Received, Scratch, Wrapping, WrappingSpec};
