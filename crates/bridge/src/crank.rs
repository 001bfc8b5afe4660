//! The hand crank: one partition's state machine, turned from Python by simulation and tests.
//!
//! Entries go in as bytes, effects come out as named records; time is the entry's. A record is a
//! pair of its name and a dict of its fields, from which `quantumqtt.simulation` makes its frozen
//! values; commands are read from such values by attribute. Nothing of this runs in a broker.

mod commands;
mod disk;
mod effects;
mod node;

use bytes::Bytes;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};
use quantumqtt_machine::{
    Entry, EntryBuilder, EntryHeader, Machine as NativeMachine, Restorer, SessionView, Statistics,
};
use quantumqtt_topics::Filter;

use crate::errors;

pub(crate) use disk::SimulatedDisk;
pub(crate) use node::{SimulatedNode, open_simulated_node};

/// A name and the fields it has.
pub(crate) type NamedRecord<'py> = (&'static str, Bound<'py, PyDict>);

/// Writes `name: value` pairs into a dict.
macro_rules! fields {
    ($py:expr, $($name:ident: $value:expr),* $(,)?) => {{
        let fields = pyo3::types::PyDict::new($py);
        $(fields.set_item(pyo3::intern!($py, stringify!($name)), $value)?;)*
        fields
    }};
}
pub(crate) use fields;

/// The state of one partition.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct Machine(Mutex<NativeMachine>);

#[pymethods]
impl Machine {
    #[new]
    #[pyo3(signature = (*, partition, limits))]
    fn new(partition: u32, limits: &Bound<'_, PyAny>) -> PyResult<Self> {
        let limits = commands::read_limits(limits)?;
        Ok(Self(Mutex::new(NativeMachine::new(partition, limits))))
    }

    fn apply<'py>(&self, py: Python<'py>, entry: &[u8]) -> PyResult<Vec<NamedRecord<'py>>> {
        let entry = Entry::parse(Bytes::copy_from_slice(entry)).map_err(errors::from_entry)?;
        let mut effects = Vec::new();
        self.0.lock().apply(&entry, &mut effects).map_err(errors::from_apply)?;
        effects.iter().map(|effect| effects::record_of(py, effect)).collect()
    }

    fn digest(&self) -> String {
        format!("{:032x}", self.0.lock().digest())
    }

    fn broken_invariant(&self) -> Option<&'static str> {
        self.0.lock().check_invariants().err()
    }

    fn partition(&self) -> u32 {
        self.0.lock().partition()
    }

    fn begin_checkpoint(&self, index: u64) {
        self.0.lock().begin_checkpoint(index);
    }

    fn next_chunk<'py>(&self, py: Python<'py>, bytes_max: usize) -> Option<Bound<'py, PyBytes>> {
        self.0.lock().next_chunk(bytes_max).map(|chunk| PyBytes::new(py, &chunk))
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.0.lock().next_deadline_ms()
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        sizes_of(py, &self.0.lock().statistics())
    }

    fn client_ids(&self) -> Vec<String> {
        self.0.lock().client_ids().map(str::to_owned).collect()
    }

    fn session<'py>(
        &self,
        py: Python<'py>,
        client_id: &str,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let session = self.0.lock().session_view(client_id);
        session.map(|session| effects::session_fields(py, &session)).transpose()
    }

    fn retained_offsets(&self, filter_text: &str, now_ms: u64) -> PyResult<Vec<u64>> {
        let filter = Filter::parse(filter_text).map_err(errors::from_filter)?;
        let matching = self.0.lock().retained_matching(&filter, now_ms);
        Ok(matching.iter().map(|message| message.offset).collect())
    }
}

/// A session for people: everything by name, the will included as far as it is shown.
pub(crate) fn describe_session<'py>(
    py: Python<'py>,
    session: &SessionView,
) -> PyResult<Bound<'py, PyDict>> {
    let found = effects::session_fields(py, session)?;
    let subscriptions = PyList::empty(py);
    for subscription in &session.subscriptions {
        let options = subscription.options;
        subscriptions.append(fields!(py,
            filter: &*subscription.filter,
            qos: options.qos.bits(),
            no_local: options.no_local,
            retain_as_published: options.retain_as_published,
            subscription_id: subscription.subscription_id,
        ))?;
    }
    let origin = session.origin.map(|origin| {
        Ok::<_, PyErr>(fields!(py,
            node: origin.node,
            shard: origin.shard,
            connection: origin.connection,
        ))
    });
    let will = session.will.as_ref().map(|will| {
        Ok::<_, PyErr>(fields!(py,
            topic: &*will.topic,
            qos: will.qos.bits(),
            retain: will.retain,
            delay_s: will.delay_s,
            expiry_s: will.expiry_s,
            payload_bytes: will.payload_bytes,
        ))
    });
    found.set_item("origin", origin.transpose()?)?;
    found.set_item("subscriptions", subscriptions)?;
    found.set_item("will", will.transpose()?)?;
    found.set_item("window_maximum", session.window_maximum)?;
    found.set_item("waiting_bytes", session.waiting_bytes)?;
    found.set_item("detached_at_ms", session.detached_at_ms)?;
    Ok(found)
}

fn sizes_of<'py>(py: Python<'py>, statistics: &Statistics) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        sessions: statistics.sessions,
        sessions_attached: statistics.sessions_attached,
        subscriptions: statistics.subscriptions,
        share_groups: statistics.share_groups,
        retained: statistics.retained,
        retained_bytes: statistics.retained_bytes,
        queued: statistics.queued,
        queued_bytes: statistics.queued_bytes,
        in_flight: statistics.in_flight,
        deadlines: statistics.deadlines,
        next_offset: statistics.next_offset,
        now_ms: statistics.now_ms,
    ))
}

#[pyfunction]
pub(crate) fn restore_machine(chunks: Vec<PyBackedBytes>) -> PyResult<Machine> {
    let mut restorer = Restorer::new();
    for chunk in &chunks {
        restorer.push(chunk).map_err(errors::from_restore)?;
    }
    let whole = restorer.finish().map_err(errors::from_restore)?;
    Ok(Machine(Mutex::new(whole.machine)))
}

#[pyfunction]
#[pyo3(signature = (commands, *, partition, now_ms, leader, batch_seq))]
pub(crate) fn encode_entry<'py>(
    py: Python<'py>,
    commands: Vec<Bound<'py, PyAny>>,
    partition: u32,
    now_ms: u64,
    leader: u32,
    batch_seq: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut builder = EntryBuilder::new();
    for command in &commands {
        commands::push(&mut builder, command)?;
    }
    let header = EntryHeader { partition, now_ms, leader, batch_seq, ..EntryHeader::default() };
    Ok(PyBytes::new(py, &builder.finish(&header)))
}

#[pyfunction]
pub(crate) fn decode_entry<'py>(
    py: Python<'py>,
    entry: &[u8],
) -> PyResult<(Bound<'py, PyDict>, Vec<NamedRecord<'py>>)> {
    describe_entry(py, Bytes::copy_from_slice(entry))
}

/// The header and the commands of an entry, as records.
pub(crate) fn describe_entry(
    py: Python<'_>,
    entry: Bytes,
) -> PyResult<(Bound<'_, PyDict>, Vec<NamedRecord<'_>>)> {
    let entry = Entry::parse(entry).map_err(errors::from_entry)?;
    let header = entry.header();
    let fields = fields!(py,
        partition: header.partition,
        now_ms: header.now_ms,
        leader: header.leader,
        batch_seq: header.batch_seq,
    );
    let mut records = Vec::new();
    for command in entry.commands() {
        records.push(commands::record_of(py, &command.map_err(errors::from_entry)?)?);
    }
    Ok((fields, records))
}
