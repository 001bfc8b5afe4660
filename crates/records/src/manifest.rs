//! The list of chunks: what a checkpoint carries so that the log can be opened again.
//!
//! ```text
//! manifest = magic[8] | format u16 | zero u16 | count u32 | earliest u64 | end u64
//!          | chunk * | SHA-256 of all before it
//! chunk    = id u64 | kind u8 | zero[7] | first u64 | last u64 | records u64 | file bytes u64
//!          | earliest ts i64 | latest ts i64 | digest[32]                            96 bytes
//! ```
//!
//! The list is the truth: a file that is not on it is not part of the log, a file that is on it
//! must be there and be what the list says. So whatever crash interrupts a seal, a merge or
//! retention, the last durable list still names files that exist, because files are only removed
//! when a later list is durable ([`crate::RecordLog::plan_sweep`]).

use std::io;

use aws_lc_rs::digest::{SHA256, digest};

use crate::chunk::{ChunkInfo, ChunkKind};
use crate::disk::{Disk, read_exact, write_whole};
use crate::error::{Error, Result};
use crate::limits::CHUNKS_MAX;

const MAGIC: [u8; 8] = *b"QMQlists";
const FORMAT: u16 = 1;
const HEAD_BYTES: usize = 32;
const CHUNK_BYTES: usize = 96;
const DIGEST_BYTES: usize = 32;
const FILE_NAME: &str = "manifest";
pub(crate) const UNFINISHED_NAME: &str = "manifest.new";

/// See the head of this file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The first offset that readers of the log may ask for.
    pub earliest: u64,
    /// The first offset that is in no chunk: where the tail begins.
    pub end: u64,
    /// Chunks of the log in order, then kept ones in order.
    pub chunks: Vec<ChunkInfo>,
}

impl Manifest {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.chunks.len() * CHUNK_BYTES + 32);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend((self.chunks.len() as u32).to_le_bytes());
        bytes.extend(self.earliest.to_le_bytes());
        bytes.extend(self.end.to_le_bytes());
        for chunk in &self.chunks {
            encode_chunk(chunk, &mut bytes);
        }
        let sum = digest(&SHA256, &bytes);
        bytes.extend(sum.as_ref());
        bytes
    }

    /// Reads bytes that may be anything.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |why| Error::DamagedManifest { why };
        let Some((body, sum)) = bytes.split_last_chunk::<DIGEST_BYTES>() else {
            return Err(damaged("it is cut off"));
        };
        if body.len() < HEAD_BYTES || body[..8] != MAGIC {
            return Err(damaged("it is none"));
        }
        let format = u16::from_le_bytes([body[8], body[9]]);
        if format > FORMAT {
            return Err(Error::NewerFormat { name: FILE_NAME.into(), format, known: FORMAT });
        }
        if digest(&SHA256, body).as_ref() != sum {
            return Err(damaged("its digest does not fit"));
        }
        let (head, chunks) = body.split_at(HEAD_BYTES);
        let count = u64_at(head, 8) >> 32;
        let (chunks, rest) = chunks.as_chunks::<CHUNK_BYTES>();
        if !rest.is_empty() || chunks.len() as u64 != count || chunks.len() > CHUNKS_MAX {
            return Err(damaged("it has another number of chunks than it says"));
        }
        let chunks = chunks.iter().map(decode_chunk).collect::<Option<Vec<_>>>();
        let chunks = chunks.ok_or(damaged("a chunk is of no kind"))?;
        let manifest = Self { earliest: u64_at(head, 16), end: u64_at(head, 24), chunks };
        manifest.check()?;
        Ok(manifest)
    }

    /// The chunks of one kind, in order.
    pub(crate) fn of_kind(&self, kind: ChunkKind) -> impl Iterator<Item = &ChunkInfo> {
        self.chunks.iter().filter(move |chunk| chunk.kind == kind)
    }

    /// The log's chunks reach from `earliest` to `end` without a gap; kept ones do not overlap.
    pub(crate) fn check(&self) -> Result<()> {
        let damaged = |why| Err(Error::DamagedManifest { why });
        let mut next = self.earliest;
        for chunk in self.of_kind(ChunkKind::Log) {
            if chunk.first_offset != next || chunk.last_offset < next {
                return damaged("chunks of the log leave a gap");
            }
            next = chunk.last_offset.saturating_add(1);
        }
        if next != self.end {
            return damaged("the log ends elsewhere than its last chunk");
        }
        let mut next = 0;
        for chunk in self.of_kind(ChunkKind::Kept) {
            if chunk.first_offset < next || chunk.last_offset < chunk.first_offset {
                return damaged("kept chunks overlap");
            }
            next = chunk.last_offset.saturating_add(1);
        }
        Ok(())
    }

    /// Writes it beside the chunks, for logs that stand alone. In a node the checkpoint carries it.
    pub fn store(&self, disk: &dyn Disk, directory: &str) -> Result<()> {
        let name = format!("{directory}/{FILE_NAME}");
        let new = format!("{directory}/{UNFINISHED_NAME}");
        let write = || -> io::Result<()> {
            match disk.remove(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {} // an earlier attempt that failed may have left one
            }
            let file = disk.create(&new)?;
            write_whole(&*file, 0, &self.encode())?;
            file.sync_data()?;
            drop(file);
            disk.rename(&new, &name)?;
            disk.sync_dir(directory)
        };
        write().map_err(|source| Error::disk("write", &name, source))
    }

    /// What `store` wrote last; none if it never did.
    pub fn load(disk: &dyn Disk, directory: &str) -> Result<Option<Self>> {
        let name = format!("{directory}/{FILE_NAME}");
        let most = (HEAD_BYTES + CHUNKS_MAX * CHUNK_BYTES + DIGEST_BYTES) as u64;
        let told = |source| Error::disk("read", &name, source);
        let file = match disk.open(&name) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(told(error)),
        };
        let size = file.length().map_err(told)?;
        if size > most {
            return Err(Error::DamagedManifest { why: "it is longer than any" });
        }
        let mut bytes = vec![0; size as usize];
        read_exact(&*file, 0, &mut bytes).map_err(told)?;
        Self::decode(&bytes).map(Some)
    }
}

fn encode_chunk(chunk: &ChunkInfo, bytes: &mut Vec<u8>) {
    bytes.extend(chunk.id.to_le_bytes());
    bytes.extend([chunk.kind as u8, 0, 0, 0, 0, 0, 0, 0]);
    let numbers = [chunk.first_offset, chunk.last_offset, chunk.record_count, chunk.file_bytes];
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(chunk.ts_min_us.to_le_bytes());
    bytes.extend(chunk.ts_max_us.to_le_bytes());
    bytes.extend(chunk.digest);
}

fn decode_chunk(bytes: &[u8; CHUNK_BYTES]) -> Option<ChunkInfo> {
    Some(ChunkInfo {
        id: u64_at(bytes, 0),
        kind: ChunkKind::from_byte(bytes[8])?,
        first_offset: u64_at(bytes, 16),
        last_offset: u64_at(bytes, 24),
        record_count: u64_at(bytes, 32),
        file_bytes: u64_at(bytes, 40),
        ts_min_us: u64_at(bytes, 48).cast_signed(),
        ts_max_us: u64_at(bytes, 56).cast_signed(),
        digest: *bytes.last_chunk()?,
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::{ChunkInfo, ChunkKind, Error, Manifest};

    fn chunk(id: u64, kind: ChunkKind, first_offset: u64, last_offset: u64) -> ChunkInfo {
        ChunkInfo {
            id,
            kind,
            first_offset,
            last_offset,
            record_count: last_offset - first_offset + 1,
            file_bytes: 1000 * id,
            ts_min_us: 5,
            ts_max_us: 6 + id.cast_signed(),
            digest: [id as u8; 32],
        }
    }

    fn sample() -> Manifest {
        let log = ChunkKind::Log;
        let chunks =
            vec![chunk(7, log, 10, 19), chunk(9, log, 20, 20), chunk(8, ChunkKind::Kept, 2, 5)];
        Manifest { earliest: 10, end: 21, chunks }
    }

    #[test]
    fn what_was_written_is_read() {
        for manifest in [sample(), Manifest::default()] {
            assert_eq!(Manifest::decode(&manifest.encode()).expect("our own"), manifest);
        }
    }

    // hardening: stored-lengths
    #[test]
    fn no_flipped_bit_and_no_missing_byte_goes_unseen() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn lists_that_contradict_themselves_are_refused() {
        let gap = Manifest { earliest: 9, ..sample() };
        let end = Manifest { end: 22, ..sample() };
        let mut overlap = sample();
        overlap.chunks.push(chunk(3, ChunkKind::Kept, 5, 6));
        for manifest in [gap, end, overlap] {
            let refused = Manifest::decode(&manifest.encode());
            assert!(matches!(refused, Err(Error::DamagedManifest { .. })), "{manifest:?}");
        }
    }
}
