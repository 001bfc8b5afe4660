//! A real directory, over rustix: the only module that reaches a file system.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the seam to the file system"
)]

use std::any::Any;
use std::fs::{File as StdFile, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::disk::{Disk, File};
use crate::limits::ZERO_STEP_BYTES;

/// Files are for the broker's user alone.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// The kernel takes no more pieces in one call.
const PIECES_MAX: usize = 1024;

/// A data directory.
#[derive(Debug)]
pub struct FileDisk {
    root: PathBuf,
    is_read_only: bool,
}

impl FileDisk {
    /// Makes the directory if it is absent.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let disk = Self { root: root.into(), is_read_only: false };
        disk.make_dir("")?;
        Ok(disk)
    }

    /// An existing directory, for tools that look: whatever would change it fails, syncs do
    /// nothing, and a lock is shared with other readers and keeps writers out.
    pub fn read_only(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        if root.is_dir() {
            return Ok(Self { root, is_read_only: true });
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is no directory", root.display())))
    }

    /// Where the directory is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn may_write(&self) -> io::Result<()> {
        if self.is_read_only {
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "opened to read"));
        }
        Ok(())
    }

    fn at(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

impl Disk for FileDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        let wanted = OpenOptions::new().read(true).write(!self.is_read_only).open(self.at(path));
        Ok(Box::new(OpenFile { file: wanted?, is_read_only: self.is_read_only }))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        self.may_write()?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.at(path))?;
        Ok(Box::new(OpenFile { file, is_read_only: false }))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.may_write()?;
        std::fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(self.at(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        StdFile::open(self.at(path))?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.may_write()?;
        std::fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.may_write()?;
        std::fs::remove_file(self.at(path))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.at(path)) {
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        if self.is_read_only {
            let file = match StdFile::open(self.at(path)) {
                // A copy may have been made without it.
                Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(Box::new(())),
                other => other?,
            };
            flock(&file, FlockOperation::NonBlockingLockShared)?;
            return Ok(Box::new(file));
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(self.at(path))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let answer = rustix::fs::statvfs(&self.root)?;
        Ok(answer.f_bavail.saturating_mul(answer.f_frsize))
    }
}

struct OpenFile {
    file: StdFile,
    is_read_only: bool,
}

impl File for OpenFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut written = 0;
        for group in pieces.chunks(PIECES_MAX) {
            let wanted: usize = group.iter().map(|piece| piece.len()).sum();
            let got = rustix::io::pwritev(&self.file, group, offset + written as u64)?;
            written += got;
            if got < wanted {
                break;
            }
        }
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        rustix::fs::fdatasync(&self.file)?;
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let zeros = vec![0_u8; ZERO_STEP_BYTES as usize];
        let mut done = 0;
        while done < bytes {
            let step = (bytes - done).min(ZERO_STEP_BYTES) as usize;
            self.file.write_all_at(&zeros[..step], offset + done)?;
            done += step as u64;
        }
        Ok(())
    }

    fn cut_off(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
