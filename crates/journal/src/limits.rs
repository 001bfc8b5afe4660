//! Every bound of the log, by name, and the relations that must hold between them.

/// The smallest piece of a disk that is assumed to be written whole or not at all, at best.
///
/// Batches start on such a boundary, so a byte that was ever durable never shares a sector with a
/// byte that is written later, and a torn sector can only hurt what was not yet acknowledged.
pub const SECTOR_BYTES: usize = 512;

/// The head of every segment file: two copies of the header, and room for later formats.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

/// What sealing a segment needs at its end; never given to records.
pub const TRAILER_BYTES: usize = 128;

/// Size of a segment file unless the options say otherwise.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// The smallest segment the options may ask for; tests use it to rotate often.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// The largest segment: scrubbing and recovery hold one in memory.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The largest payload of one entry, whatever the size of segments: a message of 16 MiB, and
/// what was gathered in front of it.
pub const ENTRY_BYTES_MAX: usize = 17 << 20;

/// A record of entries is closed once it holds this much; the next entry opens another.
pub const RECORD_BYTES_CLOSE: usize = 256 << 10;

/// Entries one record can count.
pub const RECORD_ENTRIES_MAX: usize = u16::MAX as usize;

/// Bytes of table one record holds; a group's row is far smaller.
pub const TABLE_BYTES_CLOSE: usize = 64 << 10;

/// Bytes that wait for the writer; beyond them staging answers that the journal is busy.
pub const STAGED_BYTES_MAX: usize = 64 << 20;

/// Bytes one group may have proposed and not yet committed.
pub const UNCOMMITTED_BYTES_MAX: u64 = 32 << 20;

/// Bytes one group may have committed and not yet handed to its machine.
pub const UNAPPLIED_BYTES_MAX: usize = 16 << 20;

/// Bytes of one message between replicas: 0 would mean one entry per message.
pub const REPLICATE_BYTES_MAX: u64 = 256 << 10;

/// Append messages in flight to one follower.
pub const REPLICATE_INFLIGHT_MAX: usize = 64;

/// Committed bytes one ready hands out at most.
pub const COMMITTED_BYTES_PER_READY_MAX: u64 = 1 << 20;

/// Applied entries a group of several voters keeps in memory for followers that lag.
pub const CACHE_BYTES_DEFAULT: usize = 8 << 20;

/// Groups one journal holds.
pub const GROUPS_MAX: usize = 65_536;

/// Voters, learners and so on in one configuration.
pub const MEMBERS_MAX: usize = 64;

/// One chunk of a checkpoint, before it is sealed.
pub const CHUNK_BYTES_MAX: usize = 4 << 20;

/// Chunks of one checkpoint.
pub const CHUNKS_MAX: usize = 65_536;

/// A manifest, in bytes; it lists every chunk.
pub const MANIFEST_BYTES_MAX: usize = 16 << 20;

/// Characters of a chunk's name or of a floor's.
pub const NAME_BYTES_MAX: usize = 200;

/// Checkpoints of one group that are kept: the newest and the one to fall back to.
pub const CHECKPOINTS_KEPT: usize = 2;

/// Zeroed files kept ready for the next segments.
pub const SPARES_MAX: usize = 2;

/// Bytes zeroed between two looks at whether the journal wants to stop.
pub const ZERO_STEP_BYTES: u64 = 1 << 20;

/// How long the writer waits for room on a full disk before it looks again.
pub const FULL_RETRY_MS: u64 = 200;

/// The longest delay `Durability::Group` may ask for (LOG-13).
pub const GROUP_DELAY_MS_MAX: u64 = 5;

/// The most bytes `Durability::Group` may leave unsynced (LOG-13).
pub const GROUP_BYTES_MAX: u64 = 4 << 20;

const _: () = assert!(SEGMENT_HEADER_BYTES.is_multiple_of(SECTOR_BYTES));
const _: () = assert!(TRAILER_BYTES <= SECTOR_BYTES);
const _: () = assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_DEFAULT);
const _: () = assert!(SEGMENT_BYTES_DEFAULT <= SEGMENT_BYTES_MAX);
const _: () = assert!(SEGMENT_BYTES_MAX <= u32::MAX as u64, "offsets inside a batch are u32");
const _: () = assert!(RECORD_BYTES_CLOSE < ENTRY_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_MAX < STAGED_BYTES_MAX);
const _: () = assert!(COMMITTED_BYTES_PER_READY_MAX < UNAPPLIED_BYTES_MAX as u64);
const _: () = assert!(CHECKPOINTS_KEPT >= 1);

/// When a record of entries is closed: large enough to be cheap, small enough to fit a segment.
pub fn record_bytes_close(segment_bytes: u64) -> usize {
    RECORD_BYTES_CLOSE.min(segment_bytes as usize / 8)
}

/// The largest entry that fits into segments of the given size, with room for a batch around it.
pub fn entry_bytes_max(segment_bytes: u64) -> usize {
    ENTRY_BYTES_MAX.min(segment_bytes as usize / 4)
}
