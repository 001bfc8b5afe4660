//! The one writer of a node: everything staged by all shards, one write, one sync.
//!
//! 1. Shards add records to the staging buffer under its lock and get numbers.
//! 2. The writer exchanges the buffer for an empty one. While it writes and syncs, the next batch
//!    forms by itself; no timer is needed.
//! 3. A batch opens with a mark that says what was durable before it. The mark is the durability
//!    ledger of the node: record and data share one sync.
//! 4. Only after the sync the watermark moves and shards are woken. An error of write or sync ends
//!    the journal: nothing is tried again, since what the disk holds is unknown from there on.
//! 5. A full disk is met only while a new segment is prepared. Nothing of the batch is on the disk
//!    then, so it waits, staging is refused, and all goes on once there is room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::body::{CheckpointMark, GroupRow, Reader, decode_hard_state, put_u64};
use crate::crypto::{EpochKeys, SALT_BYTES};
use crate::disk::Disk;
use crate::error::JournalError;
use crate::format::{
    BATCH_HEAD_BYTES, RECORD_HEAD_BYTES, RECORD_OVERHEAD, RecordKind, Sealed, SegmentHeader,
};
use crate::keys::Entropy;
use crate::limits::TABLE_BYTES_CLOSE;
use crate::options::{Clock, Durability, JournalOptions};
use crate::segment::{Placed, Records, Segment, WAL_DIR, head, segment_path};
use crate::shared::{Lsn, Shared, WakeToken};
use crate::shelf::Shelf;
use crate::statistics::Counters;

/// What recovery found, and the writer goes on from.
pub(crate) struct Beginning {
    pub(crate) rows: BTreeMap<u64, GroupRow>,
    pub(crate) spans: BTreeMap<u64, VecDeque<Span>>,
    pub(crate) live: VecDeque<u64>,
    pub(crate) previous: Option<Sealed>,
    pub(crate) next_lsn: Lsn,
    /// Groups whose records must be left alone.
    pub(crate) pinned: BTreeSet<u64>,
}

/// The highest index a group has in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) segment: u64,
    pub(crate) last_index: u64,
}

/// Notes that a segment holds entries of a group up to an index.
pub(crate) fn extend_span(spans: &mut VecDeque<Span>, segment: u64, last_index: u64) {
    match spans.back_mut() {
        Some(span) if span.segment == segment => span.last_index = span.last_index.max(last_index),
        _ => spans.push_back(Span { segment, last_index }),
    }
}

/// What is left of the buffer that was taken.
#[derive(Default)]
struct Batch {
    records: Records,
    done: usize,
    waiting: BTreeSet<WakeToken>,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    shelf: Arc<Shelf>,
    disk: Arc<dyn Disk>,
    keys: Arc<EpochKeys>,
    entropy: Arc<dyn Entropy>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    node_id: u64,
    alignment: u32,
    segment_bytes: u64,
    durability: Durability,
    segment: Option<Segment>,
    previous: Option<Sealed>,
    next_sequence: u64,
    rows: BTreeMap<u64, GroupRow>,
    spans: BTreeMap<u64, VecDeque<Span>>,
    live: VecDeque<u64>,
    pinned: BTreeSet<u64>,
    batch: Batch,
    written_lsn: Lsn,
    synced_lsn: Lsn,
    unsynced_bytes: u64,
    unsynced_since_us: u64,
    reclaim: bool,
    asked_for_spare: bool,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        shelf: Arc<Shelf>,
        disk: Arc<dyn Disk>,
        keys: Arc<EpochKeys>,
        options: &JournalOptions,
        counters: Arc<Counters>,
        beginning: Beginning,
    ) -> Self {
        let written_lsn = beginning.next_lsn - 1;
        Self {
            shared,
            shelf,
            disk,
            keys,
            entropy: Arc::clone(&options.entropy),
            clock: Arc::clone(&options.clock),
            counters,
            node_id: options.node_id,
            alignment: options.alignment,
            segment_bytes: options.segment_bytes,
            durability: options.durability,
            segment: None,
            next_sequence: beginning.live.back().map_or(1, |last| last + 1),
            previous: beginning.previous,
            rows: beginning.rows,
            spans: beginning.spans,
            live: beginning.live,
            pinned: beginning.pinned,
            batch: Batch::default(),
            written_lsn,
            synced_lsn: written_lsn,
            unsynced_bytes: 0,
            unsynced_since_us: 0,
            reclaim: false,
            asked_for_spare: false,
        }
    }

    /// Opens the first segment, so that a start finds out at once whether it can write.
    pub(crate) fn begin(&mut self) -> Result<(), JournalError> {
        let opened = self.open_segment()?;
        self.shared.set_full(!opened);
        Ok(())
    }

    /// Whether a batch waits because there was no room for a segment.
    pub(crate) fn is_stuck(&self) -> bool {
        self.shared.is_full()
    }

    /// Until when a written batch may stay unsynced, in microseconds of the clock.
    pub(crate) fn sync_due_us(&self) -> Option<u64> {
        let Durability::Group { delay_ms, .. } = self.durability else { return None };
        (self.unsynced_bytes > 0).then(|| self.unsynced_since_us + delay_ms * 1000)
    }

    /// Writes what is staged. Returns whether anything moved; an error is final.
    pub(crate) fn pump(&mut self) -> Result<bool, JournalError> {
        if let Some(why) = self.shared.failure().or_else(|| self.shelf.failure()) {
            return Err(why);
        }
        let mut moved = false;
        if self.batch.done == self.batch.records.heads.len() {
            moved |= self.take_staged();
        }
        let written = self.write_staged()?;
        moved |= written.unwrap_or(false);
        self.shared.set_full(written.is_none());
        if self.sync_is_due() {
            self.sync()?;
            moved = true;
        }
        if self.reclaim {
            self.reclaim = false;
            self.retire_unneeded();
        }
        Ok(moved)
    }

    fn take_staged(&mut self) -> bool {
        self.batch.records.clear();
        self.batch.done = 0;
        let mut staging = self.shared.staging.lock();
        let idle = staging.records.heads.is_empty() && staging.waiting.is_empty();
        if idle || !(staging.urgent || staging.stopping) {
            staging.urgent = false;
            return false;
        }
        staging.urgent = false;
        std::mem::swap(&mut staging.records, &mut self.batch.records);
        std::mem::swap(&mut staging.waiting, &mut self.batch.waiting);
        staging.waiting.clear();
        true
    }

    /// Writes the batch and acknowledges it; None when there is no room for a segment.
    fn write_staged(&mut self) -> Result<Option<bool>, JournalError> {
        if self.segment.is_none() && !self.open_segment()? {
            return Ok(None);
        }
        let mut wrote = false;
        while self.batch.done < self.batch.records.heads.len() {
            if !self.write_some()? {
                self.seal_segment()?;
                if !self.open_segment()? {
                    return Ok(None);
                }
                continue;
            }
            wrote = true;
            self.ask_for_spare();
        }
        if wrote || !self.batch.waiting.is_empty() {
            if self.durability == Durability::Strict && self.unsynced_bytes > 0 {
                self.sync()?;
            }
            let waiting = std::mem::take(&mut self.batch.waiting);
            self.shared.acknowledge(self.written_lsn, &waiting);
        }
        Ok(Some(wrote))
    }

    /// Writes as many records as fit into the segment; false if not even one does.
    fn write_some(&mut self) -> Result<bool, JournalError> {
        let segment = self.segment.as_mut().expect("opened before");
        let mut table = Records::default();
        if segment.is_empty() {
            write_table(&self.rows, self.written_lsn + 1, &mut table);
        }
        let room = segment.room().saturating_sub(BATCH_HEAD_BYTES + table.bytes.len());
        let heads = &self.batch.records.heads[self.batch.done..];
        let start = heads[0].at;
        let ends = heads
            .iter()
            .map(|placed| placed.at + RECORD_OVERHEAD + placed.head.length as usize - start);
        let fitting = ends.clone().take_while(|&end| end <= room).count();
        let Some(bytes) = ends.take(fitting).next_back() else {
            return if segment.is_empty() {
                Err(no_room_for_table(&segment.path))
            } else {
                Ok(false)
            };
        };
        let heads = heads[..fitting].to_vec();
        let sequence = segment.header.sequence;
        for placed in &heads {
            self.note(*placed, sequence)?;
        }
        let segment = self.segment.as_mut().expect("opened before");
        let records = &mut self.batch.records.bytes[start..start + bytes];
        let written = segment.write_batch(
            self.synced_lsn,
            &mut [(&mut table.bytes, &table.heads), (records, &heads)],
        )?;
        if self.unsynced_bytes == 0 {
            self.unsynced_since_us = self.clock.now_us();
        }
        self.unsynced_bytes += written;
        self.batch.done += fitting;
        self.written_lsn = heads.last().expect("at least one").head.lsn;
        self.counters.wrote(fitting as u64, written);
        Ok(true)
    }

    fn sync_is_due(&self) -> bool {
        match self.durability {
            Durability::Strict => self.unsynced_bytes > 0,
            Durability::Group { bytes, .. } => {
                self.unsynced_bytes >= bytes
                    || self.sync_due_us().is_some_and(|due| self.clock.now_us() >= due)
            }
        }
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        if let Some(segment) = &self.segment {
            let from = self.clock.now_us();
            segment.sync()?;
            self.counters.synced(self.clock.now_us().saturating_sub(from));
        }
        self.note_synced();
        Ok(())
    }

    fn note_synced(&mut self) {
        self.unsynced_bytes = 0;
        self.synced_lsn = self.written_lsn;
        self.shared.set_synced(self.synced_lsn);
    }

    fn seal_segment(&mut self) -> Result<(), JournalError> {
        // A trailer proves that all before it was durable, so it must not reach the disk first.
        if self.unsynced_bytes > 0 {
            self.sync()?;
        }
        let Some(mut segment) = self.segment.take() else { return Ok(()) };
        let sealed = segment.finish(self.written_lsn)?;
        self.note_synced();
        self.previous = Some(sealed);
        Ok(())
    }

    /// Prepares a file, writes its header, and only then gives it the segment's name.
    ///
    /// False when the disk has no room for it; nothing has changed then.
    fn open_segment(&mut self) -> Result<bool, JournalError> {
        let (file, spare) = match self.shelf.take() {
            Err(why) if why.is_full() => return Ok(false),
            other => other?,
        };
        let mut salt = [0; SALT_BYTES];
        self.entropy.fill(&mut salt);
        let sequence = self.next_sequence;
        let header = SegmentHeader {
            node_id: self.node_id,
            sequence,
            salt,
            first_lsn: self.written_lsn + 1,
            segment_bytes: self.segment_bytes,
            alignment: self.alignment,
            key_epoch: self.keys.epoch,
            key_id: self.keys.id,
            previous: self.previous.clone(),
        };
        let path = segment_path(sequence);
        let segment = Segment::begin(file, path.clone(), header, Arc::clone(&self.keys));
        let segment = match segment {
            Ok(segment) => segment,
            Err(why) if why.is_full() => {
                self.shelf.discard(&spare);
                return Ok(false);
            }
            Err(why) => return Err(why),
        };
        let renamed = self.disk.rename(&spare, &path);
        renamed.map_err(|why| JournalError::disk("naming a segment", &path, why))?;
        let named = self.disk.sync_dir(WAL_DIR);
        named.map_err(|why| JournalError::disk("syncing the directory", WAL_DIR, why))?;
        self.segment = Some(segment);
        self.next_sequence += 1;
        self.live.push_back(sequence);
        self.asked_for_spare = false;
        self.reclaim = true;
        self.counters.rotated();
        Ok(true)
    }

    /// Has the next file made while this one still has room.
    fn ask_for_spare(&mut self) {
        let room = self.segment.as_ref().map_or(0, Segment::room) as u64;
        if !self.asked_for_spare && room < self.segment_bytes / 2 {
            self.asked_for_spare = true;
            self.shelf.want();
        }
    }

    /// Keeps the table as it is after a record that is about to be written.
    fn note(&mut self, placed: Placed, segment: u64) -> Result<(), JournalError> {
        let Placed { at, head } = placed;
        let from = at + RECORD_HEAD_BYTES;
        let body = &self.batch.records.bytes[from..from + head.length as usize];
        note_record(&mut self.rows, head.kind, &head, body)
            .map_err(|reason| JournalError::Group { group: head.group, problem: reason })?;
        match head.kind {
            RecordKind::Entries => {
                let last = head.first_index + u64::from(head.count) - 1;
                extend_span(self.spans.entry(head.group).or_default(), segment, last);
            }
            RecordKind::Checkpoint => self.reclaim = true,
            RecordKind::GroupDestroy => {
                self.spans.remove(&head.group);
                self.reclaim = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Retires the oldest segments as long as every group has them behind its floor.
    ///
    /// Rows count as of what is written; `reclaim` runs after the sync of that, or, under
    /// `Durability::Group`, is put off until it happened.
    fn retire_unneeded(&mut self) {
        // The segment in use must hold the table before older ones may go.
        let tabled = self.segment.as_ref().is_some_and(|segment| !segment.is_empty());
        if self.synced_lsn != self.written_lsn || !tabled {
            self.reclaim = true;
            return;
        }
        if !self.pinned.is_empty() {
            return;
        }
        let mut retired = Vec::new();
        while self.live.len() > 1 {
            let oldest = self.live[0];
            if self.pinning(oldest).is_some() {
                break;
            }
            for spans in self.spans.values_mut() {
                while spans.front().is_some_and(|span| span.segment <= oldest) {
                    spans.pop_front();
                }
            }
            self.live.pop_front();
            retired.push(oldest);
        }
        if !retired.is_empty() {
            self.counters.retired(retired.len() as u64);
            self.shelf.retire(retired);
        }
    }

    /// A group that still needs a segment.
    fn pinning(&self, segment: u64) -> Option<u64> {
        self.spans.iter().find_map(|(&group, spans)| {
            let front = spans.front().filter(|span| span.segment == segment)?;
            let floor = self.rows.get(&group).map_or(u64::MAX, |row| row.compacted_index);
            (front.last_index > floor).then_some(group)
        })
    }

    /// Writes the rest, seals the segment, and is done.
    pub(crate) fn finish(&mut self) -> Result<(), JournalError> {
        while self.pump()? {}
        if self.is_stuck() {
            return Ok(());
        }
        self.sync()?;
        self.seal_segment()
    }
}

fn no_room_for_table(path: &str) -> JournalError {
    JournalError::Disk {
        what: "fitting the group table into a segment",
        path: path.to_owned(),
        source: Arc::new(std::io::Error::other("segments are too small for so many groups")),
    }
}

/// Writes the rows of all groups, some per record.
fn write_table(rows: &BTreeMap<u64, GroupRow>, lsn: Lsn, table: &mut Records) {
    let mut rest = rows.iter().peekable();
    while rest.peek().is_some() {
        table.push(head(RecordKind::Table, 0, lsn), |body| {
            let start = body.len();
            while let Some((&group, row)) = rest.next_if(|_| body.len() - start < TABLE_BYTES_CLOSE)
            {
                row.encode(group, body);
            }
        });
    }
    if rows.is_empty() {
        table.push(head(RecordKind::Table, 0, lsn), |_| {});
    }
}

/// Reads the rows of one table record.
pub(crate) fn read_table(body: &[u8]) -> Result<Vec<(u64, GroupRow)>, &'static str> {
    let mut reader = Reader::new(body);
    let mut rows = Vec::new();
    while !reader.is_empty() {
        rows.push(GroupRow::decode(&mut reader).map_err(|why| why.0)?);
    }
    Ok(rows)
}

/// Carries one record into the rows: the one place that knows what records mean to them.
///
/// The writer and recovery both go through here, so a table always says what a replay would.
pub(crate) fn note_record(
    rows: &mut BTreeMap<u64, GroupRow>,
    kind: RecordKind,
    head: &crate::format::RecordHead,
    body: &[u8],
) -> Result<(), &'static str> {
    match kind {
        RecordKind::Durable | RecordKind::Barrier | RecordKind::Table => return Ok(()),
        RecordKind::GroupCreate => {
            let (_, row) = GroupRow::decode(&mut Reader::new(body)).map_err(|why| why.0)?;
            return match rows.insert(head.group, row) {
                Some(_) => Err("exists already"),
                None => Ok(()),
            };
        }
        RecordKind::GroupDestroy => {
            return rows.remove(&head.group).map(drop).ok_or("does not exist");
        }
        _ => {}
    }
    let row = rows.get_mut(&head.group).ok_or("does not exist")?;
    match kind {
        RecordKind::Entries => {
            let commit = body.first_chunk().ok_or("has a record that is cut short")?;
            row.commit = row.commit.max(u64::from_le_bytes(*commit));
            row.last_index = head.first_index + u64::from(head.count.max(1)) - 1;
            row.last_term = head.term;
        }
        RecordKind::HardState => {
            let (vote, commit) = decode_hard_state(body).map_err(|why| why.0)?;
            row.term = head.term;
            row.vote = vote;
            row.commit = row.commit.max(commit);
        }
        RecordKind::Truncate => {
            row.last_index = head.first_index;
            row.last_term = head.term;
        }
        RecordKind::Checkpoint => {
            let mark = CheckpointMark::decode(body, head.first_index, head.term);
            row.cover(&mark.map_err(|why| why.0)?);
        }
        _ => {}
    }
    Ok(())
}

/// The body of a hard state.
pub(crate) fn put_hard_state(out: &mut Vec<u8>, vote: u64, commit: u64) {
    put_u64(out, vote);
    put_u64(out, commit);
}
