//! The load generator in Python's hands: one call is one run.
//!
//! The run holds no interpreter. A few times per second it takes it to show how far it is, and what
//! Python answers may end it; so signals are served as usual. Nothing crosses per message.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quantumqtt_load::{Histogram, ProcessSample, QoS, Report, Scenario, Spec, Stage, Version, run};

use crate::errors;

/// A run as data.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct LoadSpec(Spec);

#[pymethods]
impl LoadSpec {
    #[new]
    #[pyo3(signature = (
        *, host, port, version, scenario, publishers, subscribers, topics, start_number, topic,
        qos, window, payload_bytes, messages, duration_s, rate, connect_interval_ms,
        one_message_per_write, retain, clean, expiry_s, keep_alive_s, user_name, password,
        client_id_prefix, source_addresses, broker_pid, threads, patience_s, deadline_s,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only in Python, one per field")]
    fn new(
        host: String,
        port: u16,
        version: &str,
        scenario: &str,
        publishers: u32,
        subscribers: u32,
        topics: u32,
        start_number: u32,
        topic: Option<String>,
        qos: u8,
        window: u32,
        payload_bytes: usize,
        messages: u64,
        duration_s: f64,
        rate: Option<f64>,
        connect_interval_ms: u64,
        one_message_per_write: bool,
        retain: bool,
        clean: bool,
        expiry_s: u32,
        keep_alive_s: u16,
        user_name: Option<String>,
        password: Option<String>,
        client_id_prefix: String,
        source_addresses: Vec<String>,
        broker_pid: Option<u32>,
        threads: usize,
        patience_s: f64,
        deadline_s: f64,
    ) -> PyResult<Self> {
        Ok(Self(Spec {
            host,
            port,
            version: version_of(version)?,
            scenario: scenario_of(scenario)?,
            publishers,
            subscribers,
            topics,
            start_number,
            topic,
            qos: QoS::from_bits(qos).ok_or_else(|| bad("qos", qos))?,
            window,
            payload_bytes,
            messages,
            duration: seconds("duration_s", duration_s)?,
            rate,
            connect_interval: Duration::from_millis(connect_interval_ms),
            one_message_per_write,
            retain,
            clean,
            expiry_s,
            keep_alive_s,
            user_name,
            password,
            client_id_prefix,
            source_addresses: addresses(&source_addresses)?,
            broker_pid,
            threads,
            patience: seconds("patience_s", patience_s)?,
            deadline: seconds("deadline_s", deadline_s)?,
        }))
    }
}

fn bad(field: &str, value: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{field}: {value} is out of range"))
}

fn seconds(field: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| bad(field, value))
}

fn version_of(name: &str) -> PyResult<Version> {
    match name {
        "3.1" => Ok(Version::V31),
        "3.1.1" => Ok(Version::V311),
        "5.0" => Ok(Version::V5),
        _ => Err(bad("version", name)),
    }
}

fn scenario_of(name: &str) -> PyResult<Scenario> {
    Ok(match name {
        "conn" => Scenario::Connect,
        "pub" => Scenario::Publish,
        "sub" => Scenario::Subscribe,
        "pairs" => Scenario::Pairs,
        "fan-in" => Scenario::FanIn,
        "fan-out" => Scenario::FanOut,
        "idle" => Scenario::Idle,
        "latency" => Scenario::Latency,
        _ => return Err(bad("scenario", name)),
    })
}

fn addresses(texts: &[String]) -> PyResult<Vec<IpAddr>> {
    let parse = |text: &String| text.parse().map_err(|_| bad("source_addresses", text));
    texts.iter().map(parse).collect()
}

/// How far a run is.
#[pyclass(frozen, get_all, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct LoadProgress {
    stage: &'static str,
    elapsed_s: f64,
    connected: u64,
    sent: u64,
    acknowledged: u64,
    received: u64,
}

impl From<&quantumqtt_load::Progress> for LoadProgress {
    fn from(progress: &quantumqtt_load::Progress) -> Self {
        let stage = match progress.stage {
            Stage::Connecting => "connecting",
            Stage::Measuring => "measuring",
        };
        Self {
            stage,
            elapsed_s: progress.elapsed.as_secs_f64(),
            connected: progress.connected,
            sent: progress.sent,
            acknowledged: progress.acknowledged,
            received: progress.received,
        }
    }
}

/// Makes a run. The callback's answer says whether it goes on; what it raises ends the run, too.
#[pyfunction]
pub(crate) fn run_load(
    py: Python<'_>,
    spec: &LoadSpec,
    on_progress: Py<PyAny>,
) -> PyResult<LoadReport> {
    let mut raised = None;
    let spec = &spec.0;
    let outcome = py.detach(|| {
        run(spec, |progress| {
            if raised.is_some() {
                return ControlFlow::Break(());
            }
            let shown = LoadProgress::from(progress);
            let answer = Python::attach(|py| on_progress.call1(py, (shown,))?.is_truthy(py));
            match answer {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    match raised {
        Some(error) => Err(error),
        None => outcome.map(LoadReport).map_err(|error| errors::from_load(&error)),
    }
}

/// Durations that were counted, in nanoseconds.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct LoadDurations(Histogram);

#[pymethods]
impl LoadDurations {
    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    #[getter]
    fn min_ns(&self) -> u64 {
        self.0.min()
    }

    #[getter]
    fn mean_ns(&self) -> u64 {
        self.0.mean()
    }

    #[getter]
    fn max_ns(&self) -> u64 {
        self.0.max()
    }

    fn percentile_ns(&self, share: f64) -> u64 {
        self.0.percentile(share)
    }
}

/// What a process used in one part of a run; memory as it was at its end.
#[pyclass(frozen, get_all, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct ProcessUsage {
    user_seconds: f64,
    system_seconds: f64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    resident_bytes: u64,
    anonymous_bytes: u64,
}

impl From<&ProcessSample> for ProcessUsage {
    fn from(sample: &ProcessSample) -> Self {
        Self {
            user_seconds: sample.user_seconds,
            system_seconds: sample.system_seconds,
            voluntary_switches: sample.voluntary_switches,
            involuntary_switches: sample.involuntary_switches,
            resident_bytes: sample.resident_bytes,
            anonymous_bytes: sample.anonymous_bytes,
        }
    }
}

/// What a run has shown.
#[pyclass(frozen, module = "quantumqtt._core")]
#[derive(Debug)]
pub(crate) struct LoadReport(Report);

macro_rules! getters {
    ($($name:ident: $type:ty,)*) => {
        #[pymethods]
        impl LoadReport {
            $(#[getter]
            fn $name(&self) -> $type {
                self.0.$name
            })*

            #[getter]
            fn units(&self) -> u64 {
                self.0.units()
            }

            #[getter]
            fn latency(&self) -> LoadDurations {
                LoadDurations(self.0.latency.clone())
            }

            #[getter]
            fn acknowledge_latency(&self) -> LoadDurations {
                LoadDurations(self.0.acknowledge_latency.clone())
            }

            #[getter]
            fn connect_latency(&self) -> LoadDurations {
                LoadDurations(self.0.connect_latency.clone())
            }

            #[getter]
            fn faults<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                by_name(py, &self.0.faults)
            }

            #[getter]
            fn first_fault(&self) -> Option<&str> {
                self.0.first_fault.as_deref()
            }

            #[getter]
            fn violations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                by_name(py, &self.0.violations())
            }

            #[getter]
            fn generator(&self) -> ProcessUsage {
                (&self.0.generator).into()
            }

            #[getter]
            fn broker_before(&self) -> Option<ProcessUsage> {
                self.0.broker.map(|broker| (&broker.before).into())
            }

            #[getter]
            fn broker_connecting(&self) -> Option<ProcessUsage> {
                self.0.broker.map(|broker| (&broker.connecting).into())
            }

            #[getter]
            fn broker_measuring(&self) -> Option<ProcessUsage> {
                self.0.broker.map(|broker| (&broker.measuring).into())
            }

            #[getter]
            fn broker_us_per_unit(&self) -> Option<f64> {
                self.0.broker_us_per_unit()
            }

            #[getter]
            fn broker_bytes_per_connection(&self) -> Option<f64> {
                self.0.broker_bytes_per_connection()
            }
        }
    };
}

getters! {
    connected: u64,
    connect_seconds: f64,
    seconds: f64,
    sent: u64,
    acknowledged: u64,
    expected: u64,
    received: u64,
    lost: u64,
    duplicated: u64,
    out_of_order: u64,
    foreign: u64,
    written_off: u64,
    was_cut_short: bool,
}

fn by_name<'py>(py: Python<'py>, counts: &[(&'static str, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let by_name = PyDict::new(py);
    for (name, count) in counts {
        by_name.set_item(name, count)?;
    }
    Ok(by_name)
}
