//! The message log in Python's hands: a folder for tests and local tools, and Arrow streams of it.
//!
//! A range crosses as one C stream, so Python is not asked per batch: the consumer pulls batches
//! from native code without the interpreter. A log here stands alone; its list of chunks lies
//! beside them, where a broker's is part of a checkpoint.

use std::path::Path;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use quantumqtt_records::{
    Columns, Disk, Error, FileDisk, Identity, Keys, LogStatistics, Manifest, Options, Range,
    Record, Retention, RewriteJob, SealWhen, Source, Stream,
};

use crate::errors::{from_records, no_such};

/// The log's own folder inside the disk, whose root is the folder above it.
const DIRECTORY: &str = "log";
/// Blocks behind one step of `payloads`.
const POINTS_BYTES: usize = 4 << 20;

type Outcome<T> = Result<T, Error>;

/// See `_core.pyi`.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct RecordLog {
    disk: Arc<dyn Disk>,
    log: Mutex<quantumqtt_records::RecordLog>,
}

impl RecordLog {
    /// Seals, writes the list, sweeps by it.
    fn make_durable(&self, log: &mut quantumqtt_records::RecordLog) -> Outcome<()> {
        if let Some(job) = log.plan_seal(SealWhen::Now) {
            match job.execute() {
                Ok(sealed) => log.publish_seal(sealed),
                Err(error) => {
                    log.abandon_seal();
                    return Err(error);
                }
            }
        }
        let manifest = log.manifest();
        manifest.store(&*self.disk, DIRECTORY)?;
        log.plan_sweep(&manifest).map_or(Ok(()), |sweep| sweep.execute())
    }

    fn rewrite(
        &self,
        py: Python<'_>,
        plan: impl FnOnce(&mut quantumqtt_records::RecordLog) -> Option<RewriteJob> + Send,
    ) -> PyResult<bool> {
        let rewritten = py.detach(|| -> Outcome<bool> {
            let mut log = self.log.lock();
            let Some(job) = plan(&mut log) else { return Ok(false) };
            match job.execute() {
                Ok(rewritten) => log.publish_rewrite(rewritten),
                Err(error) => {
                    log.abandon_rewrite(&error);
                    return Err(error);
                }
            }
            drop(job);
            self.make_durable(&mut log)?;
            Ok(true)
        });
        rewritten.map_err(|error| from_records(&error))
    }
}

#[pymethods]
impl RecordLog {
    #[new]
    #[pyo3(signature = (folder, *, tenant, partition, key, key_epoch=1))]
    fn new(
        py: Python<'_>,
        folder: &str,
        tenant: &str,
        partition: u32,
        key: &[u8],
        key_epoch: u32,
    ) -> PyResult<Self> {
        let key: [u8; 32] =
            key.try_into().map_err(|_| PyValueError::new_err("a key has 32 bytes"))?;
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(Path::new(folder)));
        let identity = Identity { tenant: tenant.into(), partition };
        let keys = Keys::new(key_epoch, key);
        let opened = py.detach(|| -> Outcome<_> {
            let listed = Manifest::load(&*disk, DIRECTORY)?.unwrap_or_default();
            let (disk, options) = (disk.clone(), Options::default());
            quantumqtt_records::RecordLog::open(disk, DIRECTORY, identity, keys, options, &listed)
        });
        let (log, _) = opened.map_err(|error| from_records(&error))?;
        Ok(Self { disk, log: Mutex::new(log) })
    }

    #[pyo3(signature = (
        messages, *, now_ms, qos=1, retain=false, source="mqtt", client_id=None,
        user_properties=None, expiry_s=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python, one per column")]
    fn append(
        &self,
        py: Python<'_>,
        messages: Vec<(String, Vec<u8>)>,
        now_ms: u64,
        qos: u8,
        retain: bool,
        source: &str,
        client_id: Option<&str>,
        user_properties: Option<Vec<(String, String)>>,
        expiry_s: Option<u32>,
    ) -> PyResult<u64> {
        let source = Source::from_word(source).ok_or_else(|| no_such("source", source))?;
        let pairs: Vec<(&str, &str)> =
            user_properties.iter().flatten().map(|(key, value)| (&**key, &**value)).collect();
        let appended = py.detach(|| {
            let mut log = self.log.lock();
            let first = log.statistics().end;
            let records = (first..).zip(&messages).map(|(offset, (topic, payload))| Record {
                qos,
                retain,
                source,
                client_id,
                user_properties: &pairs,
                expiry_s,
                ..Record::bare(offset, now_ms, topic, payload)
            });
            log.append(records).map(|appended| first + appended.added)
        });
        appended.map_err(|error| from_records(&error))
    }

    fn seal(&self, py: Python<'_>) -> PyResult<()> {
        let sealed = py.detach(|| self.make_durable(&mut self.log.lock()));
        sealed.map_err(|error| from_records(&error))
    }

    fn merge(&self, py: Python<'_>) -> PyResult<bool> {
        self.rewrite(py, quantumqtt_records::RecordLog::plan_merge)
    }

    #[pyo3(signature = (*, now_ms, age_ms=None, bytes_max=None, referenced=None))]
    fn retain(
        &self,
        py: Python<'_>,
        now_ms: u64,
        age_ms: Option<u64>,
        bytes_max: Option<u64>,
        referenced: Option<Vec<u64>>,
    ) -> PyResult<bool> {
        let mut referenced = referenced.unwrap_or_default();
        referenced.sort_unstable();
        let retention = Retention { age_ms, bytes: bytes_max };
        let referenced: Arc<[u64]> = referenced.into();
        self.rewrite(py, move |log| log.plan_retention(now_ms, &retention, &referenced))
    }

    fn hold(&self, name: &str, offset: u64) -> PyResult<()> {
        self.log.lock().hold(name, offset).map_err(|error| from_records(&error))
    }

    fn release(&self, name: &str) -> bool {
        self.log.lock().release(name)
    }

    fn bounds(&self) -> (u64, u64) {
        let bounds = self.log.lock().reader().bounds();
        (bounds.earliest, bounds.end)
    }

    fn offset_for_time(&self, py: Python<'_>, ts_ms: u64) -> PyResult<u64> {
        let reader = self.log.lock().reader();
        let found = py.detach(|| reader.offset_for_time(ts_ms));
        found.map_err(|error| from_records(&error))
    }

    #[pyo3(signature = (start=0, end=None, *, columns=None))]
    fn read(
        &self,
        start: u64,
        end: Option<u64>,
        columns: Option<Vec<String>>,
    ) -> PyResult<RecordStream> {
        let columns = match &columns {
            None => Columns::ALL,
            Some(names) => Columns::named(names.iter().map(String::as_str))
                .map_err(|error| from_records(&error))?,
        };
        let range = Range { end: end.unwrap_or(u64::MAX), columns, ..Range::from(start) };
        let stream = self.log.lock().reader().stream(range);
        Ok(RecordStream::new(stream))
    }

    fn payloads<'py>(
        &self,
        py: Python<'py>,
        offsets: Vec<u64>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let reader = self.log.lock().reader();
        let mut left = &offsets[..];
        let mut payloads = Vec::with_capacity(offsets.len());
        while !left.is_empty() {
            let found = py.detach(|| reader.read_points(left, POINTS_BYTES));
            let rows = found.map_err(|error| from_records(&error))?.rows;
            payloads.extend(rows.iter().map(|row| PyBytes::new(py, row.payload())));
            left = &left[rows.len()..];
        }
        Ok(payloads)
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = self.log.lock().statistics();
        figures(py, &now)
    }
}

/// Figures by name.
pub(crate) fn figures<'py>(py: Python<'py>, now: &LogStatistics) -> PyResult<Bound<'py, PyDict>> {
    let figures = PyDict::new(py);
    figures.set_item("earliest", now.earliest)?;
    figures.set_item("durable_end", now.durable_end)?;
    figures.set_item("end", now.end)?;
    figures.set_item("chunk_count", now.chunk_count)?;
    figures.set_item("chunk_bytes", now.chunk_bytes)?;
    figures.set_item("kept_count", now.kept_count)?;
    figures.set_item("kept_records", now.kept_records)?;
    figures.set_item("kept_bytes", now.kept_bytes)?;
    figures.set_item("obsolete_count", now.obsolete_count)?;
    figures.set_item("tail_bytes", now.tail_bytes)?;
    figures.set_item("hold_count", now.hold_count)?;
    figures.set_item("held_from", now.held_from)?;
    figures.set_item("suspect_count", now.suspect_count)?;
    Ok(figures)
}

/// See `_core.pyi`.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct RecordStream {
    stream: Mutex<Option<Stream>>,
}

impl RecordStream {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream: Mutex::new(Some(stream)) }
    }
}

#[pymethods]
impl RecordStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol lets a producer ignore what it cannot give; our types are a promise.
        drop(requested_schema);
        let taken = self.stream.lock().take();
        let stream = taken.ok_or_else(|| PyValueError::new_err("the stream was taken before"))?;
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}
