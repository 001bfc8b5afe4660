//! The only crate that knows Python; builds `quantumqtt._core`.
//!
//! Three crossings, none of them per message: specs and verdicts go down, batches of events and
//! snapshots of statistics come up, pure functions are lent out. Simulation and tests turn the
//! state machine by hand (`crank.rs`). Every exported class is frozen:
//! what crosses is copied, never a live reference into native state. Whatever may block runs
//! without the interpreter. The typed face of all this is `src/quantumqtt/_core.pyi`.

#![allow(unsafe_code)] // what PyO3's macros expand to
#![allow(clippy::needless_pass_by_value)] // arguments are extracted from Python objects

mod bench;
mod codec;
mod codec_decode;
mod codec_message;
mod crank;
mod errors;
mod event;
mod functions;
mod log_tools;
mod message_log;
mod node;
mod records;
mod rules;
mod spec;
mod statistics;
mod tls;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The native half of QuantuMQTT.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD", build_facts(module.py())?)?;
    module.add_class::<tls::TlsContext>()?;
    module.add_class::<spec::ListenerSpec>()?;
    module.add_class::<spec::NodeLimits>()?;
    module.add_class::<rules::RuleTable>()?;
    module.add_class::<spec::LogSpec>()?;
    module.add_class::<spec::NodeSpec>()?;
    module.add_class::<node::BoundListener>()?;
    module.add_class::<node::Node>()?;
    module.add_class::<event::Event>()?;
    module.add_class::<statistics::LogStatistics>()?;
    module.add_class::<statistics::Statistics>()?;
    module.add_class::<bench::LoadSpec>()?;
    module.add_class::<bench::LoadProgress>()?;
    module.add_class::<bench::LoadDurations>()?;
    module.add_class::<bench::ProcessUsage>()?;
    module.add_class::<bench::LoadReport>()?;
    module.add_function(wrap_pyfunction!(bench::run_load, module)?)?;
    module.add_class::<crank::Machine>()?;
    module.add_class::<crank::SimulatedDisk>()?;
    module.add_class::<crank::SimulatedNode>()?;
    module.add_function(wrap_pyfunction!(crank::open_simulated_node, module)?)?;
    module.add_function(wrap_pyfunction!(crank::encode_entry, module)?)?;
    module.add_function(wrap_pyfunction!(crank::decode_entry, module)?)?;
    module.add_function(wrap_pyfunction!(crank::restore_machine, module)?)?;
    module.add_function(wrap_pyfunction!(log_tools::verify_log, module)?)?;
    module.add_function(wrap_pyfunction!(log_tools::count_log, module)?)?;
    module.add_function(wrap_pyfunction!(log_tools::dump_log, module)?)?;
    module.add_function(wrap_pyfunction!(log_tools::replay_log, module)?)?;
    module.add_class::<records::RecordLog>()?;
    module.add_class::<records::RecordStream>()?;
    module.add_class::<message_log::MessageLog>()?;
    module.add_class::<codec_message::Message>()?;
    module.add_class::<codec_decode::AckRun>()?;
    module.add_class::<codec_decode::Control>()?;
    module.add_function(wrap_pyfunction!(codec_decode::decode_packets, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_batch, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_ack, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_connect, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_subscribe, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_unsubscribe, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_disconnect, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_auth, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode_properties, module)?)?;
    module.add_function(wrap_pyfunction!(functions::hash64, module)?)?;
    module.add_function(wrap_pyfunction!(functions::jump_hash, module)?)?;
    module.add_function(wrap_pyfunction!(functions::validate_filter, module)?)?;
    module.add_function(wrap_pyfunction!(functions::validate_topic, module)?)
}

fn build_facts(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("profile", if cfg!(debug_assertions) { "debug" } else { "release" })?;
    facts.set_item("target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS))?;
    facts.set_item("apply_version", quantumqtt_machine::APPLY_VERSION.to_string())?;
    Ok(facts)
}
