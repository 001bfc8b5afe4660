//! Who vouches for a client's certificate, and whether it was revoked.
//!
//! Two questions, because rustls asks one of them at a time. Of the certificate itself a current
//! list must say that it is good: without one nobody knows who was revoked, so it is refused. Of
//! the authorities between it and ours a list may be given; where there is one it counts, and where
//! there is none they are trusted, as they were when the operator named the authority above them.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, SignatureScheme,
};

/// Asks of the certificate, then of the chain above it.
#[derive(Debug)]
pub(crate) struct RevocationVerifier {
    pub(crate) certificate: Arc<dyn ClientCertVerifier>,
    pub(crate) chain: Arc<dyn ClientCertVerifier>,
}

/// Whether a chain that was good once holds something that is revoked now.
pub(crate) fn is_revoked(verifier: &dyn ClientCertVerifier, chain: &[CertificateDer<'_>]) -> bool {
    let Some((certificate, above)) = chain.split_first() else {
        return false;
    };
    let verdict = verifier.verify_client_cert(certificate, above, UnixTime::now());
    matches!(verdict, Err(TlsError::InvalidCertificate(CertificateError::Revoked)))
}

impl ClientCertVerifier for RevocationVerifier {
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.certificate.verify_client_cert(certificate, above, now)?;
        if above.is_empty() {
            return Ok(ClientCertVerified::assertion()); // there is nothing between
        }
        self.chain.verify_client_cert(certificate, above, now)
    }

    fn client_auth_mandatory(&self) -> bool {
        self.certificate.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.certificate.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.certificate.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.certificate.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.certificate.supported_verify_schemes()
    }
}
