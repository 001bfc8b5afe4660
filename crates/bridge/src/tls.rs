//! Certificates and keys, judged before a listener gets them.

use std::sync::Arc;

use pyo3::prelude::*;
use quantumqtt_node::{CertificateUser, TlsContext as NativeContext, TlsFiles, TlsVersion};

use crate::errors::{from_tls, no_such};

/// What a listener shows and demands.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug, Clone)]
pub(crate) struct TlsContext(Arc<NativeContext>);

impl TlsContext {
    pub(crate) fn shared(&self) -> Arc<NativeContext> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl TlsContext {
    #[new]
    #[pyo3(signature = (
        *, certificate, key, client_ca=None, crl=None, require_client_certificate=false,
        certificate_user="cn", min_version="1.3", websocket=false,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python")]
    fn new(
        py: Python<'_>,
        certificate: Vec<u8>,
        key: Vec<u8>,
        client_ca: Option<Vec<u8>>,
        crl: Option<Vec<u8>>,
        require_client_certificate: bool,
        certificate_user: &str,
        min_version: &str,
        websocket: bool,
    ) -> PyResult<Self> {
        let files = TlsFiles {
            certificate,
            key,
            client_ca,
            crl,
            require_client_certificate,
            certificate_user: match certificate_user {
                "cn" => CertificateUser::CommonName,
                "san" => CertificateUser::AlternativeName,
                "dn" => CertificateUser::Subject,
                "off" => CertificateUser::Off,
                other => return Err(no_such("part of a certificate", other)),
            },
            oldest: match min_version {
                "1.2" => TlsVersion::V12,
                "1.3" => TlsVersion::V13,
                other => return Err(no_such("version of TLS", other)),
            },
            is_for_websocket: websocket,
        };
        let context = py.detach(move || NativeContext::new(&files));
        context.map(|context| Self(Arc::new(context))).map_err(|error| from_tls(&error))
    }

    #[getter]
    fn not_after_s(&self) -> Option<i64> {
        self.0.not_after_s()
    }
}
