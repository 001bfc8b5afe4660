//! A snapshot of the node's counters, as Python reads it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quantumqtt_node::{LogStatistics as NativeLog, Statistics as NativeStatistics};

/// What the log says of itself.
#[pyclass(frozen, get_all, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct LogStatistics {
    state: &'static str,
    reason: Option<String>,
    pending_bytes: u64,
    written_bytes_total: u64,
    syncs_total: u64,
    sync_ns_total: u64,
    segments: u64,
    applied_index: u64,
    checkpoint_index: u64,
    checkpoints_total: u64,
    checkpoint_failures_total: u64,
    checkpoint_error: Option<String>,
    disk_level: &'static str,
    disk_used_bytes: u64,
    disk_capacity_bytes: u64,
    scrub_bytes_total: u64,
    scrub_passes_total: u64,
    scrub_findings_total: u64,
    scrub_coverage_age_ms: u64,
    scrub_damage: Option<String>,
}

impl From<NativeLog> for LogStatistics {
    fn from(log: NativeLog) -> Self {
        Self {
            state: log.state,
            reason: log.reason,
            pending_bytes: log.pending_bytes,
            written_bytes_total: log.written_bytes_total,
            syncs_total: log.syncs_total,
            sync_ns_total: log.sync_ns_total,
            segments: log.segments,
            applied_index: log.applied_index,
            checkpoint_index: log.checkpoint_index,
            checkpoints_total: log.checkpoints_total,
            checkpoint_failures_total: log.checkpoint_failures_total,
            checkpoint_error: log.checkpoint_error,
            disk_level: log.disk_level,
            disk_used_bytes: log.disk_used_bytes,
            disk_capacity_bytes: log.disk_capacity_bytes,
            scrub_bytes_total: log.scrub.bytes_total,
            scrub_passes_total: log.scrub.passes_total,
            scrub_findings_total: log.scrub.findings_total,
            scrub_coverage_age_ms: log.scrub.coverage_age_ms,
            scrub_damage: log.scrub.damage,
        }
    }
}

/// A frozen snapshot; the only thing exporters read.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct Statistics(pub(crate) NativeStatistics);

macro_rules! getters {
    ($($name:ident: $type:ty,)*) => {
        #[pymethods]
        impl Statistics {
            $(#[getter]
            fn $name(&self) -> $type {
                self.0.$name
            })*

            #[getter]
            fn log(&self) -> Option<LogStatistics> {
                self.0.log.clone().map(LogStatistics::from)
            }

            #[getter]
            fn publishes_received_total(&self) -> (u64, u64, u64) {
                self.0.publishes_received_total.into()
            }

            #[getter]
            fn publishes_sent_total(&self) -> (u64, u64, u64) {
                self.0.publishes_sent_total.into()
            }

            #[getter]
            fn drops_total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                by_reason(py, &self.0.drops_total)
            }

            #[getter]
            fn closes_total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                by_reason(py, &self.0.closes_total)
            }

            #[getter]
            fn refusals_total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                by_reason(py, &self.0.refusals_total)
            }

            #[getter]
            fn denials_total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                by_reason(py, &self.0.denials_total)
            }
        }
    };
}

getters! {
    uptime_ms: u64,
    connections: u64,
    connections_total: u64,
    connections_refused_full_total: u64,
    sessions_stored: u64,
    sessions_attached: u64,
    sessions_expired_total: u64,
    retained: u64,
    retained_bytes: u64,
    queued: u64,
    queued_bytes: u64,
    dedupe_keys: u64,
    publishes_deduplicated_total: u64,
    dedupe_keys_pressed_out_total: u64,
    subscriptions: u64,
    bytes_received_total: u64,
    bytes_sent_total: u64,
    tls_handshakes_total: u64,
    tls_resumptions_total: u64,
    entries_applied_total: u64,
    commands_applied_total: u64,
    events_merged_total: u64,
    shards: u16,
}

fn by_reason<'py>(py: Python<'py>, counts: &[(&'static str, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let by_reason = PyDict::new(py);
    for (reason, count) in counts {
        by_reason.set_item(reason, count)?;
    }
    Ok(by_reason)
}
