//! Pure functions that Python shares with the native half, so that both always agree.

use pyo3::prelude::*;
use quantumqtt_topics::Filter;

use crate::errors;

#[pyfunction]
pub(crate) fn hash64(tenant: &str, key: &str) -> u64 {
    quantumqtt_machine::hash64(tenant, key)
}

#[pyfunction]
pub(crate) fn jump_hash(hash64: u64, buckets: u32) -> PyResult<u32> {
    if buckets == 0 {
        return Err(errors::empty_ring());
    }
    Ok(quantumqtt_machine::jump_hash(hash64, buckets))
}

#[pyfunction]
pub(crate) fn validate_filter(text: &str) -> PyResult<()> {
    Filter::parse(text).map(drop).map_err(errors::from_filter)
}

#[pyfunction]
pub(crate) fn validate_topic(text: &str) -> PyResult<()> {
    quantumqtt_topics::validate_topic(text).map_err(errors::from_topic)
}
