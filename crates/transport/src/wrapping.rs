//! All layers of one connection, from the socket's bytes to MQTT's and back.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::fault::Fault;
use crate::limits::{CHUNK_BYTES, KEPT_BYTES_MAX};
use crate::proxy::{ProxyMode, ProxyPeer, read_proxy_header};
use crate::tls::{TlsContext, TlsSession};
use crate::upgrade::UpgradeRules;
use crate::websocket::Websocket;

/// What lies between a listener's sockets and MQTT.
#[derive(Debug, Clone, Default)]
pub struct WrappingSpec {
    /// A header that names the client comes first.
    pub proxy: Option<ProxyMode>,
    /// Then TLS.
    pub tls: Option<Arc<TlsContext>>,
    /// Then WebSocket.
    pub websocket: Option<Arc<UpgradeRules>>,
}

impl WrappingSpec {
    /// Whether MQTT lies bare on the socket.
    pub fn is_bare(&self) -> bool {
        self.proxy.is_none() && self.tls.is_none() && self.websocket.is_none()
    }
}

/// What has become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It goes on.
    Going,
    /// The peer has said goodbye.
    Ended,
    /// It is over, for this reason; what is to be told to the peer is in the answers.
    Fault(Fault),
}

/// Buffers of a shard that layers use in passing.
#[derive(Debug, Default)]
pub struct Scratch {
    inner: Vec<u8>,
    answers: Vec<u8>,
}

/// The layers of one connection.
#[derive(Debug)]
pub struct Wrapping {
    /// Still to come.
    proxy: Option<ProxyMode>,
    peer: Option<SocketAddr>,
    tls: Option<Box<TlsSession>>,
    websocket: Option<Websocket>,
    /// What `receive` could not use yet; empty, and unallocated, most of the time.
    kept: Vec<u8>,
}

impl Wrapping {
    /// The most plaintext that [`Wrapping::wrap`] is given at once.
    pub const CHUNK_BYTES: usize = CHUNK_BYTES;
    /// The most that waits in [`Wrapping::kept`].
    pub const KEPT_BYTES_MAX: usize = KEPT_BYTES_MAX;

    /// The layers of a fresh connection.
    pub fn new(spec: &WrappingSpec) -> Result<Self, Fault> {
        let tls = match &spec.tls {
            Some(context) => Some(Box::new(TlsSession::new(context)?)),
            None => None,
        };
        Ok(Self {
            proxy: spec.proxy,
            peer: None,
            tls,
            websocket: spec.websocket.clone().map(Websocket::new),
            kept: Vec::new(),
        })
    }

    /// Bytes that must stand in front of what the socket delivers next.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Take all of `bytes`, which begin with [`Wrapping::kept`]. Plaintext is appended to `plain`,
    /// what the peer must be told to `answers`.
    pub fn receive(
        &mut self,
        bytes: &mut [u8],
        scratch: &mut Scratch,
        plain: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Received {
        match self.take(bytes, scratch, plain, answers) {
            Ok((used, ended)) => {
                self.kept.clear();
                if used == bytes.len() {
                    self.kept = Vec::new(); // nothing held while idle
                } else if bytes.len() - used > KEPT_BYTES_MAX {
                    return Received::Fault(Fault::TlsHandshake);
                } else {
                    self.kept.extend_from_slice(&bytes[used..]);
                }
                if ended { Received::Ended } else { Received::Going }
            }
            Err(fault) => {
                self.kept = Vec::new();
                Received::Fault(fault)
            }
        }
    }

    fn take(
        &mut self,
        bytes: &mut [u8],
        scratch: &mut Scratch,
        plain: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Result<(usize, bool), Fault> {
        let mut used = 0;
        if let Some(mode) = self.proxy {
            match read_proxy_header(mode, bytes) {
                Err(_) => return Err(Fault::ProxyMalformed),
                Ok(None) => return Ok((0, false)),
                Ok(Some((header, peer))) => {
                    self.proxy = None;
                    used = header;
                    if let ProxyPeer::Client(address) = peer {
                        self.peer = Some(address);
                    }
                }
            }
        }
        let rest = &mut bytes[used..];
        match (&mut self.tls, &mut self.websocket) {
            (None, None) => {
                plain.extend_from_slice(rest);
                Ok((bytes.len(), false))
            }
            (None, Some(websocket)) => {
                let ended = websocket.receive(rest, plain, answers, 0)?;
                Ok((bytes.len(), ended))
            }
            (Some(tls), None) => {
                let progress = tls.receive(rest, plain, answers)?;
                Ok((used + progress.used, progress.is_over))
            }
            (Some(tls), Some(websocket)) => {
                scratch.inner.clear();
                scratch.answers.clear();
                let progress = tls.receive(rest, &mut scratch.inner, answers)?;
                let unheard = answers.len();
                let heard = websocket.receive(&scratch.inner, plain, &mut scratch.answers, unheard);
                if !scratch.answers.is_empty() {
                    let mut left = rest[progress.used..].to_vec();
                    tls.seal(&mut left, &scratch.answers, answers)?;
                }
                Ok((used + progress.used, heard? || progress.is_over))
            }
        }
    }

    /// Whether every layer has come to an agreement: MQTT may begin.
    pub fn is_open(&self) -> bool {
        self.proxy.is_none()
            && self.tls.as_ref().is_none_or(|tls| tls.is_established())
            && self.websocket.as_ref().is_none_or(Websocket::is_upgraded)
    }

    /// Whether nothing is left to do: MQTT lies bare from here on.
    pub fn is_bare(&self) -> bool {
        self.proxy.is_none() && self.tls.is_none() && self.websocket.is_none()
    }

    /// Whom the proxy speaks for.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether the PROXY header is still to come.
    pub fn waits_for_peer(&self) -> bool {
        self.proxy.is_some()
    }

    /// Who the client's certificate says it is.
    pub fn take_user(&mut self) -> Option<Box<str>> {
        self.tls.as_mut()?.take_user()
    }

    /// Whether TLS is spoken, and if so whether an older session was resumed.
    pub fn tls_resumed(&self) -> Option<bool> {
        self.tls.as_ref().map(|tls| tls.is_resumed())
    }

    /// Whether the certificate the client showed is no longer good by what `context` knows.
    pub fn is_revoked_by(&self, context: &TlsContext) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_revoked_by(context))
    }

    /// Make plaintext, at most [`Wrapping::CHUNK_BYTES`], fit for the socket, behind `out`.
    pub fn wrap(
        &mut self,
        plain: &[u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        match (&mut self.tls, &self.websocket) {
            (None, None) => out.extend_from_slice(plain),
            (None, Some(websocket)) => websocket.wrap(plain, out),
            (Some(tls), None) => tls.seal(&mut self.kept, plain, out)?,
            (Some(tls), Some(websocket)) => {
                scratch.inner.clear();
                websocket.wrap(plain, &mut scratch.inner);
                tls.seal(&mut self.kept, &scratch.inner, out)?;
            }
        }
        Ok(())
    }

    /// The last words of every layer, in the order the peer expects them; WebSocket hears `code`.
    pub fn say_goodbye(&mut self, code: u16, scratch: &mut Scratch, out: &mut Vec<u8>) {
        let Some(tls) = &mut self.tls else {
            if let Some(websocket) = &mut self.websocket {
                websocket.say_goodbye(Some(code), out);
            }
            return;
        };
        if !tls.is_established() {
            return; // an alert, if any, was said
        }
        scratch.inner.clear();
        if let Some(websocket) = &mut self.websocket {
            websocket.say_goodbye(Some(code), &mut scratch.inner);
        }
        // The connection is over: who cannot hear this hears nothing else either.
        if scratch.inner.is_empty() || tls.seal(&mut self.kept, &scratch.inner, out).is_ok() {
            let _ = tls.close(&mut self.kept, out);
        }
    }
}
