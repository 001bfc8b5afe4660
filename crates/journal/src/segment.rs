//! The segment that is being written.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use aws_lc_rs::hmac;

use crate::crypto::{EpochKeys, Sealer, TAG_BYTES, finish_mac};
use crate::disk::{File, write_whole};
use crate::error::JournalError;
use crate::format::{
    BATCH_HEAD_BYTES, BatchMark, DURABLE_BODY_BYTES, HEADER_COPY_AT, RECORD_HEAD_BYTES,
    RECORD_OVERHEAD, RecordHead, RecordKind, Sealed, SegmentHeader, Trailer, align, crc_seed,
};
use crate::limits::{SEGMENT_HEADER_BYTES, TRAILER_BYTES};

/// The directory of segments.
pub(crate) const WAL_DIR: &str = "wal";

pub(crate) fn segment_path(sequence: u64) -> String {
    format!("{WAL_DIR}/{sequence:016x}.seg")
}

pub(crate) fn spare_path(number: u64) -> String {
    format!("{WAL_DIR}/{number:016x}.spare")
}

/// The sequence number in a segment's file name.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Records laid out one after another, each with room for its head and tag.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) bytes: Vec<u8>,
    pub(crate) heads: Vec<Placed>,
}

/// Where a record stands in the buffer, and its head but for the counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) at: usize,
    pub(crate) head: RecordHead,
}

impl Records {
    /// Adds a record; `write` appends its plain body.
    pub(crate) fn push(&mut self, mut head: RecordHead, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.bytes.len();
        self.bytes.resize(at + RECORD_HEAD_BYTES, 0);
        write(&mut self.bytes);
        head.length = (self.bytes.len() - at - RECORD_HEAD_BYTES) as u32;
        self.bytes.resize(self.bytes.len() + TAG_BYTES, 0);
        self.heads.push(Placed { at, head });
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.heads.clear();
    }
}

/// A record's head before the segment and its counter are known.
pub(crate) fn head(kind: RecordKind, group: u64, lsn: u64) -> RecordHead {
    RecordHead {
        length: 0,
        kind,
        count: 0,
        key_epoch: 0,
        key_domain: 0,
        group,
        first_index: 0,
        term: 0,
        lsn,
        counter: 0,
    }
}

/// An open segment: where it stands, and the running MAC.
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    pub(crate) path: String,
    file: Box<dyn File>,
    keys: Arc<EpochKeys>,
    sealers: BTreeMap<u32, Sealer>,
    seed: u32,
    offset: u64,
    end: u64,
    counter: u32,
    mac: hmac::Context,
}

impl Segment {
    /// Writes the header, twice, into a zeroed file and makes it durable.
    ///
    /// The file gets the segment's name only after that: a file of that name with a bad header is
    /// damage, never a start that was interrupted.
    pub(crate) fn begin(
        file: Box<dyn File>,
        path: String,
        header: SegmentHeader,
        keys: Arc<EpochKeys>,
    ) -> Result<Self, JournalError> {
        let bytes = header.encode(&keys);
        for at in [0, HEADER_COPY_AT] {
            write_whole(&*file, at as u64, &[IoSlice::new(&bytes)])
                .map_err(|why| JournalError::disk("writing the header", &path, why))?;
        }
        file.sync_data().map_err(|why| JournalError::disk("syncing the header", &path, why))?;
        let mut mac = keys.mac();
        mac.update(&bytes);
        Ok(Self {
            seed: crc_seed(&header.salt, header.sequence),
            sealers: BTreeMap::new(),
            offset: SEGMENT_HEADER_BYTES as u64,
            end: SEGMENT_HEADER_BYTES as u64,
            counter: 0,
            header,
            path,
            file,
            keys,
            mac,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counter == 0
    }

    /// Bytes a batch written now may have, its mark included.
    pub(crate) fn room(&self) -> usize {
        let reserve = TRAILER_BYTES as u64 + u64::from(self.header.alignment);
        self.header.segment_bytes.saturating_sub(self.offset + reserve) as usize
    }

    /// Seals the records and writes them behind a mark with one call.
    pub(crate) fn write_batch(
        &mut self,
        durable_lsn: u64,
        parts: &mut [(&mut [u8], &[Placed])],
    ) -> Result<u64, JournalError> {
        let records: usize = parts.iter().map(|(_, heads)| heads.len()).sum();
        let payload: usize = parts.iter().map(|(bytes, _)| bytes.len()).sum();
        let bytes = BATCH_HEAD_BYTES + payload;
        let first = parts.iter().find_map(|(_, heads)| heads.first());
        let lsn = first.expect("a batch holds records").head.lsn;
        let mark = BatchMark { durable_lsn, bytes: bytes as u32, records: records as u32 };
        let mut opening = [0; BATCH_HEAD_BYTES];
        opening[RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + DURABLE_BODY_BYTES]
            .copy_from_slice(&mark.encode());
        let mut opening_head = head(RecordKind::Durable, 0, lsn);
        opening_head.length = DURABLE_BODY_BYTES as u32;
        self.seal(&mut opening, opening_head);
        for (bytes, heads) in parts.iter_mut() {
            let base = heads.first().map_or(0, |placed| placed.at);
            for placed in *heads {
                let at = placed.at - base;
                let end = at + RECORD_OVERHEAD + placed.head.length as usize;
                self.seal(&mut bytes[at..end], placed.head);
            }
        }
        let end = self.offset + bytes as u64;
        let next = align(end, self.header.alignment);
        let padding = vec![0; (next - end) as usize];
        let mut pieces = Vec::with_capacity(2 + parts.len());
        pieces.push(IoSlice::new(&opening));
        pieces.extend(parts.iter().map(|(bytes, _)| IoSlice::new(bytes)));
        pieces.push(IoSlice::new(&padding));
        write_whole(&*self.file, self.offset, &pieces)
            .map_err(|why| JournalError::disk("writing records", &self.path, why))?;
        self.end = end;
        self.offset = next;
        Ok(next - end + bytes as u64)
    }

    fn seal(&mut self, record: &mut [u8], mut head: RecordHead) {
        head.counter = self.counter;
        head.key_epoch = self.header.key_epoch;
        let encoded = head.encode(self.seed);
        let (keys, header) = (&self.keys, &self.header);
        let sealer = self
            .sealers
            .entry(head.key_domain)
            .or_insert_with(|| keys.segment(&header.salt, header.sequence, head.key_domain));
        let (head_room, rest) = record.split_at_mut(RECORD_HEAD_BYTES);
        head_room.copy_from_slice(&encoded);
        let (body, tag_room) = rest.split_at_mut(head.length as usize);
        let tag = sealer.seal(head.counter, &encoded, body);
        tag_room.copy_from_slice(&tag);
        self.mac.update(&encoded);
        self.mac.update(&tag);
        self.counter += 1;
    }

    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(|why| JournalError::disk("syncing records", &self.path, why))
    }

    /// Writes the trailer and makes all of it durable.
    pub(crate) fn finish(&mut self, last_lsn: u64) -> Result<Sealed, JournalError> {
        let sealed = Sealed {
            sequence: self.header.sequence,
            records: self.counter,
            end: self.end,
            mac: finish_mac(self.mac.clone(), b""),
        };
        let trailer =
            Trailer { first_lsn: self.header.first_lsn, last_lsn, sealed: sealed.clone() };
        write_whole(&*self.file, self.offset, &[IoSlice::new(&trailer.encode())])
            .map_err(|why| JournalError::disk("writing the trailer", &self.path, why))?;
        self.sync()?;
        Ok(sealed)
    }
}
