//! A node in Python's hands.
//!
//! The lock guards the only thing that changes, whether the node runs. It is never held while
//! something blocks: `drain` waits on a second reference, `stop` takes the node out first and so
//! ends a drain early. After a fork the child has the memory but not the threads, so it gets an
//! error instead of a node that never answers.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use quantumqtt_node::{BoundListener as NativeBound, Node as NativeNode};

use crate::crank::describe_session;
use crate::errors::{from_start, no_such, not_running};
use crate::event::Event;
use crate::message_log::MessageLog;
use crate::rules::RuleTable;
use crate::spec::NodeSpec;
use crate::statistics::Statistics;
use crate::tls::TlsContext;

/// Ticket, reason code, data, user name.
type AuthAnswer = (u64, u8, Option<Vec<u8>>, String);

/// A listener after binding.
#[pyclass(frozen, get_all, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct BoundListener {
    name: String,
    host: String,
    port: u16,
}

/// One broker node.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct Node {
    spec: NodeSpec,
    running: Mutex<Option<Running>>,
}

#[derive(Clone)]
struct Running {
    node: Arc<NativeNode>,
    /// The process that has the threads.
    pid: u32,
}

impl Node {
    fn running(&self) -> PyResult<Running> {
        let running = self.running.lock().clone();
        running.filter(|running| running.pid == process::id()).ok_or_else(not_running)
    }
}

#[pymethods]
impl Node {
    #[new]
    fn new(spec: &NodeSpec) -> Self {
        Self { spec: spec.clone(), running: Mutex::new(None) }
    }

    fn start(&self, py: Python<'_>) -> PyResult<Vec<BoundListener>> {
        let spec = self.spec.0.clone();
        let started = py.detach(move || NativeNode::start(&spec));
        let node = started.map_err(|error| from_start(&error))?;
        let bound = node.listeners().iter().zip(&self.spec.0.listeners);
        let bound = bound
            .map(|(bound, spec)| BoundListener {
                name: spec.name.clone(),
                host: match bound {
                    NativeBound::Tcp(address) => address.ip().to_string(),
                    NativeBound::Unix(path) => path.display().to_string(),
                },
                port: bound.address().map_or(0, |address| address.port()),
            })
            .collect();
        let running = Running { node: Arc::new(node), pid: process::id() };
        let mut slot = self.running.lock();
        if slot.is_some() {
            return Err(not_running());
        }
        *slot = Some(running);
        Ok(bound)
    }

    fn event_fd(&self) -> PyResult<i32> {
        Ok(self.running()?.node.event_fd())
    }

    #[pyo3(signature = (count_max=1024))]
    fn poll_events(&self, py: Python<'_>, count_max: usize) -> PyResult<Vec<Event>> {
        let events = self.running()?.node.poll_events(count_max);
        let config = &self.spec.0;
        let tenant: Py<PyString> = PyString::intern(py, &config.tenant).unbind();
        let wrap = |event: quantumqtt_node::Event| {
            let listener = event.listener.and_then(|at| config.listeners.get(at));
            let listener = listener.map(|listener| listener.name.clone());
            Event::new(event, tenant.clone_ref(py), listener)
        };
        Ok(events.into_iter().map(wrap).collect())
    }

    #[pyo3(signature = (*, always))]
    fn tell_sessions(&self, always: bool) -> PyResult<()> {
        self.running()?.node.set_tells_sessions(always);
        Ok(())
    }

    #[pyo3(signature = (verdicts, *, may_be_remembered=false))]
    fn answer_admissions(&self, verdicts: Vec<(u64, u8)>, may_be_remembered: bool) -> PyResult<()> {
        self.running()?.node.answer_admissions(&verdicts, may_be_remembered);
        Ok(())
    }

    fn answer_authentications(&self, answers: Vec<AuthAnswer>) -> PyResult<()> {
        let answers = answers.into_iter().map(|(ticket, code, data, user_name)| {
            let data = data.map(Into::into);
            (ticket, quantumqtt_node::Answer { code, data, user_name: user_name.into() })
        });
        self.running()?.node.answer_authentications(answers.collect());
        Ok(())
    }

    fn say(&self, messages: Vec<(String, Vec<u8>, bool)>) -> PyResult<()> {
        let message = |(topic, payload, keep): (String, Vec<u8>, bool)| {
            quantumqtt_node::SystemMessage { topic: topic.into(), payload: payload.into(), keep }
        };
        self.running()?.node.say(messages.into_iter().map(message).collect());
        Ok(())
    }

    #[pyo3(signature = (rules, *, revoked_users))]
    fn set_policy(&self, rules: Option<&RuleTable>, revoked_users: Vec<String>) -> PyResult<()> {
        let rules = rules.map(|table| table.0.clone());
        self.running()?.node.set_policy(rules, revoked_users);
        Ok(())
    }

    fn set_tls(&self, listener: usize, context: &TlsContext) -> PyResult<()> {
        let running = self.running()?;
        if listener >= self.spec.0.listeners.len() {
            return Err(no_such("listener", &listener.to_string()));
        }
        running.node.set_tls(listener, &context.shared());
        Ok(())
    }

    fn statistics(&self) -> PyResult<Statistics> {
        Ok(Statistics(self.running()?.node.statistics()))
    }

    #[pyo3(signature = (partition=0))]
    fn message_log(&self, partition: u32) -> PyResult<Option<MessageLog>> {
        if partition >= self.spec.0.partitions {
            return Err(no_such("partition", &partition.to_string()));
        }
        Ok(self.running()?.node.message_log(partition).map(MessageLog))
    }

    fn digest(&self, py: Python<'_>) -> PyResult<(u64, String)> {
        let running = self.running()?;
        let found = py.detach(|| running.node.digest()).ok_or_else(not_running)?;
        Ok((found.index, format!("{:032x}", found.digest)))
    }

    fn session<'py>(
        &self,
        py: Python<'py>,
        client_id: &str,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let running = self.running()?;
        let found = py.detach(|| running.node.session(client_id)).ok_or_else(not_running)?;
        found.map(|session| describe_session(py, &session)).transpose()
    }

    fn drain(&self, py: Python<'_>, deadline_ms: u64) -> PyResult<bool> {
        let running = self.running()?;
        Ok(py.detach(|| running.node.drain(Duration::from_millis(deadline_ms))))
    }

    fn stop(&self, py: Python<'_>) {
        let running = self.running.lock().take();
        let Some(running) = running else { return };
        if running.pid == process::id() {
            py.detach(|| running.node.stop());
        } else {
            // The threads stayed with the parent: joining them here would wait for ever.
            std::mem::forget(running);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let Some(running) = self.running.lock().take() else {
            return;
        };
        if running.pid == process::id() {
            running.node.stop();
        } else {
            std::mem::forget(running);
        }
    }
}
