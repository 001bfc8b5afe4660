//! Reads one segment, record by record, and trusts nothing that does not check out.
//!
//! The reader only reports: whether a flaw is a torn tail or damage depends on what was durable,
//! and that is decided by recovery, which can see the segments that follow.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use bytes::Bytes;

use crate::crypto::{EpochKeys, SALT_BYTES, Sealer, TAG_BYTES, finish_mac};
use crate::format::{
    BATCH_HEAD_BYTES, BatchMark, HEADER_BYTES, HEADER_COPY_AT, HeaderError, RECORD_HEAD_BYTES,
    RecordHead, RecordKind, Sealed, SegmentHeader, Trailer, align, crc_seed,
};
use crate::limits::{SECTOR_BYTES, SEGMENT_HEADER_BYTES, TRAILER_BYTES};

/// Finds a header that checks out among the two copies.
pub(crate) fn find_header(bytes: &[u8]) -> Result<(SegmentHeader, usize), HeaderError> {
    let mut worst = HeaderError::Damaged("the file is shorter than a header");
    for at in [0, HEADER_COPY_AT] {
        let Some(copy) = bytes.get(at..at + HEADER_BYTES) else { continue };
        match SegmentHeader::decode(copy) {
            Ok(header) => return Ok((header, at)),
            Err(newer @ HeaderError::Newer(_)) => return Err(newer),
            Err(damaged) => worst = damaged,
        }
    }
    Err(worst)
}

/// One record that checks out.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) head: RecordHead,
    pub(crate) body: Bytes,
    pub(crate) offset: u64,
}

/// What the reader met.
#[derive(Debug)]
pub(crate) enum Step {
    Record(Record),
    /// The head checks out, the body does not; `skip` goes on behind it.
    Unauthentic {
        head: RecordHead,
        offset: u64,
    },
    /// A trailer; its MAC was compared.
    Trailer,
    /// Nothing that could follow; the reader does not move.
    Stop {
        offset: u64,
        reason: &'static str,
    },
}

/// Walks a segment that is in memory.
pub(crate) struct SegmentReader<'a> {
    bytes: &'a [u8],
    header: SegmentHeader,
    keys: &'a EpochKeys,
    sealers: BTreeMap<u32, Sealer>,
    seed: u32,
    offset: u64,
    /// Where the last record ended, before padding.
    end: u64,
    counter: u32,
    next_lsn: u64,
    durable_lsn: u64,
    batch_end: Option<u64>,
    batch_records: u32,
    mac: hmac::Context,
}

impl<'a> SegmentReader<'a> {
    /// `keys` are those of the header's epoch, and the header is authentic.
    pub(crate) fn new(bytes: &'a [u8], header: SegmentHeader, keys: &'a EpochKeys) -> Self {
        let salt: [u8; SALT_BYTES] = header.salt;
        let mut mac = keys.mac();
        mac.update(&header.encode(keys));
        Self {
            seed: crc_seed(&salt, header.sequence),
            offset: SEGMENT_HEADER_BYTES as u64,
            end: SEGMENT_HEADER_BYTES as u64,
            counter: 0,
            next_lsn: header.first_lsn,
            durable_lsn: header.first_lsn - 1,
            batch_end: None,
            batch_records: 0,
            sealers: BTreeMap::new(),
            bytes,
            header,
            keys,
            mac,
        }
    }

    /// How many records were read.
    pub(crate) fn counter(&self) -> u32 {
        self.counter
    }

    /// The number of the next record.
    pub(crate) fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// The segment as it would count if it ended here.
    pub(crate) fn sealed(&self) -> Sealed {
        Sealed {
            sequence: self.header.sequence,
            records: self.counter,
            end: self.end,
            mac: finish_mac(self.mac.clone(), b""),
        }
    }

    fn head_at(&self, offset: u64) -> Option<RecordHead> {
        let at = usize::try_from(offset).ok()?;
        let head =
            RecordHead::decode(self.bytes.get(at..at.checked_add(RECORD_HEAD_BYTES)?)?, self.seed)?;
        let end = at.checked_add(head.record_bytes())?;
        (end <= self.bytes.len()).then_some(head)
    }

    fn open(&mut self, head: &RecordHead, offset: u64) -> Option<Bytes> {
        if head.key_epoch != self.header.key_epoch {
            return None;
        }
        let at = offset as usize;
        let about = &self.bytes[at..at + RECORD_HEAD_BYTES];
        let mut sealed = self.bytes[at + RECORD_HEAD_BYTES..at + head.record_bytes()].to_vec();
        let (keys, header) = (self.keys, &self.header);
        let cipher = self
            .sealers
            .entry(head.key_domain)
            .or_insert_with(|| keys.segment(&header.salt, header.sequence, head.key_domain));
        if !cipher.open(head.counter, about, &mut sealed) {
            return None;
        }
        sealed.truncate(head.length as usize);
        Some(Bytes::from(sealed))
    }

    /// Reads what stands next.
    pub(crate) fn step(&mut self) -> Step {
        let offset = self.offset;
        let stop = |reason| Step::Stop { offset, reason };
        if self.batch_end.is_none()
            && let Some(trailer) = self.trailer_at(offset)
        {
            return match trailer {
                Ok(()) => Step::Trailer,
                Err(reason) => stop(reason),
            };
        }
        let Some(head) = self.head_at(offset) else {
            return stop("no record whose header checks out");
        };
        if head.counter != self.counter || head.lsn != self.next_lsn {
            return stop("a record that does not follow the one before");
        }
        match self.batch_end {
            None if head.kind != RecordKind::Durable => return stop("a batch without its mark"),
            Some(_) if head.kind == RecordKind::Durable => return stop("a mark inside a batch"),
            Some(end) if offset + head.record_bytes() as u64 > end => {
                return stop("a record that is longer than its batch");
            }
            _ => {}
        }
        let body = self.open(&head, offset);
        if head.kind == RecordKind::Durable {
            let mark = body.as_deref().and_then(BatchMark::decode);
            let Some(mark) = mark.filter(|mark| mark.bytes as usize >= BATCH_HEAD_BYTES) else {
                return stop("a batch whose mark is not authentic");
            };
            if mark.durable_lsn >= self.next_lsn || mark.durable_lsn < self.durable_lsn {
                return stop("a batch whose mark contradicts the ones before");
            }
            self.durable_lsn = mark.durable_lsn;
            self.batch_end = Some(offset + u64::from(mark.bytes));
            self.batch_records = mark.records;
        }
        match body {
            Some(body) => {
                self.skip(&head);
                Step::Record(Record { head, body, offset })
            }
            None => Step::Unauthentic { head, offset },
        }
    }

    /// Goes on behind a record.
    pub(crate) fn skip(&mut self, head: &RecordHead) {
        let at = self.offset as usize;
        let tag = at + head.record_bytes() - TAG_BYTES;
        self.mac.update(&self.bytes[at..at + RECORD_HEAD_BYTES]);
        self.mac.update(&self.bytes[tag..tag + TAG_BYTES]);
        self.counter += 1;
        if head.kind.is_numbered() {
            self.next_lsn += 1;
        }
        self.offset += head.record_bytes() as u64;
        self.end = self.offset;
        if self.batch_end == Some(self.offset) {
            self.batch_end = None;
            self.offset = align(self.offset, self.header.alignment);
        }
    }

    /// A trailer of this very segment, if one stands there.
    fn trailer_at(&self, offset: u64) -> Option<Result<(), &'static str>> {
        let at = usize::try_from(offset).ok()?;
        let trailer = Trailer::decode(self.bytes.get(at..at.checked_add(TRAILER_BYTES)?)?)?;
        if trailer.sealed.sequence != self.header.sequence {
            return None;
        }
        let same = trailer.sealed == self.sealed()
            && trailer.first_lsn == self.header.first_lsn
            && trailer.last_lsn + 1 == self.next_lsn;
        Some(if same { Ok(()) } else { Err("the trailer's MAC does not match the records") })
    }

    /// What anything behind this place proves to have been durable, if anything does.
    ///
    /// A batch is written after the one before it was synced, and says so. So an authentic mark
    /// behind a flaw proves that the flaw is damage and no torn tail.
    pub(crate) fn proof_behind(&mut self) -> Option<u64> {
        let step = u64::from(self.header.alignment).max(SECTOR_BYTES as u64);
        let mut proof = None;
        let mut offset = align(self.offset.max(SEGMENT_HEADER_BYTES as u64), step as u32);
        while (offset as usize) < self.bytes.len() {
            if let Some(head) = self.head_at(offset)
                && head.kind == RecordKind::Durable
                && head.counter >= self.counter
                && let Some(mark) =
                    self.open(&head, offset).and_then(|body| BatchMark::decode(&body))
            {
                proof = proof.max(Some(mark.durable_lsn));
            }
            if let Some(trailer) = self.bytes.get(offset as usize..).and_then(Trailer::decode)
                && trailer.sealed.sequence == self.header.sequence
            {
                proof = proof.max(Some(trailer.last_lsn));
            }
            offset += step;
        }
        proof
    }
}
