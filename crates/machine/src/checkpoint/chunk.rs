//! One chunk: a piece of the items' bytes, cut wherever it is full, and a sum over all of it.
//!
//! ```text
//! mark          4 bytes "QCKP"
//! format        u8    2 if the state holds de-duplication keys, else 1
//! flags         u8    bit 0: this is the last chunk
//! apply_version u16   the oldest rules under which this state can have come about: as the format
//! partition     u32
//! index         u64   the log index of the last entry that is in the state
//! number        u32   from 0
//! body_bytes    u32
//! body
//! sum           u128  XXH3-128 over everything before it; all numbers little-endian
//! ```
//!
//! The sum finds damage, not malice; the log seals chunks against that.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::restore::RestoreFault;
use crate::entry::APPLY_VERSION;

/// No chunk is larger.
pub const CHUNK_BYTES_MAX: usize = 4 << 20;
/// A smaller chunk is never asked for: it would be all header. The last one may be smaller.
pub const CHUNK_BYTES_MIN: usize = 256;
/// The newest format of chunks and items this build writes.
pub const CHUNK_FORMAT: u8 = 2;
/// Since this format de-duplication keys may follow the retained messages.
pub(super) const CHUNK_FORMAT_DEDUPE: u8 = 2;
/// The format of a state that the first release can hold; such a state is written as that did.
pub(super) const CHUNK_FORMAT_FIRST: u8 = 1;

const MARK: [u8; 4] = *b"QCKP";
const HEADER_BYTES: usize = 28;
const SUM_BYTES: usize = 16;
const FLAG_LAST: u8 = 1;

/// What a chunk says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The partition.
    pub partition: u32,
    /// The log index of the checkpoint.
    pub index: u64,
    /// Its place among the chunks, from 0.
    pub number: u32,
    /// Whether it is the last.
    pub is_last: bool,
}

/// How much of a chunk of `bytes_max` is body.
pub(super) fn body_bytes_max(bytes_max: usize) -> usize {
    bytes_max.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) - HEADER_BYTES - SUM_BYTES
}

impl ChunkHeader {
    /// A chunk of any bytes behind a valid sum. The machine makes its own; this is for tests that
    /// ask what becomes of bytes nobody would write.
    pub fn seal(&self, body: &[u8]) -> Bytes {
        self.seal_with(CHUNK_FORMAT_FIRST, |out| out.extend_from_slice(body))
    }

    /// Writes a whole chunk; `write_body` appends its body.
    pub(super) fn seal_with(&self, format: u8, write_body: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let mut chunk = Vec::new();
        chunk.extend_from_slice(&MARK);
        chunk.push(format);
        chunk.push(if self.is_last { FLAG_LAST } else { 0 });
        // Formats and apply versions have risen together so far.
        chunk.extend_from_slice(&u16::from(format).to_le_bytes());
        chunk.extend_from_slice(&self.partition.to_le_bytes());
        chunk.extend_from_slice(&self.index.to_le_bytes());
        chunk.extend_from_slice(&self.number.to_le_bytes());
        let length_at = chunk.len();
        chunk.extend_from_slice(&[0; 4]);
        write_body(&mut chunk);
        let body_bytes = (chunk.len() - HEADER_BYTES) as u32;
        chunk[length_at..HEADER_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
        let sum = xxh3_128(&chunk);
        chunk.extend_from_slice(&sum.to_le_bytes());
        Bytes::from(chunk)
    }

    /// Checks a chunk and gives its header, its format and its body; the fault comes with its
    /// offset.
    pub(super) fn open(chunk: &[u8]) -> Result<(Self, u8, &[u8]), (usize, RestoreFault)> {
        let mut fields = Fields { rest: chunk };
        if fields.take::<4>()? != MARK {
            return Err((0, RestoreFault::NotACheckpoint));
        }
        let [format, flags] = fields.take()?;
        if !(CHUNK_FORMAT_FIRST..=CHUNK_FORMAT).contains(&format) {
            return Err((4, RestoreFault::OtherFormat(format)));
        }
        let apply_version = u16::from_le_bytes(fields.take()?);
        if apply_version > APPLY_VERSION {
            return Err((6, RestoreFault::NewerApplyVersion(apply_version)));
        }
        let header = Self {
            partition: u32::from_le_bytes(fields.take()?),
            index: u64::from_le_bytes(fields.take()?),
            number: u32::from_le_bytes(fields.take()?),
            is_last: flags & FLAG_LAST != 0,
        };
        let body_bytes = u32::from_le_bytes(fields.take()?) as usize;
        let body = fields.rest.split_at_checked(body_bytes);
        let (body, sum) = body.ok_or((chunk.len(), RestoreFault::CutOff))?;
        let sum: [u8; SUM_BYTES] = match sum.len() {
            SUM_BYTES => sum.try_into().map_err(|_| (chunk.len(), RestoreFault::CutOff))?,
            found if found < SUM_BYTES => return Err((chunk.len(), RestoreFault::CutOff)),
            _ => return Err((HEADER_BYTES + body_bytes + SUM_BYTES, RestoreFault::Trailing)),
        };
        if xxh3_128(&chunk[..HEADER_BYTES + body_bytes]) != u128::from_le_bytes(sum) {
            return Err((HEADER_BYTES + body_bytes, RestoreFault::WrongSum));
        }
        if flags & !FLAG_LAST != 0 || apply_version == 0 || chunk.len() > CHUNK_BYTES_MAX {
            return Err((5, RestoreFault::NotACheckpoint));
        }
        Ok((header, format, body))
    }

    /// Where the body begins in a chunk.
    pub(super) const BODY_AT: usize = HEADER_BYTES;
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], (usize, RestoreFault)> {
        let cut_off = (0, RestoreFault::CutOff);
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or(cut_off)?;
        self.rest = rest;
        Ok(*field)
    }
}
