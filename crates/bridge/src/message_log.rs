//! The message log of a running node in Python's hands: its ends, and streams of ranges.
//!
//! Rows cross as Arrow's C stream, a block at a time and without the interpreter. Whatever waits,
//! for the keeper or for the end to move, waits without it too.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use quantumqtt_node::{LogStopped, MessageLog as NativeMessageLog};
use quantumqtt_records::{Columns, Error, Range, TopicChoice};
use quantumqtt_topics::Filter;

use crate::errors::{StorageError, from_filter, from_records};
use crate::records::{RecordStream, figures};

/// See `_core.pyi`.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct MessageLog(pub(crate) Arc<NativeMessageLog>);

fn stopped(error: LogStopped) -> PyErr {
    StorageError::new_err((error.to_string(), "look at the disk and restart the broker"))
}

/// A choice that takes a topic when any of the filters matches it.
fn any_of(filters: Vec<String>) -> PyResult<TopicChoice> {
    for filter in &filters {
        Filter::parse(filter).map_err(from_filter)?;
    }
    Ok(Arc::new(move |topic: &str| {
        filters.iter().any(|filter| Filter::parse(filter).is_ok_and(|filter| filter.matches(topic)))
    }))
}

/// What both choices take; none if there is nothing to choose.
fn both(first: Option<TopicChoice>, second: Option<TopicChoice>) -> Option<TopicChoice> {
    match (first, second) {
        (Some(first), Some(second)) => Some(Arc::new(move |topic| first(topic) && second(topic))),
        (first, second) => first.or(second),
    }
}

#[pymethods]
impl MessageLog {
    #[getter]
    fn tenant(&self) -> String {
        self.0.reader().identity().tenant.to_string()
    }

    #[getter]
    fn partition(&self) -> u32 {
        self.0.reader().identity().partition
    }

    fn bounds(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let bounds = py.detach(|| self.0.bounds()).map_err(stopped)?;
        Ok((bounds.earliest, bounds.end))
    }

    fn offset_for_time(&self, py: Python<'_>, ts_ms: u64) -> PyResult<u64> {
        py.detach(|| self.0.catch_up_and_wait()).map_err(stopped)?;
        let found = py.detach(|| self.0.reader().offset_for_time(ts_ms));
        found.map_err(|error| from_records(&error))
    }

    #[pyo3(signature = (start=0, end=None, *, columns=None, topics=None, allowed=None))]
    fn read(
        &self,
        py: Python<'_>,
        start: u64,
        end: Option<u64>,
        columns: Option<Vec<String>>,
        topics: Option<Vec<String>>,
        allowed: Option<Vec<String>>,
    ) -> PyResult<RecordStream> {
        let columns = match &columns {
            None => Columns::ALL,
            Some(names) => Columns::named(names.iter().map(String::as_str))
                .map_err(|error| from_records(&error))?,
        };
        let topics = both(topics.map(any_of).transpose()?, allowed.map(any_of).transpose()?);
        let bounds = py.detach(|| self.0.bounds()).map_err(stopped)?;
        let end = end.unwrap_or(u64::MAX).min(bounds.end);
        if start < bounds.earliest && start < end {
            let error = Error::OffsetExpired { from: start, until: bounds.earliest };
            return Err(from_records(&error));
        }
        Ok(RecordStream::new(self.0.reader().stream(Range { start, end, columns, topics })))
    }

    fn wait(&self, py: Python<'_>, position: u64, timeout_ms: u64) -> PyResult<bool> {
        let within = Duration::from_millis(timeout_ms);
        py.detach(|| self.0.wait(position, within)).map_err(stopped)
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // One that has stopped still says how it stood.
        let _ = py.detach(|| self.0.catch_up_and_wait());
        figures(py, &self.0.statistics())
    }
}
