//! The body of a block: columns as the buffers Arrow wants, behind a directory.
//!
//! ```text
//! body      = rows u32 | directory position u32 | entries u16 | version u16 | zero u32
//!           | buffers, each at a multiple of 8 | directory
//! directory = per entry: column u8 | encoding u8 | buffers u16 | (position u32 | length u32) *
//! ```
//!
//! All numbers are little-endian, like Arrow's. A buffer is used where it lies: reading a block
//! copies no column that was stored plain. Columns that need no bytes of their own get none: an
//! absent entry is a column of nulls, a column of one value stores it once, and a column that
//! counts up stores where it begins. That, and not compression, is what keeps small messages
//! small; decisions/2026-11-19-record-blocks.md has the figures.

use arrow_buffer::{ArrowNativeType, Buffer, MutableBuffer};

const _: () = assert!(cfg!(target_endian = "little"), "buffers are used where they lie");

pub(crate) const VERSION: u16 = 1;
pub(crate) const HEAD_BYTES: usize = 16;
/// More buffers than any column has; bounds what a directory may claim.
const BUFFERS_MAX: usize = 8;
const ENTRIES_MAX: usize = 64;

/// How the values of a column are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    /// A value per row.
    Plain = 1,
    /// A validity bitmap, and a value per row.
    Nullable = 2,
    /// One value for all rows.
    Constant = 3,
    /// Integers that rise by one; only the first is stored.
    Sequence = 4,
}

impl Encoding {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Plain),
            2 => Some(Self::Nullable),
            3 => Some(Self::Constant),
            4 => Some(Self::Sequence),
            _ => None,
        }
    }
}

/// Writes a body from front to back.
#[derive(Debug)]
pub(crate) struct BodyWriter {
    body: MutableBuffer,
    directory: Vec<u8>,
    entries: u16,
}

impl BodyWriter {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut body = MutableBuffer::with_capacity(bytes + HEAD_BYTES);
        body.extend_zeros(HEAD_BYTES);
        Self { body, directory: Vec::with_capacity(512), entries: 0 }
    }

    /// Begins the entry of a column; exactly `buffers` calls of `buffer` follow.
    pub(crate) fn column(&mut self, id: u8, encoding: Encoding, buffers: u16) {
        self.directory.extend([id, encoding as u8]);
        self.directory.extend(buffers.to_le_bytes());
        self.entries += 1;
    }

    pub(crate) fn buffer<T: ArrowNativeType>(&mut self, values: &[T]) {
        self.body.extend_zeros(self.body.len().next_multiple_of(8) - self.body.len());
        let position = self.body.len() as u32;
        self.body.extend_from_slice(values);
        let length = self.body.len() as u32 - position;
        self.directory.extend(position.to_le_bytes());
        self.directory.extend(length.to_le_bytes());
    }

    pub(crate) fn finish(mut self, rows: usize) -> Buffer {
        self.body.extend_zeros(self.body.len().next_multiple_of(8) - self.body.len());
        let directory = self.body.len() as u32;
        self.body.extend_from_slice(&self.directory);
        let head = &mut self.body.as_slice_mut()[..HEAD_BYTES];
        head[0..4].copy_from_slice(&(rows as u32).to_le_bytes());
        head[4..8].copy_from_slice(&directory.to_le_bytes());
        head[8..10].copy_from_slice(&self.entries.to_le_bytes());
        head[10..12].copy_from_slice(&VERSION.to_le_bytes());
        self.body.into()
    }
}

/// What is wrong with a body; the caller knows whose body it is.
pub(crate) type Fault = &'static str;

/// One entry of a directory, its buffers cut out of the body without copying.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u8,
    pub(crate) encoding: Encoding,
    buffers: [Option<Buffer>; BUFFERS_MAX],
}

impl Entry {
    /// The next buffer of the entry, in order.
    pub(crate) fn take(&mut self, place: usize) -> Result<Buffer, Fault> {
        self.buffers.get_mut(place).and_then(Option::take).ok_or("a column lacks a buffer")
    }
}

/// Reads a body that may hold anything.
pub(crate) struct BodyReader<'a> {
    body: &'a Buffer,
    at: usize,
    left: u16,
    pub(crate) rows: usize,
}

impl<'a> BodyReader<'a> {
    pub(crate) fn new(body: &'a Buffer) -> Result<Self, Fault> {
        if body.len() < HEAD_BYTES {
            return Err("shorter than its head");
        }
        if u16::from_le_bytes([body[10], body[11]]) != VERSION {
            return Err("a version this build does not know");
        }
        let left = u16::from_le_bytes([body[8], body[9]]);
        if usize::from(left) > ENTRIES_MAX {
            return Err("more columns than there are");
        }
        let at = u32_at(body, 4)? as usize;
        Ok(Self { body, at, left, rows: u32_at(body, 0)? as usize })
    }

    /// The next entry; none after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let head = self.body.get(self.at..).and_then(|rest| rest.first_chunk::<4>());
        let [id, encoding, low, high] = *head.ok_or("the directory is cut off")?;
        let encoding = Encoding::from_byte(encoding).ok_or("an unknown encoding")?;
        let count = usize::from(u16::from_le_bytes([low, high]));
        if count > BUFFERS_MAX {
            return Err("more buffers than a column has");
        }
        self.at += 4;
        let mut buffers = [const { None }; BUFFERS_MAX];
        for buffer in &mut buffers[..count] {
            let position = u32_at(self.body, self.at)? as usize;
            let length = u32_at(self.body, self.at + 4)? as usize;
            self.at += 8;
            // Alignment is what lets the buffer be used where it lies.
            if !position.is_multiple_of(8) || position.saturating_add(length) > self.body.len() {
                return Err("a buffer lies outside");
            }
            *buffer = Some(self.body.slice_with_length(position, length));
        }
        Ok(Some(Entry { id, encoding, buffers }))
    }
}

fn u32_at(body: &[u8], at: usize) -> Result<u32, Fault> {
    let bytes = body.get(at..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map(|bytes| u32::from_le_bytes(*bytes)).ok_or("a number is cut off")
}
