//! The plain bytes inside records: entries, hard states, tables.

use bytes::Bytes;
use raft::eraftpb::{Entry, EntryType};

use crate::members::Members;

/// A body that does not parse although it is authentic: written by a fault of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyError(pub(crate) &'static str);

const CUT_SHORT: BodyError = BodyError("the body is cut short");

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Reads a body from its beginning.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BodyError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(CUT_SHORT)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, BodyError> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, BodyError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BodyError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BodyError> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn finish(self) -> Result<(), BodyError> {
        if self.rest.is_empty() { Ok(()) } else { Err(BodyError("bytes are left over")) }
    }
}

const TYPE_MASK: u8 = 0x03;
const WITH_CONTEXT: u8 = 0x04;

/// What one entry adds to a record.
pub(crate) fn entry_bytes(entry: &Entry) -> usize {
    let context = if entry.context.is_empty() { 0 } else { 4 + entry.context.len() };
    5 + context + entry.data.len()
}

/// Writes one entry; index and term stand in the record's head.
pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    let kind = match entry.entry_type {
        EntryType::EntryNormal => 0,
        EntryType::EntryConfChange => 1,
        EntryType::EntryConfChangeV2 => 2,
    };
    let flag = if entry.context.is_empty() { 0 } else { WITH_CONTEXT };
    out.push(kind | flag);
    if flag != 0 {
        put_u32(out, entry.context.len() as u32);
        out.extend_from_slice(&entry.context);
    }
    put_u32(out, entry.data.len() as u32);
    out.extend_from_slice(&entry.data);
}

/// Reads the entries of a record; payloads share its memory.
pub(crate) fn decode_entries(
    body: &Bytes,
    first_index: u64,
    term: u64,
    count: u16,
) -> Result<Vec<Entry>, BodyError> {
    // The commit index stands first; `note_record` reads it.
    let mut at = 0;
    cut(body, &mut at, 8)?;
    let mut entries = Vec::with_capacity(usize::from(count).min(body.len() / 5));
    for index in (first_index..).take(usize::from(count)) {
        let kind = cut(body, &mut at, 1)?[0];
        let mut entry = Entry { index, term, ..Entry::default() };
        entry.entry_type = match kind & TYPE_MASK {
            0 => EntryType::EntryNormal,
            1 => EntryType::EntryConfChange,
            2 => EntryType::EntryConfChangeV2,
            _ => return Err(BodyError("an entry of no known type")),
        };
        if kind & WITH_CONTEXT != 0 {
            entry.context = cut_counted(body, &mut at)?;
        }
        entry.data = cut_counted(body, &mut at)?;
        entries.push(entry);
    }
    if at == body.len() { Ok(entries) } else { Err(BodyError("bytes are left over")) }
}

fn cut(body: &Bytes, at: &mut usize, count: usize) -> Result<Bytes, BodyError> {
    let end = at.checked_add(count).filter(|&end| end <= body.len()).ok_or(CUT_SHORT)?;
    let piece = body.slice(*at..end);
    *at = end;
    Ok(piece)
}

fn cut_counted(body: &Bytes, at: &mut usize) -> Result<Bytes, BodyError> {
    let count = u32::from_le_bytes(cut(body, at, 4)?[..].try_into().expect("four bytes"));
    cut(body, at, count as usize)
}

/// What is known of a group apart from its entries: a row of the table in each segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GroupRow {
    pub(crate) key_domain: u32,
    pub(crate) term: u64,
    pub(crate) vote: u64,
    pub(crate) commit: u64,
    /// Entries up to here are covered by the checkpoint and may be gone.
    pub(crate) compacted_index: u64,
    pub(crate) compacted_term: u64,
    pub(crate) last_index: u64,
    pub(crate) last_term: u64,
    /// The newest checkpoint the log knows of; at or above what is compacted.
    pub(crate) checkpoint_index: u64,
    pub(crate) checkpoint_term: u64,
    /// The members as of that checkpoint, or as of the group's beginning.
    pub(crate) members: Members,
}

impl GroupRow {
    pub(crate) fn encode(&self, group: u64, out: &mut Vec<u8>) {
        put_u64(out, group);
        put_u32(out, self.key_domain);
        for value in [
            self.term,
            self.vote,
            self.commit,
            self.compacted_index,
            self.compacted_term,
            self.last_index,
            self.last_term,
            self.checkpoint_index,
            self.checkpoint_term,
        ] {
            put_u64(out, value);
        }
        self.members.encode(out);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<(u64, Self), BodyError> {
        let group = reader.u64()?;
        let row = Self {
            key_domain: reader.u32()?,
            term: reader.u64()?,
            vote: reader.u64()?,
            commit: reader.u64()?,
            compacted_index: reader.u64()?,
            compacted_term: reader.u64()?,
            last_index: reader.u64()?,
            last_term: reader.u64()?,
            checkpoint_index: reader.u64()?,
            checkpoint_term: reader.u64()?,
            members: Members::decode(reader)?,
        };
        Ok((group, row))
    }

    /// The log as a checkpoint leaves it: what it covers may go, what contradicts it is void.
    pub(crate) fn cover(&mut self, mark: &CheckpointMark) {
        self.checkpoint_index = mark.index;
        self.checkpoint_term = mark.term;
        self.members = mark.members.clone();
        self.compacted_index = mark.compacted_index;
        self.compacted_term = mark.compacted_term;
        // raft 0.7.0 refuses to start with more applied than committed.
        self.commit = self.commit.max(mark.index);
        self.term = self.term.max(mark.term);
        if self.last_index < mark.index {
            self.last_index = mark.index;
            self.last_term = mark.term;
        }
    }
}

/// The body of a `Checkpoint` record; index and term of the checkpoint stand in the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointMark {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) compacted_index: u64,
    pub(crate) compacted_term: u64,
    pub(crate) members: Members,
}

impl CheckpointMark {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_u64(out, self.compacted_index);
        put_u64(out, self.compacted_term);
        self.members.encode(out);
    }

    pub(crate) fn decode(body: &[u8], index: u64, term: u64) -> Result<Self, BodyError> {
        let mut reader = Reader::new(body);
        let mark = Self {
            index,
            term,
            compacted_index: reader.u64()?,
            compacted_term: reader.u64()?,
            members: Members::decode(&mut reader)?,
        };
        reader.finish()?;
        Ok(mark)
    }
}

/// Reads the vote out of a `HardState` record; the term stands in its head.
pub(crate) fn decode_hard_state(body: &[u8]) -> Result<(u64, u64), BodyError> {
    let mut reader = Reader::new(body);
    let vote = reader.u64()?;
    let commit = reader.u64()?;
    reader.finish()?;
    Ok((vote, commit))
}
