//! A chunk: a row of sealed blocks in one file, written once and never changed.
//!
//! ```text
//! chunk   = head | block * | footer | trailer
//! head    = magic[8] | format u16 | kind u8 | zero u8 | partition u32 | chunk u64
//!         | key epoch u32 | zero u32 | salt[16] | zero[16]                            64 bytes
//! block   = header | sealed body | tag[16]
//! header  = mark u32 | number u32 | body length u32 | rows u32 | first offset u64
//!         | last offset u64 | earliest ts i64 | latest ts i64 | zero[16]              64 bytes
//! footer  = header (number 0xFFFF_FFFF) | sealed index | tag[16]
//! index   = per block: position u64 | its header | tag[16]
//! trailer = position of the footer u64 | its length u64 | magic[8] | zero[8]          32 bytes
//! digest  = SHA-256(head ‖ footer ‖ trailer)
//! ```
//!
//! - The file is written under another name, synced, renamed, and its directory synced. A file with
//!   a chunk's name is therefore whole, unless the disk has lost something.
//! - The footer is all that opening reads. It is authenticated and holds the tag of every block,
//!   so the digest speaks for every byte of the file, though only the footer is hashed.
//! - The header in front of a block repeats what the footer says. Reading compares the two; a tool
//!   can walk the blocks of a file whose footer was lost.
//! - Tenant and partition are checked by the seal: a chunk of another log does not open.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_buffer::{Buffer, MutableBuffer};
use aws_lc_rs::digest::{Context, SHA256};

use crate::block::{Block, Identity};
use crate::disk::{Disk, File, read_exact, write_whole};
use crate::error::{Error, Result};
use crate::limits::{BODY_BYTES_MAX, CHUNK_BLOCKS_MAX};
use crate::seal::{ChunkSeal, FOOTER_NUMBER, Keys, SALT_BYTES, TAG_BYTES, Tag};

const MAGIC: [u8; 8] = *b"QMQchunk";
const END_MAGIC: [u8; 8] = *b"QMQc-end";
const MARK: u32 = 0x4B4C_4251;
pub(crate) const FORMAT: u16 = 1;
pub(crate) const HEAD_BYTES: usize = 64;
pub(crate) const HEADER_BYTES: usize = 64;
const TRAILER_BYTES: usize = 32;
const INDEX_ENTRY_BYTES: usize = 8 + HEADER_BYTES + TAG_BYTES;
/// What is gathered before it is written.
const WRITE_BYTES: usize = 1024 * 1024;

/// What a chunk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChunkKind {
    /// A stretch of the log, every offset of it.
    Log = 1,
    /// Rows that retention spared because something refers to them.
    Kept = 2,
}

impl ChunkKind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Log),
            2 => Some(Self::Kept),
            _ => None,
        }
    }
}

/// What a checkpoint says about a chunk, and all it needs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Its number, which is also its name.
    pub id: u64,
    /// What it is for.
    pub kind: ChunkKind,
    /// Its first offset.
    pub first_offset: u64,
    /// Its last offset; all between are there if it is of the log.
    pub last_offset: u64,
    /// How many records it has.
    pub record_count: u64,
    /// How long its file is.
    pub file_bytes: u64,
    /// The earliest time in it.
    pub ts_min_us: i64,
    /// The latest.
    pub ts_max_us: i64,
    /// SHA-256 over head, footer and trailer; see the head of `chunk.rs`.
    pub digest: [u8; 32],
}

impl ChunkInfo {
    /// The offsets it spans.
    pub fn offsets(&self) -> RangeInclusive<u64> {
        self.first_offset..=self.last_offset
    }

    fn damaged(&self, why: &'static str) -> Error {
        Error::DamagedChunk {
            chunk: self.id,
            first: self.first_offset,
            last: self.last_offset,
            why,
        }
    }
}

/// The name of a chunk's file.
pub(crate) fn file_name(id: u64) -> String {
    format!("{id:016x}.chunk")
}

/// The number in a chunk's file name.
pub(crate) fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".chunk")?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// The name of a chunk that is being written; found at start, it is removed.
pub(crate) fn unfinished_name(id: u64) -> String {
    format!("{id:016x}.new")
}

pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(".new").is_some_and(|id| id_of(&format!("{id}.chunk")).is_some())
}

/// One block, as the footer knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockEntry {
    position: u64,
    number: u32,
    body_bytes: u32,
    rows: u32,
    pub(crate) first_offset: u64,
    pub(crate) last_offset: u64,
    ts_min_us: i64,
    pub(crate) ts_max_us: i64,
    tag: Tag,
}

impl BlockEntry {
    fn of(block: &Block, number: u32, position: u64) -> Self {
        Self {
            position,
            number,
            body_bytes: block.body().len() as u32,
            rows: block.rows as u32,
            first_offset: block.first_offset,
            last_offset: block.last_offset,
            ts_min_us: block.ts_min_us,
            ts_max_us: block.ts_max_us,
            tag: [0; TAG_BYTES],
        }
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[0..4].copy_from_slice(&MARK.to_le_bytes());
        header[4..8].copy_from_slice(&self.number.to_le_bytes());
        header[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        header[12..16].copy_from_slice(&self.rows.to_le_bytes());
        header[16..24].copy_from_slice(&self.first_offset.to_le_bytes());
        header[24..32].copy_from_slice(&self.last_offset.to_le_bytes());
        header[32..40].copy_from_slice(&self.ts_min_us.to_le_bytes());
        header[40..48].copy_from_slice(&self.ts_max_us.to_le_bytes());
        header
    }

    fn parse(entry: &[u8; INDEX_ENTRY_BYTES]) -> Self {
        let (position, rest) = entry.split_at(8);
        let (header, tag) = rest.split_at(HEADER_BYTES);
        Self {
            position: u64_at(position, 0),
            number: u32_at(header, 4),
            body_bytes: u32_at(header, 8),
            rows: u32_at(header, 12),
            first_offset: u64_at(header, 16),
            last_offset: u64_at(header, 24),
            ts_min_us: u64_at(header, 32).cast_signed(),
            ts_max_us: u64_at(header, 40).cast_signed(),
            tag: tag.try_into().expect("what is left of an entry is its tag"),
        }
    }

    /// The bytes it takes in the file.
    fn file_bytes(&self) -> u64 {
        (HEADER_BYTES + TAG_BYTES) as u64 + u64::from(self.body_bytes)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Where chunks live and how they are sealed: what a job on another thread needs to write one.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: Arc<str>,
    pub(crate) identity: Identity,
    pub(crate) keys: Keys,
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Makes the names of finished chunks durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.disk
            .sync_dir(&self.directory)
            .map_err(|source| Error::disk("sync the directory", &*self.directory, source))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Place")
            .field("directory", &self.directory)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Writes one chunk.
pub(crate) struct ChunkWriter<'a> {
    place: &'a Place,
    file: Box<dyn File>,
    name: String,
    head: [u8; HEAD_BYTES],
    seal: ChunkSeal,
    info: ChunkInfo,
    index: Vec<BlockEntry>,
    gathered: Vec<u8>,
    written: u64,
}

impl<'a> ChunkWriter<'a> {
    pub(crate) fn create(place: &'a Place, id: u64, kind: ChunkKind) -> Result<Self> {
        let epoch = place.keys.newest_epoch();
        let salt = place.keys.new_salt()?;
        let seal = place.keys.seal(&place.identity, id, epoch, &salt)?;
        let head = head(kind, place.identity.partition, id, epoch, &salt);
        let name = place.path(&unfinished_name(id));
        let file =
            place.disk.create(&name).map_err(|source| Error::disk("create", &name, source))?;
        let info = ChunkInfo {
            id,
            kind,
            first_offset: 0,
            last_offset: 0,
            record_count: 0,
            file_bytes: 0,
            ts_min_us: i64::MAX,
            ts_max_us: i64::MIN,
            digest: [0; 32],
        };
        let gathered = head.to_vec();
        Ok(Self { place, file, name, head, seal, info, index: Vec::new(), gathered, written: 0 })
    }

    /// Bytes so far.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    pub(crate) fn block_count(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn push(&mut self, block: &Block) -> Result<()> {
        assert!(self.index.len() < CHUNK_BLOCKS_MAX, "the writer of chunks counts its blocks");
        let mut entry = BlockEntry::of(block, self.index.len() as u32, self.file_bytes());
        entry.tag = self.push_sealed(entry.number, &entry.header(), block.body());
        if self.index.is_empty() {
            self.info.first_offset = entry.first_offset;
        }
        self.info.last_offset = entry.last_offset;
        self.info.record_count += u64::from(entry.rows);
        self.info.ts_min_us = self.info.ts_min_us.min(entry.ts_min_us);
        self.info.ts_max_us = self.info.ts_max_us.max(entry.ts_max_us);
        self.index.push(entry);
        if self.gathered.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn push_sealed(&mut self, number: u32, header: &[u8], body: &[u8]) -> Tag {
        self.gathered.extend_from_slice(header);
        let from = self.gathered.len();
        self.gathered.extend_from_slice(body);
        let tag = self.seal.seal(number, header, &mut self.gathered[from..]);
        self.gathered.extend_from_slice(&tag);
        tag
    }

    fn flush(&mut self) -> Result<()> {
        write_whole(&*self.file, self.written, &self.gathered)
            .map_err(|source| Error::disk("write", &self.name, source))?;
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }

    /// Writes the footer, syncs, gives the file its name. Durable once the place is synced too.
    pub(crate) fn finish(mut self) -> Result<Chunk> {
        assert!(!self.index.is_empty(), "no chunk is empty");
        let position = self.file_bytes();
        let index = encode_index(&self.index);
        let mut entry = self.index[0];
        entry.number = FOOTER_NUMBER;
        entry.body_bytes = index.len() as u32;
        entry.rows = self.index.len() as u32;
        entry.last_offset = self.info.last_offset;
        (entry.ts_min_us, entry.ts_max_us) = (self.info.ts_min_us, self.info.ts_max_us);
        let from = self.gathered.len();
        self.push_sealed(FOOTER_NUMBER, &entry.header(), &index);
        let length = (self.gathered.len() - from) as u64;
        self.gathered.extend(trailer(position, length));
        self.info.digest = digest(&self.head, &self.gathered[from..]);
        self.info.file_bytes = self.file_bytes();
        self.flush()?;
        self.file.sync_data().map_err(|source| Error::disk("sync", &self.name, source))?;
        let name = self.place.path(&file_name(self.info.id));
        self.place
            .disk
            .rename(&self.name, &name)
            .map_err(|source| Error::disk("rename", &self.name, source))?;
        Ok(Chunk { info: self.info, index: self.index, seal: self.seal, path: name })
    }
}

fn head(
    kind: ChunkKind,
    partition: u32,
    id: u64,
    epoch: u32,
    salt: &[u8; SALT_BYTES],
) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0..8].copy_from_slice(&MAGIC);
    head[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    head[10] = kind as u8;
    head[12..16].copy_from_slice(&partition.to_le_bytes());
    head[16..24].copy_from_slice(&id.to_le_bytes());
    head[24..28].copy_from_slice(&epoch.to_le_bytes());
    head[32..48].copy_from_slice(salt);
    head
}

fn trailer(position: u64, length: u64) -> [u8; TRAILER_BYTES] {
    let mut trailer = [0; TRAILER_BYTES];
    trailer[0..8].copy_from_slice(&position.to_le_bytes());
    trailer[8..16].copy_from_slice(&length.to_le_bytes());
    trailer[16..24].copy_from_slice(&END_MAGIC);
    trailer
}

fn encode_index(index: &[BlockEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(index.len() * INDEX_ENTRY_BYTES);
    for entry in index {
        bytes.extend(entry.position.to_le_bytes());
        bytes.extend(entry.header());
        bytes.extend(entry.tag);
    }
    bytes
}

fn digest(head: &[u8], footer_and_trailer: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(head);
    context.update(footer_and_trailer);
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A chunk that can be read: its footer in memory, its blocks on disk.
pub(crate) struct Chunk {
    pub(crate) info: ChunkInfo,
    pub(crate) index: Vec<BlockEntry>,
    seal: ChunkSeal,
    pub(crate) path: String,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Chunk").field("info", &self.info).finish_non_exhaustive()
    }
}

/// What a file says it is, before anything of it is believed.
struct Outline {
    kind: ChunkKind,
    partition: u32,
    id: u64,
    epoch: u32,
    salt: [u8; SALT_BYTES],
    footer: Vec<u8>,
    footer_position: u64,
    digest: [u8; 32],
    file_bytes: u64,
}

/// Why a file is no chunk of ours.
#[derive(Debug)]
pub(crate) enum OpenFault {
    Damaged(&'static str),
    Other(Error),
}

impl From<Error> for OpenFault {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Chunk {
    /// Opens a chunk that is on the list; it must be exactly what the list says.
    pub(crate) fn open_listed(place: &Place, listed: &ChunkInfo) -> Result<Self> {
        let chunk = Self::open(place, listed.id).map_err(|fault| match fault {
            OpenFault::Damaged(why) => listed.damaged(why),
            OpenFault::Other(error) => error,
        })?;
        if chunk.info.digest != listed.digest {
            return Err(listed.damaged("its digest is not the one on the list"));
        }
        if chunk.info != *listed {
            return Err(listed.damaged("the list describes another chunk"));
        }
        Ok(chunk)
    }

    /// Opens whatever has the name of chunk `id`.
    pub(crate) fn open(place: &Place, id: u64) -> std::result::Result<Self, OpenFault> {
        let path = place.path(&file_name(id));
        let outline = read_outline(place, &path)?;
        if outline.id != id || outline.partition != place.identity.partition {
            return Err(OpenFault::Damaged("it calls itself something else"));
        }
        let seal = place.keys.seal(&place.identity, id, outline.epoch, &outline.salt)?;
        let index = open_footer(&outline, &seal)?;
        let (Some(first), Some(last)) = (index.first(), index.last()) else {
            return Err(OpenFault::Damaged("its footer names no block"));
        };
        let info = ChunkInfo {
            id,
            kind: outline.kind,
            first_offset: first.first_offset,
            last_offset: last.last_offset,
            record_count: index.iter().map(|entry| u64::from(entry.rows)).sum(),
            file_bytes: outline.file_bytes,
            ts_min_us: index.iter().map(|entry| entry.ts_min_us).min().unwrap_or(0),
            ts_max_us: index.iter().map(|entry| entry.ts_max_us).max().unwrap_or(0),
            digest: outline.digest,
        };
        check_index(&info, &index, outline.footer_position).map_err(OpenFault::Damaged)?;
        Ok(Self { info, index, seal, path })
    }

    /// The block that holds `offset`, or the first after it.
    pub(crate) fn block_from(&self, offset: u64) -> usize {
        self.index.partition_point(|entry| entry.last_offset < offset)
    }

    /// Reads and opens one block.
    pub(crate) fn read_block(&self, file: &dyn File, number: usize) -> Result<Block> {
        let entry = &self.index[number];
        let damaged = || Error::DamagedBlock {
            chunk: self.info.id,
            first: entry.first_offset,
            last: entry.last_offset,
        };
        let mut bytes = MutableBuffer::from_len_zeroed(entry.file_bytes() as usize);
        read_exact(file, entry.position, bytes.as_slice_mut()).map_err(|source| {
            if source.kind() == std::io::ErrorKind::UnexpectedEof {
                damaged()
            } else {
                Error::disk("read", &self.path, source)
            }
        })?;
        let (header, body_and_tag) = bytes.as_slice_mut().split_at_mut(HEADER_BYTES);
        let body_bytes = entry.body_bytes as usize;
        // What the footer says is authenticated; what stands in front of the block is not.
        if *header != entry.header() || body_and_tag[body_bytes..] != entry.tag {
            return Err(damaged());
        }
        if !self.seal.open(entry.number, header, body_and_tag) {
            return Err(damaged());
        }
        let body = Buffer::from(bytes).slice_with_length(HEADER_BYTES, body_bytes);
        let block = Block::parse(body).map_err(|_| damaged())?;
        let as_said = block.rows == entry.rows as usize
            && block.first_offset == entry.first_offset
            && block.last_offset == entry.last_offset;
        if as_said { Ok(block) } else { Err(damaged()) }
    }
}

fn read_outline(place: &Place, path: &str) -> std::result::Result<Outline, OpenFault> {
    use OpenFault::Damaged;
    let told = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => Damaged("its file is missing"),
        std::io::ErrorKind::UnexpectedEof => Damaged("its file is cut off"),
        _ => OpenFault::Other(Error::disk("read", path.to_owned(), source)),
    };
    let file = place.disk.open(path).map_err(told)?;
    let file_bytes = file.length().map_err(told)?;
    if file_bytes < (HEAD_BYTES + TRAILER_BYTES) as u64 {
        return Err(Damaged("its file is cut off"));
    }
    let mut head = [0; HEAD_BYTES];
    read_exact(&*file, 0, &mut head).map_err(told)?;
    if head[0..8] != MAGIC {
        return Err(Damaged("its file is no chunk"));
    }
    let format = u16::from_le_bytes([head[8], head[9]]);
    if format > FORMAT {
        let name = path.to_owned();
        return Err(OpenFault::Other(Error::NewerFormat { name, format, known: FORMAT }));
    }
    let kind = ChunkKind::from_byte(head[10]).ok_or(Damaged("it is of no kind"))?;
    let mut end = [0; TRAILER_BYTES];
    let end_position = file_bytes - TRAILER_BYTES as u64;
    read_exact(&*file, end_position, &mut end).map_err(told)?;
    let (footer_position, length) = (u64_at(&end, 0), u64_at(&end, 8));
    let most = (HEADER_BYTES + TAG_BYTES + CHUNK_BLOCKS_MAX * INDEX_ENTRY_BYTES) as u64;
    let joins = footer_position.checked_add(length) == Some(end_position);
    if end[16..24] != END_MAGIC || !joins || length > most || footer_position < HEAD_BYTES as u64 {
        return Err(Damaged("its trailer does not fit its file"));
    }
    let mut footer = vec![0; length as usize + TRAILER_BYTES];
    read_exact(&*file, footer_position, &mut footer).map_err(told)?;
    let digest = digest(&head, &footer);
    footer.truncate(length as usize);
    Ok(Outline {
        kind,
        partition: u32_at(&head, 12),
        id: u64_at(&head, 16),
        epoch: u32_at(&head, 24),
        salt: head[32..48].try_into().expect("sixteen bytes"),
        footer,
        footer_position,
        digest,
        file_bytes,
    })
}

fn open_footer(
    outline: &Outline,
    seal: &ChunkSeal,
) -> std::result::Result<Vec<BlockEntry>, OpenFault> {
    use OpenFault::Damaged;
    let mut footer = outline.footer.clone();
    if footer.len() < HEADER_BYTES + TAG_BYTES {
        return Err(Damaged("its footer is cut off"));
    }
    let (header, sealed) = footer.split_at_mut(HEADER_BYTES);
    if !seal.open(FOOTER_NUMBER, header, sealed) {
        return Err(Damaged("its footer does not open"));
    }
    let index = &sealed[..sealed.len() - TAG_BYTES];
    let (entries, rest) = index.as_chunks::<INDEX_ENTRY_BYTES>();
    if !rest.is_empty() {
        return Err(Damaged("its footer ends within an entry"));
    }
    Ok(entries.iter().map(BlockEntry::parse).collect())
}

/// The blocks lie one behind the other, in order, and fill the file.
fn check_index(
    info: &ChunkInfo,
    index: &[BlockEntry],
    footer_position: u64,
) -> std::result::Result<(), &'static str> {
    let mut position = HEAD_BYTES as u64;
    let mut next_offset = info.first_offset;
    for (number, entry) in index.iter().enumerate() {
        let in_order = entry.number as usize == number && entry.position == position;
        let dense = info.kind == ChunkKind::Kept || entry.first_offset == next_offset;
        let rising = entry.first_offset >= next_offset && entry.last_offset >= entry.first_offset;
        let span =
            (entry.last_offset - entry.first_offset.min(entry.last_offset)).saturating_add(1);
        let rows_fit = if info.kind == ChunkKind::Log {
            span == u64::from(entry.rows)
        } else {
            span >= u64::from(entry.rows)
        };
        if !in_order || !dense || !rising || !rows_fit || entry.body_bytes as usize > BODY_BYTES_MAX
        {
            return Err("its footer contradicts itself");
        }
        position += entry.file_bytes();
        next_offset = entry.last_offset.saturating_add(1);
    }
    if position == footer_position { Ok(()) } else { Err("its blocks do not fill its file") }
}
