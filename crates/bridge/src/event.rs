//! One event, as Python reads it.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quantumqtt_node::Event as NativeEvent;

/// Something Python may want to know or decide.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct Event {
    native: NativeEvent,
    tenant: Py<pyo3::types::PyString>,
    listener: Option<String>,
}

impl Event {
    pub(crate) fn new(
        native: NativeEvent,
        tenant: Py<pyo3::types::PyString>,
        listener: Option<String>,
    ) -> Self {
        Self { native, tenant, listener }
    }
}

#[pymethods]
impl Event {
    #[getter]
    fn kind(&self) -> &'static str {
        self.native.kind.label()
    }

    #[getter]
    fn at_ms(&self) -> u64 {
        self.native.at_ms
    }

    #[getter]
    fn tenant(&self, py: Python<'_>) -> Py<pyo3::types::PyString> {
        self.tenant.clone_ref(py)
    }

    #[getter]
    fn client_id(&self) -> Option<&str> {
        self.native.client_id.as_deref()
    }

    #[getter]
    fn connection(&self) -> Option<u64> {
        self.native.connection
    }

    #[getter]
    fn peer(&self) -> Option<String> {
        self.native.peer.map(|peer| peer.to_string())
    }

    #[getter]
    fn listener(&self) -> Option<&str> {
        self.listener.as_deref()
    }

    #[getter]
    fn protocol(&self) -> Option<&'static str> {
        self.native.version.map(|version| match version.level() {
            3 => "3.1",
            4 => "3.1.1",
            _ => "5.0",
        })
    }

    /// The connection that waits; a connection asks one thing at a time, so its number is the
    /// ticket.
    #[getter]
    fn ticket(&self) -> Option<u64> {
        use quantumqtt_node::EventKind::{AdmissionWanted, AuthenticationWanted};
        let asks = matches!(self.native.kind, AdmissionWanted | AuthenticationWanted);
        self.native.connection.filter(|_| asks)
    }

    #[getter]
    fn user_name(&self) -> Option<&str> {
        self.native.user_name.as_deref()
    }

    #[getter]
    fn password<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.native.password.as_ref().map(|password| PyBytes::new(py, password))
    }

    #[getter]
    fn auth_method(&self) -> Option<&str> {
        self.native.auth_method.as_deref()
    }

    #[getter]
    fn auth_data<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.native.auth_data.as_ref().map(|data| PyBytes::new(py, data))
    }

    #[getter]
    fn session_epoch(&self) -> Option<u64> {
        self.native.session_epoch
    }

    #[getter]
    fn reason(&self) -> Option<&str> {
        self.native.reason.as_deref()
    }

    #[getter]
    fn topic(&self) -> Option<&str> {
        self.native.topic.as_deref()
    }

    #[getter]
    fn count(&self) -> u64 {
        self.native.count
    }

    /// Never the password, and no client text unescaped: this ends up in logs.
    fn __repr__(&self) -> String {
        let kind = self.native.kind.label();
        let show = |text: &Option<Box<str>>| match text {
            Some(text) => format!("{text:?}"),
            None => "None".to_owned(),
        };
        let (id, reason) = (show(&self.native.client_id), show(&self.native.reason));
        format!("Event(kind={kind:?}, client_id={id}, reason={reason})")
    }
}
