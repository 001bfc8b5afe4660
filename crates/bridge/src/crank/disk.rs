//! The disk that lies, lent to the simulator, and ways to drive it that no journal should survive.

use std::any::Any;
use std::io::{self, IoSlice};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quantumqtt_journal::{Crash, Disk, Fault, File, SimDisk};

use crate::errors;

/// A disk in memory that does what real ones do when things go wrong, from a seed.
#[pyclass(frozen, module = "quantumqtt._core")]
pub(crate) struct SimulatedDisk(pub(super) SimDisk);

#[pymethods]
impl SimulatedDisk {
    #[new]
    fn new(seed: u64) -> Self {
        Self(SimDisk::new(seed))
    }

    fn crash(&self, how: &str) -> PyResult<()> {
        let how = match how {
            "process" => Crash::Process,
            "clean" => Crash::Clean,
            "prefix" => Crash::Prefix,
            "subset" => Crash::Subset,
            "torn" => Crash::Torn,
            name => return Err(errors::no_such("crash", name)),
        };
        self.0.crash(how);
        Ok(())
    }

    fn inject(&self, fault: &str, after: u64) -> PyResult<()> {
        let fault = match fault {
            "write_error" => Fault::WriteError,
            "short_write" => Fault::ShortWrite,
            "sync_error" => Fault::SyncError,
            name => return Err(errors::no_such("fault", name)),
        };
        self.0.inject(fault, after);
        Ok(())
    }

    fn power_off_at(&self, operation: u64) {
        self.0.power_off_at(operation);
    }

    fn is_off(&self) -> bool {
        self.0.is_off()
    }

    fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.0.set_capacity(capacity_bytes);
    }

    fn flip(&self, path: &str, offset: u64, mask: u8) -> PyResult<()> {
        Ok(self.0.flip(path, offset, mask)?)
    }

    fn erase(&self, path: &str) -> PyResult<()> {
        self.0.remove(path)?;
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        Ok(self.0.sync_dir(directory)?)
    }

    fn read<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.read(path)?))
    }

    fn paths(&self) -> Vec<String> {
        self.0.paths()
    }

    fn used_bytes(&self) -> u64 {
        self.0.used_bytes()
    }

    fn operations(&self) -> u64 {
        self.0.operations()
    }

    fn trace_hash(&self) -> u64 {
        self.0.trace_hash()
    }
}

/// Mistakes in the use of a disk, by name: seeded bugs, which the simulator must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bend {
    /// Names are never synced.
    NamesUnsynced,
    /// What a checkpoint is made of is never synced.
    CheckpointUnsynced,
    /// A sync that fails is taken for one that worked.
    SyncErrorIgnored,
    /// A write that stops half-way is taken for a whole one.
    ShortWriteIgnored,
}

impl Bend {
    pub(super) fn named(name: &str) -> PyResult<Self> {
        match name {
            "names_unsynced" => Ok(Self::NamesUnsynced),
            "checkpoint_unsynced" => Ok(Self::CheckpointUnsynced),
            "sync_error_ignored" => Ok(Self::SyncErrorIgnored),
            "short_write_ignored" => Ok(Self::ShortWriteIgnored),
            name => Err(PyValueError::new_err(format!("there is no bend {name:?}"))),
        }
    }
}

/// A disk as somebody sees it who makes one of these mistakes.
pub(super) struct BentDisk {
    pub(super) disk: SimDisk,
    pub(super) bend: Bend,
}

impl BentDisk {
    fn bent(&self, file: Box<dyn File>, path: &str) -> Box<dyn File> {
        let is_checkpoint = path.starts_with("checkpoints/");
        Box::new(BentFile { file, bend: self.bend, is_checkpoint })
    }
}

impl Disk for BentDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        Ok(self.bent(self.disk.open(path)?, path))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        Ok(self.bent(self.disk.create(path)?, path))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.disk.make_dir(path)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        if self.bend == Bend::NamesUnsynced { Ok(()) } else { self.disk.sync_dir(path) }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.disk.lock(path)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
}

struct BentFile {
    file: Box<dyn File>,
    bend: Bend,
    is_checkpoint: bool,
}

impl File for BentFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.file.write_at(offset, pieces)?;
        let wanted = pieces.iter().map(|piece| piece.len()).sum();
        Ok(if self.bend == Bend::ShortWriteIgnored { wanted } else { written })
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.bend {
            Bend::CheckpointUnsynced if self.is_checkpoint => Ok(()),
            Bend::SyncErrorIgnored => self.file.sync_data().or(Ok(())),
            _ => self.file.sync_data(),
        }
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.zero(offset, bytes)
    }

    fn cut_off(&self, length: u64) -> io::Result<()> {
        self.file.cut_off(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

impl SimulatedDisk {
    /// The disk as the journal gets it, with a mistake in between if one is named.
    pub(super) fn seen_through(&self, bend: Option<Bend>) -> Arc<dyn Disk> {
        let disk = self.0.clone();
        match bend {
            None => Arc::new(disk),
            Some(bend) => Arc::new(BentDisk { disk, bend }),
        }
    }
}
