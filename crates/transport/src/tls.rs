//! TLS 1.3, and 1.2 where asked for: what a listener shows and demands, and one session.
//!
//! Theory of operation. rustls is driven through its unbuffered face: it reads from and writes to
//! our buffers and keeps none of its own, so an idle session is its keys and nothing else. Sessions
//! are resumed by tickets that only their context can read. A context is made anew when files are
//! read again; with it go its tickets, so nobody resumes past a newer revocation list.
//!
//! A resumed session was verified when its ticket was made; that its certificate is still in its
//! time is looked at again here.

use std::fmt::Display;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self as provider, Ticketer, cipher_suite};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    NoServerSessionStorage, ServerConfig, UnbufferedServerConnection, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CertificateError, Error as TlsError, HandshakeKind, RootCertStore};

use crate::fault::Fault;
use crate::identity::{CertificateUser, not_after_s, user_of};
use crate::limits::SEAL_BYTES;
use crate::verifier::{RevocationVerifier, is_revoked};

/// The first byte of a TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// Which file of a listener is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPart {
    /// Our chain.
    Certificate,
    /// Our key.
    Key,
    /// The authorities of clients.
    ClientCa,
    /// What they revoked.
    Crl,
}

impl TlsPart {
    /// The configuration key of the file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Key => "key",
            Self::ClientCa => "client_ca",
            Self::Crl => "crl",
        }
    }
}

/// The files of a listener cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct TlsRefused {
    /// Which of them.
    pub part: TlsPart,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
}

/// The oldest version that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2, with forward secrecy and authenticated ciphers only.
    V12,
    /// 1.3 and nothing older.
    V13,
}

/// What a listener is given, as PEM.
#[derive(Clone)]
pub struct TlsFiles {
    /// The server's chain, its own certificate first.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// Who vouches for clients; without it no client is asked for a certificate.
    pub client_ca: Option<Vec<u8>>,
    /// Which clients' certificates are no longer good.
    pub crl: Option<Vec<u8>>,
    /// Whether a client without a certificate is turned away.
    pub require_client_certificate: bool,
    /// Which part of a client's certificate is its user name.
    pub certificate_user: CertificateUser,
    /// The oldest version that is spoken.
    pub oldest: TlsVersion,
    /// Whether WebSocket comes inside, which names the protocol.
    pub is_for_websocket: bool,
}

/// What a listener shows and demands; read-only, shared by its sessions.
#[derive(Debug)]
pub struct TlsContext {
    config: Arc<ServerConfig>,
    certificate_user: CertificateUser,
    not_after_s: Option<i64>,
    /// Who knows what was revoked; None without a list.
    revocations: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsContext {
    /// Judge the files and make a context of them.
    pub fn new(files: &TlsFiles) -> Result<Self, TlsRefused> {
        let chain: Vec<CertificateDer<'static>> =
            read_pem(TlsPart::Certificate, &files.certificate)?;
        let not_after_s = not_after_s(&chain[0]);
        let mut crypto = provider::default_provider();
        // The suites of SEC-04, and those of 1.2 that are as good.
        crypto.cipher_suites = vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ];
        let crypto = Arc::new(crypto);
        let versions: &[_] = match files.oldest {
            TlsVersion::V12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(versions)
            .map_err(|error| refused(TlsPart::Certificate, &error, "please report it"))?;
        let mut revocations = None;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(client_ca) => {
                let verifier = client_verifier(files, client_ca, &crypto)?;
                revocations = files.crl.is_some().then(|| Arc::clone(&verifier));
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = read_key(&files.key)?;
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            TlsError::InconsistentKeys(_) => refused(
                TlsPart::Key,
                &"does not belong to the certificate",
                "give the key the first certificate of the chain was made for",
            ),
            TlsError::InvalidCertificate(error) => {
                let remedy = "give a chain in PEM, the server's own certificate first";
                refused(TlsPart::Certificate, &error, remedy)
            }
            error => refused(TlsPart::Key, &error, "give an RSA, ECDSA or Ed25519 key in PEM"),
        })?;
        let names: &[&[u8]] =
            if files.is_for_websocket { &[b"http/1.1"] } else { &[b"mqtt", b"mqttv5"] };
        config.alpn_protocols = names.iter().map(|name| name.to_vec()).collect();
        // All that a resumption needs is in the ticket: nothing is kept for clients that are gone.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new()
            .map_err(|error| refused(TlsPart::Certificate, &error, "please report it"))?;
        // One connection needs one way back.
        config.send_tls13_tickets = 1;
        let (config, certificate_user) = (Arc::new(config), files.certificate_user);
        Ok(Self { config, certificate_user, not_after_s, revocations })
    }

    /// Whether it knows of certificates that are no longer good.
    pub fn has_revocations(&self) -> bool {
        self.revocations.is_some()
    }

    /// Until when the server's own certificate is good, in Unix seconds.
    pub fn not_after_s(&self) -> Option<i64> {
        self.not_after_s
    }
}

fn client_verifier(
    files: &TlsFiles,
    client_ca: &[u8],
    crypto: &Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsRefused> {
    let mut roots = RootCertStore::empty();
    for certificate in read_pem::<CertificateDer<'_>>(TlsPart::ClientCa, client_ca)? {
        roots.add(certificate).map_err(|error| {
            refused(TlsPart::ClientCa, &error, "give certificates of authorities in PEM")
        })?;
    }
    let roots = Arc::new(roots);
    let begin = || {
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(crypto));
        if files.require_client_certificate { builder } else { builder.allow_unauthenticated() }
    };
    let refuse = |error: VerifierBuilderError| {
        let part = if files.crl.is_some() { TlsPart::Crl } else { TlsPart::ClientCa };
        refused(part, &error, "give revocation lists of the authorities in client_ca")
    };
    let Some(crl) = &files.crl else {
        return begin().build().map_err(refuse);
    };
    let crls = read_pem::<CertificateRevocationListDer<'_>>(TlsPart::Crl, crl)?;
    // Without a current list nobody knows who was revoked: fail closed.
    let certificate = begin()
        .with_crls(crls.clone())
        .only_check_end_entity_revocation()
        .enforce_revocation_expiration();
    let chain = begin().with_crls(crls).allow_unknown_revocation_status();
    Ok(Arc::new(RevocationVerifier {
        certificate: certificate.build().map_err(refuse)?,
        chain: chain.build().map_err(refuse)?,
    }))
}

fn refused(part: TlsPart, why: &dyn Display, remedy: &'static str) -> TlsRefused {
    TlsRefused { part, why: why.to_string(), remedy }
}

/// Everything of one kind in a PEM file; a file without any is not what was meant.
fn read_pem<T: PemObject>(part: TlsPart, text: &[u8]) -> Result<Vec<T>, TlsRefused> {
    let remedy = match part {
        TlsPart::Crl => "give revocation lists in PEM: -----BEGIN X509 CRL-----",
        _ => "give certificates in PEM: -----BEGIN CERTIFICATE-----",
    };
    let found: Result<Vec<T>, _> = T::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(refused(part, &"holds nothing of the kind", remedy)),
        Ok(found) => Ok(found),
        Err(error) => Err(refused(part, &format!("is damaged: {error}"), remedy)),
    }
}

fn read_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsRefused> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let is_encrypted = text.windows(9).any(|window| window == b"ENCRYPTED");
        match error {
            pem::Error::NoItemsFound if is_encrypted => refused(
                TlsPart::Key,
                &"is encrypted with a passphrase",
                "decrypt it: openssl pkey -in KEY -out PLAIN, and keep that file private",
            ),
            pem::Error::NoItemsFound => refused(
                TlsPart::Key,
                &"holds no private key",
                "give a key in PEM: -----BEGIN PRIVATE KEY-----",
            ),
            error => refused(
                TlsPart::Key,
                &format!("is damaged: {error}"),
                "give a key in PEM: -----BEGIN PRIVATE KEY-----",
            ),
        }
    })
}

/// How far a session got with the bytes it was given.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// So many were used up.
    pub(crate) used: usize,
    /// The peer will send no more.
    pub(crate) is_over: bool,
}

/// One TLS connection.
pub(crate) struct TlsSession {
    connection: UnbufferedServerConnection,
    certificate_user: CertificateUser,
    has_begun: bool,
    is_established: bool,
    is_resumed: bool,
    user: Option<Box<str>>,
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSession").field("user", &self.user).finish_non_exhaustive()
    }
}

impl TlsSession {
    pub(crate) fn new(context: &TlsContext) -> Result<Self, Fault> {
        let connection = UnbufferedServerConnection::new(Arc::clone(&context.config))
            .map_err(|_| Fault::TlsHandshake)?;
        Ok(Self {
            connection,
            certificate_user: context.certificate_user,
            has_begun: false,
            is_established: false,
            is_resumed: false,
            user: None,
        })
    }

    pub(crate) fn is_established(&self) -> bool {
        self.is_established
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Whether `context` knows that the client's certificate, or one above it, is no longer good.
    /// A handshake that is not over was begun under another list, so it must begin again.
    pub(crate) fn is_revoked_by(&self, context: &TlsContext) -> bool {
        let Some(revocations) = &context.revocations else {
            return false;
        };
        let chain = self.connection.peer_certificates().unwrap_or_default();
        !self.is_established || is_revoked(revocations.as_ref(), chain)
    }

    /// Who the client's certificate says it is.
    pub(crate) fn take_user(&mut self) -> Option<Box<str>> {
        self.user.take()
    }

    /// Read records from the front of `bytes`; what they hold goes to `plain`, what the peer must
    /// hear to `answers`, an alert included when this fails.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Result<Progress, Fault> {
        if !self.has_begun {
            match bytes.first() {
                None => return Ok(Progress::default()),
                Some(&HANDSHAKE) => self.has_begun = true,
                Some(_) => return Err(Fault::NotTls),
            }
        }
        let progress = self.pump(bytes, plain, answers).map_err(|error| {
            self.write_alert(answers);
            self.fault_of(&error)
        })?;
        if !self.is_established && !self.connection.is_handshaking() {
            self.is_established = true;
            self.identify()?;
        }
        Ok(progress)
    }

    fn pump(
        &mut self,
        bytes: &mut [u8],
        plain: &mut Vec<u8>,
        answers: &mut Vec<u8>,
    ) -> Result<Progress, TlsError> {
        let mut progress = Progress::default();
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut bytes[progress.used..]);
            let mut is_done = false;
            match state? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        plain.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut encode) => append_encoded(&mut encode, answers)?,
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::PeerClosed => progress.is_over = true,
                ConnectionState::Closed => (progress.is_over, is_done) = (true, true),
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => {
                    is_done = true;
                }
                // Early data is not offered, and the enum may grow.
                _ => return Err(TlsError::HandshakeNotComplete),
            }
            progress.used += discard;
            if is_done {
                return Ok(progress);
            }
        }
    }

    /// After a failure rustls has an alert for the peer, and nothing else to say.
    fn write_alert(&mut self, answers: &mut Vec<u8>) {
        while let UnbufferedStatus {
            state: Ok(ConnectionState::EncodeTlsData(mut encode)), ..
        } = self.connection.process_tls_records(&mut [])
        {
            if append_encoded(&mut encode, answers).is_err() {
                return;
            }
        }
    }

    fn fault_of(&self, error: &TlsError) -> Fault {
        match error {
            TlsError::NoCertificatesPresented => Fault::CertificateMissing,
            TlsError::InvalidCertificate(error) => match error {
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Fault::CertificateExpired,
                CertificateError::Revoked
                | CertificateError::UnknownRevocationStatus
                | CertificateError::ExpiredRevocationList
                | CertificateError::ExpiredRevocationListContext { .. } => {
                    Fault::CertificateRevoked
                }
                _ => Fault::CertificateUntrusted,
            },
            _ if self.is_established => Fault::TlsBroken,
            _ => Fault::TlsHandshake,
        }
    }

    /// The handshake is over: who is it?
    fn identify(&mut self) -> Result<(), Fault> {
        self.is_resumed = self.connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let Some(certificate) = self.connection.peer_certificates().and_then(<[_]>::first) else {
            return Ok(());
        };
        if self.is_resumed {
            let now_s = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
            if not_after_s(certificate).is_none_or(|not_after_s| not_after_s < now_s) {
                return Err(Fault::CertificateExpired);
            }
        }
        if self.certificate_user != CertificateUser::Off {
            let user = user_of(certificate, self.certificate_user);
            self.user = Some(user.ok_or(Fault::CertificateUnnamed)?);
        }
        Ok(())
    }

    /// Encrypt `plain` behind `out`. `kept` are the bytes that `receive` left over: rustls may
    /// remember places in them.
    pub(crate) fn seal(
        &mut self,
        kept: &mut Vec<u8>,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        self.write(kept, out, Some(plain))
    }

    /// Say that no more will come.
    pub(crate) fn close(&mut self, kept: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write(kept, out, None)
    }

    /// `plain`, or that no more will come.
    fn write(
        &mut self,
        kept: &mut Vec<u8>,
        out: &mut Vec<u8>,
        plain: Option<&[u8]>,
    ) -> Result<(), Fault> {
        let fill = |traffic: &mut WriteTraffic<'_>, room: &mut [u8]| match plain {
            Some(plain) => traffic.encrypt(plain, room),
            None => traffic.queue_close_notify(room),
        };
        let bytes = plain.map_or(0, <[u8]>::len);
        loop {
            let UnbufferedStatus { discard, state } = self.connection.process_tls_records(kept);
            match state.map_err(|_| Fault::TlsBroken)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let from = out.len();
                    out.resize(from + bytes + SEAL_BYTES, 0);
                    let filled = match fill(&mut traffic, &mut out[from..]) {
                        Err(EncryptError::InsufficientSize(size)) => {
                            out.resize(from + size.required_size, 0);
                            fill(&mut traffic, &mut out[from..])
                        }
                        filled => filled,
                    };
                    out.truncate(from + *filled.as_ref().unwrap_or(&0));
                    kept.drain(..discard);
                    return filled.map(drop).map_err(|_| Fault::TlsBroken);
                }
                ConnectionState::EncodeTlsData(mut encode) => {
                    append_encoded(&mut encode, out).map_err(|_| Fault::TlsBroken)?;
                }
                ConnectionState::TransmitTlsData(transmit) => transmit.done(),
                ConnectionState::PeerClosed => {}
                _ => return Err(Fault::TlsBroken),
            }
            kept.drain(..discard);
        }
    }
}

type WriteTraffic<'c> = rustls::unbuffered::WriteTraffic<'c, rustls::server::ServerConnectionData>;
type EncodeTlsData<'c> =
    rustls::unbuffered::EncodeTlsData<'c, rustls::server::ServerConnectionData>;

/// Append a record that is ready.
fn append_encoded(encode: &mut EncodeTlsData<'_>, out: &mut Vec<u8>) -> Result<(), TlsError> {
    let from = out.len();
    let Err(EncodeError::InsufficientSize(size)) = encode.encode(&mut []) else {
        return Ok(()); // nothing in it
    };
    out.resize(from + size.required_size, 0);
    match encode.encode(&mut out[from..]) {
        Ok(_) => Ok(()),
        Err(_) => Err(TlsError::EncryptError),
    }
}
