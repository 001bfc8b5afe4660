//! The seam to the disk: what the log needs of a file system, and nothing more.
//!
//! Chunks are written once from front to back, synced, renamed and never changed, so there is no
//! truncation, no append and no lock here. The simulated disk ([`crate::SimDisk`]) lies about
//! exactly these calls. Nothing retries: a failed sync is final.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file system, or one that pretends.
pub trait Disk: Debug + Send + Sync {
    /// Makes an empty file, in place of any that has the name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Gives a file another name, in place of any that has it. Durable after `sync_dir`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after `sync_dir`.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory and those above it, unless they exist.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names of the files in a directory, sorted; none if there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// An open file.
pub trait File: Debug + Send + Sync {
    /// Fills `buffer` from `position`; a file that ends before is `UnexpectedEof`.
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `position`.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&self) -> io::Result<()>;
    /// How long the file is.
    fn size(&self) -> io::Result<u64>;
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file =
            fs::File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn File>> {
        Ok(Box::new(fs::File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            // Names that are no text are none of ours.
            if let (true, Ok(name)) =
                (entry.file_type()?.is_file(), entry.file_name().into_string())
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }
}

impl File for fs::File {
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, position)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
