//! The durable path of one node, for the simulator: one call per turn, entries in, effects out.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use quantumqtt_journal::{Durability, SimEntropy};
use quantumqtt_machine::{EntryBuilder, EntryHeader};
use quantumqtt_node::{Crank, CrankSpec, Turned};
use quantumqtt_topics::Filter;

use super::disk::{Bend, SimulatedDisk};
use super::{NamedRecord, commands, effects, fields, sizes_of};
use crate::errors;

/// Index, entry, what it came to.
type TurnedRecord<'py> = (u64, Bound<'py, PyBytes>, Vec<NamedRecord<'py>>);

/// One life of a node.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct SimulatedNode(Mutex<Crank>);

#[pymethods]
impl SimulatedNode {
    /// Applies the entries and says why it stopped if it did.
    #[pyo3(signature = (entries, *, now_ms, sync))]
    fn turn<'py>(
        &self,
        py: Python<'py>,
        entries: Vec<Vec<Bound<'py, PyAny>>>,
        now_ms: u64,
        sync: bool,
    ) -> PyResult<(Vec<TurnedRecord<'py>>, Option<String>)> {
        let mut crank = self.0.lock();
        for batch in &entries {
            let mut builder = EntryBuilder::new();
            for command in batch {
                commands::push(&mut builder, command)?;
            }
            crank.propose(&mut builder, now_ms);
        }
        let mut told = Vec::new();
        let mut stopped = crank.tick(now_ms).and_then(|()| crank.advance(&mut told));
        if sync && stopped.is_ok() {
            crank.pump();
            stopped = crank.advance(&mut told);
        }
        Ok((records(py, &told)?, stopped.err().map(|why| why.to_string())))
    }

    fn apply_unlogged<'py>(
        &self,
        py: Python<'py>,
        batch: Vec<Bound<'py, PyAny>>,
        now_ms: u64,
    ) -> PyResult<Vec<NamedRecord<'py>>> {
        let mut builder = EntryBuilder::new();
        for command in &batch {
            commands::push(&mut builder, command)?;
        }
        let header = EntryHeader { now_ms, leader: 1, ..EntryHeader::default() };
        let applied = self.0.lock().apply_unlogged(builder.finish(&header));
        let applied = applied.map_err(|why| errors::InternalError::new_err((why.to_string(),)))?;
        applied.iter().map(|effect| effects::record_of(py, effect)).collect()
    }

    fn begin_checkpoint_files(&self) -> PyResult<u64> {
        self.0.lock().begin_checkpoint_files().map_err(errors::from_journal)
    }

    fn begin_checkpoint_state(&self, index: u64) {
        self.0.lock().begin_checkpoint_state(index);
    }

    #[pyo3(signature = (*, bytes_max, floor))]
    fn step_checkpoint(&self, bytes_max: usize, floor: Option<u64>) -> PyResult<Option<u64>> {
        let stepped = self.0.lock().step_checkpoint(bytes_max, floor);
        stepped.map_err(errors::from_journal)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let status = self.0.lock().status();
        Ok(fields!(py,
            applied: status.applied,
            last: status.last,
            compacted: status.compacted,
            restored: status.restored,
            is_full: status.is_full,
        ))
    }

    fn failure(&self) -> Option<String> {
        self.0.lock().failure().map(|why| why.to_string())
    }

    fn digest(&self) -> String {
        format!("{:032x}", self.0.lock().machine().digest())
    }

    fn broken_invariant(&self) -> Option<&'static str> {
        self.0.lock().machine().check_invariants().err()
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.0.lock().machine().next_deadline_ms()
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        sizes_of(py, &self.0.lock().machine().statistics())
    }

    fn client_ids(&self) -> Vec<String> {
        self.0.lock().machine().client_ids().map(str::to_owned).collect()
    }

    fn session<'py>(
        &self,
        py: Python<'py>,
        client_id: &str,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let session = self.0.lock().machine().session_view(client_id);
        session.map(|session| effects::session_fields(py, &session)).transpose()
    }

    fn retained_offsets(&self, filter_text: &str, now_ms: u64) -> PyResult<Vec<u64>> {
        let filter = Filter::parse(filter_text).map_err(errors::from_filter)?;
        let crank = self.0.lock();
        let matching = crank.machine().retained_matching(&filter, now_ms);
        Ok(matching.iter().map(|message| message.offset).collect())
    }
}

fn records<'py>(py: Python<'py>, told: &[Turned]) -> PyResult<Vec<TurnedRecord<'py>>> {
    let record = |turned: &Turned| {
        let effects = turned.effects.iter().map(|effect| effects::record_of(py, effect));
        let effects = effects.collect::<PyResult<Vec<_>>>()?;
        Ok((turned.index, PyBytes::new(py, &turned.entry), effects))
    };
    told.iter().map(record).collect()
}

/// Opens a node on a disk; also what the entries it found came to.
#[pyfunction]
#[pyo3(signature = (disk, *, limits, now_ms, entropy_seed, segment_bytes, acks_early, bend))]
#[expect(clippy::too_many_arguments, reason = "they are one value, spelled out for Python")]
pub(crate) fn open_simulated_node<'py>(
    py: Python<'py>,
    disk: &SimulatedDisk,
    limits: &Bound<'py, PyAny>,
    now_ms: u64,
    entropy_seed: u64,
    segment_bytes: u64,
    acks_early: bool,
    bend: Option<&str>,
) -> PyResult<(SimulatedNode, Vec<TurnedRecord<'py>>)> {
    // Its clock stands still: with a delay nothing is ever due, so all is answered before a sync.
    let early = Durability::Group { delay_ms: 5, bytes: 4 << 20 };
    let spec = CrankSpec {
        disk: disk.seen_through(bend.map(Bend::named).transpose()?),
        entropy: std::sync::Arc::new(SimEntropy::new(entropy_seed)),
        segment_bytes,
        durability: if acks_early { early } else { Durability::Strict },
        limits: commands::read_limits(limits)?,
        now_ms,
    };
    let mut told = Vec::new();
    let opened = Crank::open(spec, &mut told);
    let crank = opened.map_err(|why| errors::from_opening(&why))?;
    Ok((SimulatedNode(Mutex::new(crank)), records(py, &told)?))
}
