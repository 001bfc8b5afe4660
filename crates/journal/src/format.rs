//! The bytes of segment headers, record headers and trailers; `docs/internals/wal-format.md`.
//!
//! Integers are little-endian. Nothing here decides anything: what a wrong field means is the
//! reader's business.

use crate::crypto::{EpochKeys, KEY_ID_BYTES, MAC_BYTES, SALT_BYTES, TAG_BYTES, same};
use crate::limits::TRAILER_BYTES;

/// The format this program writes, and the newest it reads.
pub const WAL_FORMAT: u32 = 1;

/// One copy of the segment header.
pub(crate) const HEADER_BYTES: usize = 256;
/// Where the second copy stands, in sectors of its own.
pub(crate) const HEADER_COPY_AT: usize = 2048;
/// The head of a record.
pub(crate) const RECORD_HEAD_BYTES: usize = 56;
/// What a record costs beyond its plain bytes.
pub(crate) const RECORD_OVERHEAD: usize = RECORD_HEAD_BYTES + TAG_BYTES;
/// The plain bytes of a `Durable` record.
pub(crate) const DURABLE_BODY_BYTES: usize = 24;
/// The record every batch opens with.
pub(crate) const BATCH_HEAD_BYTES: usize = RECORD_OVERHEAD + DURABLE_BODY_BYTES;

const HEADER_MAGIC: &[u8; 8] = b"QMQWAL\r\n";
const TRAILER_MAGIC: &[u8; 8] = b"QMQSEAL\n";
const HEADER_MAC_AT: usize = 192;
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecordKind {
    /// Entries of one group and one term, contiguous; they replace what had their indexes.
    Entries = 1,
    /// Term and vote of a group.
    HardState = 2,
    /// Everything after an index is void; the log of the group ends there.
    Truncate = 3,
    /// A checkpoint covers a group's entries up to an index.
    Checkpoint = 4,
    /// A group begins.
    GroupCreate = 5,
    /// A group ends.
    GroupDestroy = 6,
    /// The head of a batch: what was durable before it. It is the durability ledger.
    Durable = 7,
    /// Nothing; a place in the stream.
    Barrier = 8,
    /// The state of groups when the segment began.
    Table = 9,
}

impl RecordKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Entries,
            2 => Self::HardState,
            3 => Self::Truncate,
            4 => Self::Checkpoint,
            5 => Self::GroupCreate,
            6 => Self::GroupDestroy,
            7 => Self::Durable,
            8 => Self::Barrier,
            9 => Self::Table,
            _ => return None,
        })
    }

    /// Whether the record was staged by somebody and therefore has a number of its own.
    pub(crate) fn is_numbered(self) -> bool {
        !matches!(self, Self::Durable | Self::Table)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What a segment says about itself and about the one before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) node_id: u64,
    pub(crate) sequence: u64,
    pub(crate) salt: [u8; SALT_BYTES],
    /// Number of the first record that may stand here; all before it were durable.
    pub(crate) first_lsn: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) alignment: u32,
    pub(crate) key_epoch: u32,
    pub(crate) key_id: [u8; KEY_ID_BYTES],
    /// The segment before this one as it counts, whether or not it has a trailer.
    pub(crate) previous: Option<Sealed>,
}

/// How a segment ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) sequence: u64,
    /// Records that count, of every kind.
    pub(crate) records: u32,
    /// Where the last of them ends.
    pub(crate) end: u64,
    pub(crate) mac: [u8; MAC_BYTES],
}

/// Why a header cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// It does not check out.
    Damaged(&'static str),
    /// It is of a later format.
    Newer(u32),
}

impl SegmentHeader {
    /// The bytes of one copy, with MAC and checksum.
    pub(crate) fn encode(&self, keys: &EpochKeys) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(HEADER_MAGIC);
        bytes[8..12].copy_from_slice(&WAL_FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.alignment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.node_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.salt);
        bytes[48..56].copy_from_slice(&self.first_lsn.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.key_epoch.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.key_id);
        if let Some(previous) = &self.previous {
            bytes[80..88].copy_from_slice(&previous.sequence.to_le_bytes());
            bytes[88..92].copy_from_slice(&previous.records.to_le_bytes());
            bytes[92] = 1;
            bytes[96..104].copy_from_slice(&previous.end.to_le_bytes());
            bytes[104..136].copy_from_slice(&previous.mac);
        }
        let mac = keys.mac_of(&bytes[..HEADER_MAC_AT]);
        bytes[HEADER_MAC_AT..HEADER_MAC_AT + MAC_BYTES].copy_from_slice(&mac);
        let crc = crc32c::crc32c(&bytes[..HEADER_CRC_AT]);
        bytes[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header without trusting it: the MAC is checked by `is_authentic`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if bytes.len() < HEADER_BYTES || &bytes[..8] != HEADER_MAGIC {
            return Err(HeaderError::Damaged("no segment header"));
        }
        let format = u32_at(bytes, 8);
        if crc32c::crc32c(&bytes[..HEADER_CRC_AT]) != u32_at(bytes, HEADER_CRC_AT) {
            return Err(HeaderError::Damaged("the header's checksum does not match"));
        }
        if format > WAL_FORMAT {
            return Err(HeaderError::Newer(format));
        }
        let previous = (bytes[92] == 1).then(|| Sealed {
            sequence: u64_at(bytes, 80),
            records: u32_at(bytes, 88),
            end: u64_at(bytes, 96),
            mac: bytes[104..136].try_into().expect("32 bytes"),
        });
        Ok(Self {
            alignment: u32_at(bytes, 12),
            node_id: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            salt: bytes[32..48].try_into().expect("16 bytes"),
            first_lsn: u64_at(bytes, 48),
            segment_bytes: u64_at(bytes, 56),
            key_epoch: u32_at(bytes, 64),
            key_id: bytes[72..80].try_into().expect("8 bytes"),
            previous,
        })
    }

    /// Whether these bytes, decoded before, were written under the key.
    pub(crate) fn is_authentic(bytes: &[u8], keys: &EpochKeys) -> bool {
        let claimed = &bytes[HEADER_MAC_AT..HEADER_MAC_AT + MAC_BYTES];
        same(&keys.mac_of(&bytes[..HEADER_MAC_AT]), claimed)
    }
}

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    /// Bytes of the body, without the tag.
    pub(crate) length: u32,
    pub(crate) kind: RecordKind,
    pub(crate) count: u16,
    pub(crate) key_epoch: u32,
    pub(crate) key_domain: u32,
    pub(crate) group: u64,
    pub(crate) first_index: u64,
    pub(crate) term: u64,
    pub(crate) lsn: u64,
    /// Which record of the segment this is; the nonce.
    pub(crate) counter: u32,
}

impl RecordHead {
    pub(crate) fn encode(&self, crc_seed: u32) -> [u8; RECORD_HEAD_BYTES] {
        let mut bytes = [0; RECORD_HEAD_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[6..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key_epoch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.key_domain.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.group.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_index.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.term.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.counter.to_le_bytes());
        let crc = crc32c::crc32c_append(crc_seed, &bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a head whose checksum, seeded with the segment's salt, matches.
    pub(crate) fn decode(bytes: &[u8], crc_seed: u32) -> Option<Self> {
        if bytes.len() < RECORD_HEAD_BYTES
            || crc32c::crc32c_append(crc_seed, &bytes[..52]) != u32_at(bytes, 52)
        {
            return None;
        }
        Some(Self {
            length: u32_at(bytes, 0),
            kind: RecordKind::from_byte(bytes[4]).filter(|_| bytes[5] == 0)?,
            count: u16_at(bytes, 6),
            key_epoch: u32_at(bytes, 8),
            key_domain: u32_at(bytes, 12),
            group: u64_at(bytes, 16),
            first_index: u64_at(bytes, 24),
            term: u64_at(bytes, 32),
            lsn: u64_at(bytes, 40),
            counter: u32_at(bytes, 48),
        })
    }

    /// Bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> usize {
        RECORD_OVERHEAD + self.length as usize
    }
}

/// The seed of the checksums of a segment's records.
pub(crate) fn crc_seed(salt: &[u8; SALT_BYTES], sequence: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(salt), &sequence.to_le_bytes())
}

/// The body of a `Durable` record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchMark {
    /// Every record up to this one was on the disk before the batch was written.
    pub(crate) durable_lsn: u64,
    /// Bytes from the start of this record to the end of the batch's last.
    pub(crate) bytes: u32,
    /// Records that follow.
    pub(crate) records: u32,
}

impl BatchMark {
    pub(crate) fn encode(self) -> [u8; DURABLE_BODY_BYTES] {
        let mut bytes = [0; DURABLE_BODY_BYTES];
        bytes[..8].copy_from_slice(&self.durable_lsn.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.records.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == DURABLE_BODY_BYTES).then(|| Self {
            durable_lsn: u64_at(bytes, 0),
            bytes: u32_at(bytes, 8),
            records: u32_at(bytes, 12),
        })
    }
}

/// The end of a sealed segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) first_lsn: u64,
    pub(crate) last_lsn: u64,
    pub(crate) sealed: Sealed,
}

impl Trailer {
    pub(crate) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(TRAILER_MAGIC);
        bytes[8..16].copy_from_slice(&self.first_lsn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.last_lsn.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sealed.sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sealed.records.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.sealed.end.to_le_bytes());
        bytes[48..80].copy_from_slice(&self.sealed.mac);
        let crc = crc32c::crc32c(&bytes[..TRAILER_BYTES - 4]);
        bytes[TRAILER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < TRAILER_BYTES
            || &bytes[..8] != TRAILER_MAGIC
            || crc32c::crc32c(&bytes[..TRAILER_BYTES - 4]) != u32_at(bytes, TRAILER_BYTES - 4)
        {
            return None;
        }
        Some(Self {
            first_lsn: u64_at(bytes, 8),
            last_lsn: u64_at(bytes, 16),
            sealed: Sealed {
                sequence: u64_at(bytes, 24),
                records: u32_at(bytes, 32),
                end: u64_at(bytes, 40),
                mac: bytes[48..80].try_into().expect("32 bytes"),
            },
        })
    }
}

/// The next place a batch may start at.
pub(crate) fn align(offset: u64, alignment: u32) -> u64 {
    offset.next_multiple_of(u64::from(alignment))
}
