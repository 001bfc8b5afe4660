//! The seam to the disk: what the log needs of a file system, and nothing more.
//!
//! The same shape as the journal's seam, method for method, so that one day they are one; only what
//! the journal alone needs (locks, zeroing, free space) is absent. Paths are relative to the disk's
//! root, with `/` between parts. Chunks are written once from front to back, synced, renamed and
//! never changed. Nothing retries: a failed sync is final.

use std::fs;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A directory tree of files, or something that pretends to be one.
pub trait Disk: Send + Sync {
    /// Opens an existing file.
    fn open(&self, path: &str) -> io::Result<Box<dyn File>>;
    /// Makes a new file; one that exists is an error.
    fn create(&self, path: &str) -> io::Result<Box<dyn File>>;
    /// Makes a directory and its parents; one that exists is fine.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Gives a file another name, replacing what had that name. Durable after `sync_dir`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file's name away. Durable after `sync_dir`.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Names of the files of a directory, in order. A directory that is absent is empty.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
}

/// One open file.
pub trait File: Send + Sync {
    /// Reads at an offset; fewer bytes than asked means the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes the pieces one after another at an offset and says how many bytes arrived. Fewer
    /// than given is a failed disk.
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Makes written bytes durable.
    fn sync_data(&self) -> io::Result<()>;
    /// The file's length.
    fn length(&self) -> io::Result<u64>;
}

/// Fills `into`, or says that the file ends before.
pub(crate) fn read_exact(file: &dyn File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < into.len() {
        let got = file.read_at(offset + at as u64, &mut into[at..])?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += got;
    }
    Ok(())
}

/// Writes all of the bytes or fails; a short write is an error like any other.
pub(crate) fn write_whole(file: &dyn File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let written = file.write_at(offset, &[IoSlice::new(bytes)])?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// A directory of this machine.
#[derive(Debug, Clone)]
pub struct FileDisk {
    root: PathBuf,
}

impl FileDisk {
    /// The tree under `root`, which is made when something in it is.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Disk for FileDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(fs::File::open(self.path(path))?))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn File>> {
        let mut options = fs::File::options();
        Ok(Box::new(options.read(true).write(true).create_new(true).open(self.path(path))?))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.path(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.path(path))?.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(path)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            // Names that are no text are none of ours.
            let name = entry.file_name().into_string();
            if let (true, Ok(name)) = (entry.file_type()?.is_file(), name) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

impl File for fs::File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, into, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut written = 0;
        for piece in pieces {
            FileExt::write_all_at(self, piece, offset + written as u64)?;
            written += piece.len();
        }
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        fs::File::sync_data(self)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}
