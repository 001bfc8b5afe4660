//! The seam between the journal and a disk.
//!
//! Paths are relative to the data directory, with `/` between parts. Nothing above this trait
//! touches a file system, so the simulator can lie about everything below it: what was written but
//! not synced, which directory entries survive, when space ends.

use std::any::Any;
use std::io::{self, IoSlice};

/// A directory tree of files.
pub trait Disk: Send + Sync {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Box<dyn File>>;

    /// Makes a new file; one that exists is an error.
    fn create(&self, path: &str) -> io::Result<Box<dyn File>>;

    /// Makes a directory and its parents; one that exists is fine.
    fn make_dir(&self, path: &str) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;

    /// Gives a file another name, replacing what had that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file's name away.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Names in a directory, of files and directories, in order. One that is absent is empty.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;

    /// Takes the lock of that name until the guard is dropped.
    ///
    /// `ErrorKind::WouldBlock` says that another process holds it.
    fn lock(&self, path: &str) -> io::Result<Box<dyn Any + Send + Sync>>;

    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One open file.
pub trait File: Send + Sync {
    /// Reads at an offset; fewer bytes than asked means the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes the pieces one after another at an offset and says how many bytes arrived.
    ///
    /// Fewer than given is for the caller to judge; the journal takes it for a failed disk.
    fn write_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes written bytes durable.
    fn sync_data(&self) -> io::Result<()>;

    /// Writes zeros, so that blocks are allocated and later writes move no metadata.
    fn zero(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Cuts the file off; what stood behind is given back to the disk.
    fn cut_off(&self, length: u64) -> io::Result<()>;

    /// The file's length.
    fn length(&self) -> io::Result<u64>;
}

/// Reads a whole file.
pub(crate) fn read_whole(file: &dyn File) -> io::Result<Vec<u8>> {
    let length = file.length()?;
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut at = 0;
    while at < bytes.len() {
        let got = file.read_at(at as u64, &mut bytes[at..])?;
        if got == 0 {
            bytes.truncate(at);
            break;
        }
        at += got;
    }
    Ok(bytes)
}

/// Writes all of the bytes or fails; a short write is an error like any other.
pub(crate) fn write_whole(file: &dyn File, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
    let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
    let written = file.write_at(offset, pieces)?;
    if written == wanted {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::WriteZero,
        format!("{written} of {wanted} bytes were written"),
    ))
}
