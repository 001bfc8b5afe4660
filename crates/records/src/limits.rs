//! Every bound of the message log, by name, with the relations between them.

/// A block on disk, header and tag included; one larger record gets a block of its own.
pub const BLOCK_BYTES_MAX: usize = 128 * 1024;
/// Rows of one block. What a block unfolds to when read is bounded by this and by its own size.
pub const BLOCK_ROWS_MAX: usize = 4096;
/// A payload: as much as fits into the largest packet a node with a log takes, 16 MiB of payload
/// (X-46, WIRE-08) and 128 KiB for all else. What is committed must fit, or the node stops.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024 + 128 * 1024;
/// Everything of one record that varies in length, payload included. The worst that fits into the
/// largest packet is empty user properties: five bytes on the wire, and eight here.
pub const RECORD_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 5 * 8 + 1024 * 1024;
/// The body of a block, whatever its file says; nothing larger is allocated.
pub const BODY_BYTES_MAX: usize = RECORD_BYTES_MAX + BLOCK_BYTES_MAX;
/// The tail becomes a chunk once it is this large.
pub const CHUNK_BYTES_DEFAULT: u64 = 8 * 1024 * 1024;
/// Merging makes no chunk larger than this.
pub const MERGED_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
/// Neighbours of alike size that are merged at once.
pub const MERGE_FAN_IN: usize = 4;
/// Blocks of one chunk; bounds what a footer may claim.
pub const CHUNK_BLOCKS_MAX: usize = 64 * 1024;
/// Chunks of one partition; bounds what a manifest may claim.
pub const CHUNKS_MAX: usize = 1024 * 1024;
/// Tail in memory that is not durable as a chunk yet. At this the owner stops proposing until a
/// chunk was sealed ([`crate::RecordLog::is_tail_full`]); what is committed already still fits.
pub const TAIL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Opened blocks kept in memory for readers by offset, per log.
pub const CACHE_BYTES_DEFAULT: usize = 32 * 1024 * 1024;
/// Chunk files of one log that are open at once.
pub const FILES_OPEN_MAX: usize = 64;
/// Named holds of one log; one more is refused.
pub const HOLDS_MAX: usize = 256;
/// Requests waiting for the reader threads; one more is refused and the caller waits.
pub const POOL_REQUESTS_MAX: usize = 4096;
/// Bytes of answers that reader threads may have handed out and nobody has dropped yet.
pub const POOL_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// Requests for one log that a reader thread serves in one sweep over its blocks.
pub const POOL_SWEEP_MAX: usize = 64;
/// Offsets of one point request.
pub const POINTS_MAX: usize = 4096;

// A block of one ordinary record must never need more than a block.
const _: () = assert!(BODY_BYTES_MAX <= u32::MAX as usize / 2);
const _: () = assert!(PAYLOAD_BYTES_MAX < RECORD_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_DEFAULT < TAIL_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_DEFAULT <= MERGED_BYTES_DEFAULT);
// A chunk of full blocks must be describable by its footer.
const _: () = assert!(MERGED_BYTES_DEFAULT as usize / BLOCK_BYTES_MAX * 4 <= CHUNK_BLOCKS_MAX);
