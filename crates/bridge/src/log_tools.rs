//! A stopped or copied log in Python's hands: verified, counted, dumped, replayed.
//!
//! One call looks at a whole directory and crosses back once per file, or once per batch of records
//! when they are dumped. Nothing is written: the disk is opened to read, and a lock that is shared
//! keeps a broker from starting meanwhile; one that runs already is a refusal.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use quantumqtt_journal::{
    Checkpoint, Damage, Disk, DumpedRecord, FileDisk, LocalKeyFile, Progress, Replayable, Report,
    dump, hold, inspect, replayable,
};
use quantumqtt_machine::{Command, Entry, Limits, Machine};
use quantumqtt_node::state_of;

use crate::crank::{describe_entry, fields};
use crate::errors::{from_journal, from_key, from_replay, from_state, no_log, out_of_range};

/// The embedded node's one partition and its group.
const GROUP: u64 = 1;
const PARTITION: u32 = 0;
/// Records that cross at once.
const BATCH_RECORDS: usize = 256;
const WAL_FOLDER: &str = "wal";

/// A directory that nobody writes in, and its keys.
struct Opened {
    disk: Arc<dyn Disk>,
    keys: LocalKeyFile,
    _held: Box<dyn Any + Send + Sync>,
}

fn open(directory: &Path, key_file: PathBuf) -> PyResult<Opened> {
    let Ok(disk) = FileDisk::read_only(directory) else { return Err(no_log(directory)) };
    let has_log = disk.list(WAL_FOLDER).is_ok_and(|names| !names.is_empty());
    if !has_log {
        return Err(no_log(directory));
    }
    let held = hold(&disk).map_err(from_journal)?;
    let keys = LocalKeyFile::open(key_file).map_err(from_key)?;
    Ok(Opened { disk: Arc::new(disk), keys, _held: held })
}

/// Calls Python between files; the first thing it raises is kept, and raised at the end.
struct Watcher {
    callback: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Watcher {
    fn tell(&mut self, done: usize, total: usize, bytes: u64) {
        if self.raised.is_some() {
            return;
        }
        let told = Python::attach(|py| {
            py.check_signals()?;
            match &self.callback {
                Some(callback) => callback.call1(py, (done, total, bytes)).map(drop),
                None => Ok(()),
            }
        });
        self.raised = told.err();
    }

    fn end(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }
}

fn look(opened: &Opened, watcher: &mut Watcher) -> PyResult<Report> {
    let mut progress = |seen: Progress| watcher.tell(seen.done, seen.total, seen.bytes);
    inspect(&opened.disk, &opened.keys, &mut progress).map_err(from_journal)
}

#[pyfunction]
#[pyo3(signature = (directory, key_file, *, progress=None))]
pub(crate) fn verify_log(
    py: Python<'_>,
    directory: PathBuf,
    key_file: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let mut watcher = Watcher { callback: progress, raised: None };
    let report = py.detach(|| {
        let opened = open(&directory, key_file)?;
        look(&opened, &mut watcher)
    });
    watcher.end()?;
    report_fields(py, &report?)
}

/// Entries and commands by kind, over all records that can be read.
#[derive(Default)]
struct Counts {
    entries: u64,
    unreadable: u64,
    commands: BTreeMap<&'static str, u64>,
    command_bytes: u64,
}

impl Counts {
    fn add(&mut self, record: DumpedRecord) {
        for payload in record.payloads.into_iter().filter(|payload| !payload.is_empty()) {
            self.entries += 1;
            self.command_bytes += payload.len() as u64;
            let Ok(entry) = Entry::parse(payload) else {
                self.unreadable += 1;
                continue;
            };
            for command in entry.commands() {
                match command {
                    Ok(command) => *self.commands.entry(kind_of(&command)).or_default() += 1,
                    Err(_) => self.unreadable += 1,
                }
            }
        }
    }
}

fn kind_of(command: &Command<'_>) -> &'static str {
    match command {
        Command::OpenSession(_) => "OpenSession",
        Command::ConnectionLost(_) => "ConnectionLost",
        Command::LeaveWill(_) => "LeaveWill",
        Command::Subscribe(_) => "Subscribe",
        Command::Unsubscribe(_) => "Unsubscribe",
        Command::Publish(_) => "Publish",
        Command::PubRel(_) => "PubRel",
        Command::ClientAck(_) => "ClientAck",
        Command::Tick => "Tick",
        Command::SetLimits(_) => "SetLimits",
    }
}

#[pyfunction]
#[pyo3(signature = (directory, key_file, *, progress=None))]
pub(crate) fn count_log(
    py: Python<'_>,
    directory: PathBuf,
    key_file: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let mut watcher = Watcher { callback: progress, raised: None };
    let counted = py.detach(|| {
        let opened = open(&directory, key_file)?;
        let report = look(&opened, &mut watcher)?;
        let mut counts = Counts::default();
        if watcher.raised.is_none() && report.is_sound() {
            let mut each = |record| {
                counts.add(record);
                ControlFlow::Continue(())
            };
            dump(&opened.disk, &opened.keys, &mut each).map_err(from_journal)?;
        }
        Ok::<_, PyErr>((report, counts))
    });
    watcher.end()?;
    let (report, counts) = counted?;
    let found = report_fields(py, &report)?;
    found.set_item("entries", counts.entries)?;
    found.set_item("entry_bytes", counts.command_bytes)?;
    found.set_item("unreadable", counts.unreadable)?;
    let commands = PyDict::new(py);
    for (kind, count) in counts.commands {
        commands.set_item(kind, count)?;
    }
    found.set_item("commands", commands)?;
    Ok(found)
}

#[pyfunction]
#[pyo3(signature = (directory, key_file, each, *, first_index=0, last_index=None))]
pub(crate) fn dump_log(
    py: Python<'_>,
    directory: PathBuf,
    key_file: PathBuf,
    each: Py<PyAny>,
    first_index: u64,
    last_index: Option<u64>,
) -> PyResult<()> {
    let last_index = last_index.unwrap_or(u64::MAX);
    let mut batch: Vec<DumpedRecord> = Vec::new();
    let mut raised = None;
    let is_whole = first_index == 0 && last_index == u64::MAX;
    py.detach(|| {
        let opened = open(&directory, key_file)?;
        let mut hand_over = |batch: &mut Vec<DumpedRecord>| {
            let records = std::mem::take(batch);
            let told = Python::attach(|py| {
                py.check_signals()?;
                let records = records.iter().map(|record| record_fields(py, record));
                let records = records.collect::<PyResult<Vec<_>>>()?;
                each.call1(py, (PyList::new(py, records)?,))?.extract::<bool>(py)
            });
            match told {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    raised = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let mut take = |record: DumpedRecord| {
            let last = record.first_index + record.payloads.len().max(1) as u64 - 1;
            let is_asked_for = !record.payloads.is_empty()
                && record.first_index <= last_index
                && last >= first_index;
            if !is_whole && !is_asked_for {
                return ControlFlow::Continue(());
            }
            batch.push(record);
            if batch.len() < BATCH_RECORDS {
                return ControlFlow::Continue(());
            }
            hand_over(&mut batch)
        };
        let dumped = dump(&opened.disk, &opened.keys, &mut take);
        // What came before damage is shown all the same.
        if !batch.is_empty() {
            let _ = hand_over(&mut batch);
        }
        dumped.map_err(from_journal)
    })?;
    raised.map_or(Ok(()), Err)
}

fn record_fields<'py>(py: Python<'py>, record: &DumpedRecord) -> PyResult<Bound<'py, PyDict>> {
    let entries = PyList::empty(py);
    for (index, payload) in (record.first_index..).zip(&record.payloads) {
        let entry = fields!(py, index: index, bytes: payload.len());
        match describe_entry(py, payload.clone()) {
            // Raft's own entries are empty.
            _ if payload.is_empty() => {}
            Ok((header, commands)) => {
                entry.set_item("header", header)?;
                entry.set_item("commands", commands)?;
            }
            Err(error) => {
                entry.set_item("unreadable", error.value(py).to_string())?;
                entry.set_item("payload", PyBytes::new(py, payload))?;
            }
        }
        entries.append(entry)?;
    }
    Ok(fields!(py,
        segment: record.segment,
        offset: record.offset,
        lsn: record.lsn,
        kind: format!("{:?}", record.kind),
        group: record.group,
        first_index: record.first_index,
        term: record.term,
        entries: entries,
    ))
}

/// A state, and the last index in it.
struct Replayed {
    index: u64,
    checkpoint_index: u64,
    last_index: u64,
    entries: u64,
    machine: Machine,
}

fn replay(found: Replayable, until: Option<u64>) -> PyResult<Replayed> {
    let checkpoint_index = found.checkpoint.as_ref().map_or(0, Checkpoint::index);
    let until = until.unwrap_or(found.last_index);
    if until < checkpoint_index || until > found.last_index {
        let (first, last) = (checkpoint_index, found.last_index);
        return Err(out_of_range(format!("index {until} is not among {first} … {last}")));
    }
    let mut machine = match &found.checkpoint {
        None => Machine::new(PARTITION, Limits::default()),
        Some(checkpoint) => state_of(checkpoint).map_err(|why| from_state(&why))?,
    };
    let mut effects = Vec::new();
    let mut entries = 0;
    for (index, data) in found.entries {
        if index > until {
            break;
        }
        let entry = Entry::parse(data);
        let entry = entry.map_err(|why| from_replay(format!("entry {index}: {why}")))?;
        let applied = machine.apply(&entry, &mut effects);
        applied.map_err(|why| from_replay(format!("entry {index}: {why}")))?;
        effects.clear();
        entries += 1;
    }
    let (index, last_index) = (until, found.last_index);
    Ok(Replayed { index, checkpoint_index, last_index, entries, machine })
}

#[pyfunction]
#[pyo3(signature = (directory, key_file, *, until=None))]
pub(crate) fn replay_log(
    py: Python<'_>,
    directory: PathBuf,
    key_file: PathBuf,
    until: Option<u64>,
) -> PyResult<Bound<'_, PyDict>> {
    let replayed = py.detach(|| {
        let opened = open(&directory, key_file)?;
        let found = replayable(&opened.disk, &opened.keys, GROUP).map_err(from_journal)?;
        let found = found.ok_or_else(|| no_log(&directory))?;
        let replayed = replay(found, until)?;
        let digest = replayed.machine.digest();
        Ok::<_, PyErr>((replayed, digest))
    });
    let (replayed, digest) = replayed?;
    let stored = replayed.machine.statistics();
    Ok(fields!(py,
        index: replayed.index,
        digest: format!("{digest:032x}"),
        checkpoint_index: replayed.checkpoint_index,
        last_index: replayed.last_index,
        entries: replayed.entries,
        sessions: stored.sessions,
        subscriptions: stored.subscriptions,
        retained: stored.retained,
        queued: stored.queued,
    ))
}

fn damage_fields<'py>(py: Python<'py>, damage: &Damage) -> PyResult<Bound<'py, PyDict>> {
    Ok(fields!(py,
        file: format!("{WAL_FOLDER}/{:016x}.seg", damage.segment),
        offset: damage.offset,
        lsn: damage.lsn,
        reason: &damage.reason,
    ))
}

fn report_fields<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let segments = PyList::empty(py);
    for segment in &report.segments {
        segments.append(fields!(py,
            file: format!("{WAL_FOLDER}/{:016x}.seg", segment.sequence),
            bytes: segment.bytes,
            used: segment.used,
            first_lsn: segment.first_lsn,
            records: segment.records,
            sealed: segment.sealed,
        ))?;
    }
    let groups = PyList::empty(py);
    for (id, group) in &report.groups {
        let quarantined = group.quarantined.as_ref();
        groups.append(fields!(py,
            group: id,
            term: group.term,
            commit: group.commit,
            compacted: group.compacted,
            last_index: group.last_index,
            checkpoint: group.checkpoint,
            entries: group.entries,
            bytes: group.bytes,
            quarantined: quarantined.map(|damage| damage_fields(py, damage)).transpose()?,
        ))?;
    }
    let checkpoints = PyList::empty(py);
    for checkpoint in &report.checkpoints {
        let digest = checkpoint.state_digest.iter().fold(String::new(), |mut text, byte| {
            // Writing into a text cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        checkpoints.append(fields!(py,
            group: checkpoint.group,
            index: checkpoint.index,
            chunks: checkpoint.chunks,
            bytes: checkpoint.bytes,
            state_digest: digest,
            damage: checkpoint.damage.as_deref(),
        ))?;
    }
    let records = PyDict::new(py);
    for (kind, count) in &report.records {
        records.set_item(format!("{kind:?}"), count)?;
    }
    let damages = PyList::empty(py);
    for damage in &report.damages {
        damages.append(damage_fields(py, damage)?)?;
    }
    let cut = report.cut.as_ref().map(|damage| damage_fields(py, damage)).transpose()?;
    Ok(fields!(py,
        sound: report.is_sound(),
        clean: report.clean,
        cut: cut,
        damages: damages,
        segments: segments,
        groups: groups,
        checkpoints: checkpoints,
        records: records,
    ))
}
