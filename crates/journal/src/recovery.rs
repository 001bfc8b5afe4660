//! What the log says after a start: every record that counts, and where it stopped counting.
//!
//! Rules:
//!
//! - A segment that has a successor ended where the successor's header says. Anything in it that
//!   does not check out is damage.
//! - The last segment ends at the first thing that does not check out, unless something behind it
//!   proves that it had been durable: a trailer, or the mark of a later batch. Then it is damage.
//! - Damage to a record's body concerns its group, which is quarantined; the others go on. Damage
//!   to heads, marks, headers and chains concerns all.
//! - Nothing is written to a segment that was found. The next segment's header says how much of it
//!   counts, so a torn tail is cut without being touched.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use raft::eraftpb::Entry;

use crate::body::{GroupRow, decode_entries};
use crate::crypto::EpochKeys;
use crate::disk::{Disk, read_whole};
use crate::error::{Damage, JournalError};
use crate::format::{
    HEADER_BYTES, HeaderError, RecordHead, RecordKind, Sealed, SegmentHeader, WAL_FORMAT,
};
use crate::keys::KeyProvider;
use crate::limits::SEGMENT_HEADER_BYTES;
use crate::reader::{Record, SegmentReader, Step, find_header};
use crate::segment::{WAL_DIR, segment_path, sequence_of};
use crate::shared::Lsn;
use crate::writer::{Span, extend_span, note_record, read_table};

/// A segment in memory.
pub(crate) struct Loaded {
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: SegmentHeader,
}

/// Keys by epoch, loaded when a segment first needs them.
pub(crate) struct KeyRing<'a> {
    provider: &'a dyn KeyProvider,
    epochs: BTreeMap<u32, Arc<EpochKeys>>,
}

impl<'a> KeyRing<'a> {
    pub(crate) fn new(provider: &'a dyn KeyProvider) -> Self {
        Self { provider, epochs: BTreeMap::new() }
    }

    pub(crate) fn epoch(&mut self, epoch: u32) -> Result<Arc<EpochKeys>, JournalError> {
        if let Some(keys) = self.epochs.get(&epoch) {
            return Ok(Arc::clone(keys));
        }
        let keys = Arc::new(EpochKeys::load(self.provider, epoch)?);
        self.epochs.insert(epoch, Arc::clone(&keys));
        Ok(keys)
    }
}

/// The segments of a directory, oldest first.
pub(crate) fn list_segments(disk: &dyn Disk) -> Result<Vec<u64>, JournalError> {
    let names = disk.list(WAL_DIR);
    let names = names.map_err(|why| JournalError::disk("listing segments", WAL_DIR, why))?;
    Ok(names.iter().filter_map(|name| sequence_of(name)).collect())
}

/// Reads a segment and judges its header.
pub(crate) fn load_segment(
    disk: &dyn Disk,
    ring: &mut KeyRing<'_>,
    sequence: u64,
    node_id: Option<u64>,
) -> Result<Loaded, JournalError> {
    let path = segment_path(sequence);
    let failed = |why| JournalError::disk("reading a segment", &path, why);
    let file = disk.open(&path).map_err(failed)?;
    let bytes = read_whole(&*file).map_err(failed)?;
    let header = judge_header(&path, &bytes, ring, sequence, node_id)?;
    Ok(Loaded { path, bytes, header })
}

/// Reads the header of a segment alone.
pub(crate) fn load_header(
    disk: &dyn Disk,
    ring: &mut KeyRing<'_>,
    sequence: u64,
) -> Result<SegmentHeader, JournalError> {
    let path = segment_path(sequence);
    let failed = |why| JournalError::disk("reading a header", &path, why);
    let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
    let mut at = 0;
    let file = disk.open(&path).map_err(failed)?;
    while at < bytes.len() {
        match file.read_at(at as u64, &mut bytes[at..]).map_err(failed)? {
            0 => break,
            got => at += got,
        }
    }
    judge_header(&path, &bytes[..at], ring, sequence, None)
}

fn judge_header(
    path: &str,
    bytes: &[u8],
    ring: &mut KeyRing<'_>,
    sequence: u64,
    node_id: Option<u64>,
) -> Result<SegmentHeader, JournalError> {
    let path = path.to_owned();
    let damaged = |lsn, reason: &str| {
        let reason = reason.to_owned();
        JournalError::Damaged(Damage { segment: sequence, offset: 0, lsn, reason })
    };
    let (header, at) = match find_header(bytes) {
        Ok(found) => found,
        Err(HeaderError::Newer(found)) => {
            return Err(JournalError::NewerFormat { path, found, known: WAL_FORMAT });
        }
        Err(HeaderError::Damaged(reason)) => return Err(damaged(0, reason)),
    };
    if let Some(wanted) = node_id.filter(|&wanted| wanted != header.node_id) {
        return Err(JournalError::ForeignNode { path, found: header.node_id, wanted });
    }
    let keys = ring.epoch(header.key_epoch)?;
    if header.key_id != keys.id {
        let (found, given) = (hexadecimal(&header.key_id), hexadecimal(&keys.id));
        return Err(JournalError::WrongKey { path, found, given });
    }
    if !SegmentHeader::is_authentic(&bytes[at..at + HEADER_BYTES], &keys) {
        return Err(damaged(header.first_lsn, "the header's MAC does not match"));
    }
    if header.sequence != sequence {
        return Err(damaged(header.first_lsn, "the file has another segment's name"));
    }
    if header.first_lsn == 0 || ![512, 4096].contains(&header.alignment) {
        return Err(damaged(header.first_lsn, "the header says what no writer writes"));
    }
    Ok(header)
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Takes what a walk finds.
pub(crate) trait Visitor {
    fn record(&mut self, segment: u64, record: Record) -> Result<(), Damage>;
    /// A record below the watermark whose body does not check out.
    fn unauthentic(&mut self, head: &RecordHead, damage: Damage) -> Result<(), Damage>;
}

/// Where a segment stopped counting.
#[derive(Debug, Clone)]
pub(crate) struct SegmentEnd {
    pub(crate) sealed: Sealed,
    pub(crate) next_lsn: Lsn,
    /// Whether a trailer was found.
    pub(crate) trailer: bool,
    /// Why the rest does not count, if there is a rest.
    pub(crate) cut: Option<&'static str>,
}

/// Walks a segment. `limit` is what its successor says of it.
pub(crate) fn walk_segment(
    loaded: &Loaded,
    keys: &EpochKeys,
    limit: Option<&Sealed>,
    visitor: &mut dyn Visitor,
) -> Result<SegmentEnd, Damage> {
    let segment = loaded.header.sequence;
    let mut reader = SegmentReader::new(&loaded.bytes, loaded.header.clone(), keys);
    let mut flawed = false;
    let mut trailer = false;
    let mut cut = None;
    let damage =
        |offset, lsn, reason: &str| Damage { segment, offset, lsn, reason: reason.to_owned() };
    while limit.is_none_or(|limit| reader.counter() < limit.records) {
        let lsn = reader.next_lsn();
        match reader.step() {
            Step::Record(record) => visitor.record(segment, record)?,
            Step::Unauthentic { head, offset } => {
                let proved = reader.proof_behind().is_some_and(|durable| durable >= lsn);
                if limit.is_none() && !proved {
                    cut = Some("a record that is not authentic");
                    break;
                }
                flawed = true;
                let reason = "a record that is not authentic";
                visitor.unauthentic(&head, damage(offset, lsn, reason))?;
                reader.skip(&head);
            }
            Step::Trailer => {
                trailer = true;
                break;
            }
            Step::Stop { offset, reason } => {
                let proved = reader.proof_behind().is_some_and(|durable| durable >= lsn);
                if limit.is_some() || proved {
                    return Err(damage(offset, lsn, reason));
                }
                cut = leftover(&loaded.bytes, offset).then_some(reason);
                break;
            }
        }
    }
    let sealed = reader.sealed();
    if let Some(limit) = limit
        && *limit != sealed
        && !flawed
    {
        let reason = "the records do not match what the next segment says of them";
        return Err(damage(sealed.end, reader.next_lsn(), reason));
    }
    Ok(SegmentEnd { sealed, next_lsn: reader.next_lsn(), trailer, cut })
}

/// Whether anything but zeros stands behind the end.
fn leftover(bytes: &[u8], offset: u64) -> bool {
    bytes.get(offset as usize..).is_some_and(|rest| rest.iter().any(|&byte| byte != 0))
}

/// A group as the log left it.
#[derive(Debug, Default)]
pub(crate) struct GroupLog {
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) quarantined: Option<Damage>,
}

/// All the log says.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) rows: BTreeMap<u64, GroupRow>,
    pub(crate) logs: BTreeMap<u64, GroupLog>,
    pub(crate) spans: BTreeMap<u64, VecDeque<Span>>,
}

impl Visitor for Replay {
    fn record(&mut self, segment: u64, record: Record) -> Result<(), Damage> {
        let Record { head, body, offset } = record;
        let damage = |reason: &str| Damage {
            segment,
            offset,
            lsn: head.lsn,
            reason: format!("group {}: {reason}", head.group),
        };
        if head.kind == RecordKind::Table {
            return self.table(&body).map_err(|reason| damage(&reason));
        }
        if self.logs.get(&head.group).is_some_and(|log| log.quarantined.is_some()) {
            return Ok(());
        }
        note_record(&mut self.rows, head.kind, &head, &body).map_err(&damage)?;
        match head.kind {
            RecordKind::Entries => {
                let read = decode_entries(&body, head.first_index, head.term, head.count);
                let read = read.map_err(|why| damage(why.0))?;
                let log = self.logs.entry(head.group).or_default();
                append(&mut log.entries, read);
                let last = head.first_index + u64::from(head.count) - 1;
                extend_span(self.spans.entry(head.group).or_default(), segment, last);
            }
            RecordKind::Truncate => {
                let log = self.logs.entry(head.group).or_default();
                log.entries.retain(|entry| entry.index <= head.first_index);
            }
            RecordKind::Checkpoint => {
                let compacted = self.rows[&head.group].compacted_index;
                let log = self.logs.entry(head.group).or_default();
                while log.entries.front().is_some_and(|entry| entry.index <= compacted) {
                    log.entries.pop_front();
                }
            }
            RecordKind::GroupDestroy => {
                self.logs.remove(&head.group);
                self.spans.remove(&head.group);
            }
            _ => {}
        }
        Ok(())
    }

    fn unauthentic(&mut self, head: &RecordHead, damage: Damage) -> Result<(), Damage> {
        if !head.kind.is_numbered() || head.kind == RecordKind::GroupCreate {
            return Err(damage);
        }
        self.logs.entry(head.group).or_default().quarantined.get_or_insert(damage);
        Ok(())
    }
}

impl Replay {
    /// The first table is where everything starts; later ones must say what the records said.
    fn table(&mut self, body: &[u8]) -> Result<(), String> {
        for (group, row) in read_table(body)? {
            let log = self.logs.entry(group).or_default();
            if log.quarantined.is_some() {
                continue;
            }
            match self.rows.get(&group) {
                None => drop(self.rows.insert(group, row)),
                Some(known) if *known == row => {}
                Some(_) => {
                    return Err(format!("the table contradicts the records of group {group}"));
                }
            }
        }
        Ok(())
    }

    /// Every entry a group may still need must be there.
    fn check_complete(&mut self, segment: u64) -> Result<(), Damage> {
        for (&group, row) in &self.rows {
            let log = self.logs.entry(group).or_default();
            if log.quarantined.is_some() {
                continue;
            }
            while log.entries.front().is_some_and(|entry| entry.index <= row.compacted_index) {
                log.entries.pop_front();
            }
            let first = log.entries.front().map_or(row.last_index + 1, |entry| entry.index);
            let last = log.entries.back().map_or(row.last_index, |entry| entry.index);
            let covered = row.compacted_index.max(row.last_index.min(row.checkpoint_index));
            // Where a floor held the log below the checkpoint, what it held must be there: the
            // group's storage begins at `compacted_index`, and a hole would shift every entry.
            let begins = if log.entries.is_empty() { covered } else { row.compacted_index };
            if last != row.last_index || first > begins + 1 {
                let reason = format!(
                    "group {group} needs the entries {}..={}, the segments hold {first}..={last}",
                    row.compacted_index + 1,
                    row.last_index
                );
                return Err(Damage { segment, offset: 0, lsn: 0, reason });
            }
        }
        Ok(())
    }
}

fn append(log: &mut VecDeque<Entry>, entries: Vec<Entry>) {
    let Some(first) = entries.first().map(|entry| entry.index) else { return };
    while log.back().is_some_and(|entry| entry.index >= first) {
        log.pop_back();
    }
    if log.back().is_some_and(|entry| entry.index + 1 != first) {
        log.clear();
    }
    log.extend(entries);
}

/// The outcome of a recovery.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) replay: Replay,
    pub(crate) live: VecDeque<u64>,
    pub(crate) previous: Option<Sealed>,
    pub(crate) next_lsn: Lsn,
    pub(crate) summary: RecoverySummary,
}

/// What a start found, for the boot record and for logs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoverySummary {
    /// Segments read.
    pub segments: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Records that count.
    pub records: u64,
    /// The last record that counts.
    pub last_lsn: Lsn,
    /// Whether the journal was stopped in order.
    pub clean: bool,
    /// Where a torn tail was cut, if there was one.
    pub cut: Option<Damage>,
    /// Groups that are quarantined.
    pub quarantined: BTreeSet<u64>,
    /// Checkpoints that did not check out, while an older one could be used.
    pub checkpoints_refused: Vec<String>,
}

/// Reads every segment and checks every record: the start-up scrub (LOG-19).
pub(crate) fn recover(
    disk: &dyn Disk,
    ring: &mut KeyRing<'_>,
    node_id: u64,
) -> Result<Recovered, JournalError> {
    let sequences = list_segments(disk)?;
    let mut replay = Replay::default();
    let mut summary = RecoverySummary { clean: true, ..RecoverySummary::default() };
    let mut previous = None;
    let mut next_lsn = 1;
    let mut current = match sequences.first() {
        Some(&first) => Some(load_segment(disk, ring, first, Some(node_id))?),
        None => None,
    };
    if let Some(first) = &current {
        next_lsn = first.header.first_lsn;
    }
    for (position, &sequence) in sequences.iter().enumerate() {
        let loaded = current.take().expect("loaded when its predecessor was read");
        let next = match sequences.get(position + 1) {
            Some(&next) => Some(load_segment(disk, ring, next, Some(node_id))?),
            None => None,
        };
        check_chain(&loaded, next.as_ref(), next_lsn, position == 0)?;
        let limit = next.as_ref().and_then(|next| next.header.previous.as_ref());
        let keys = ring.epoch(loaded.header.key_epoch)?;
        let end = walk_segment(&loaded, &keys, limit, &mut replay);
        let end = end.map_err(JournalError::Damaged)?;
        summary.segments += 1;
        summary.bytes += loaded.bytes.len() as u64;
        summary.records += u64::from(end.sealed.records);
        if next.is_none() {
            sync_recovered(disk, &loaded)?;
            summary.clean = end.trailer;
            summary.cut = end.cut.map(|reason| Damage {
                segment: sequence,
                offset: end.sealed.end,
                lsn: end.next_lsn,
                reason: reason.to_owned(),
            });
        }
        next_lsn = end.next_lsn;
        previous = Some(end.sealed);
        current = next;
    }
    let last = sequences.last().copied().unwrap_or(0);
    replay.check_complete(last).map_err(JournalError::Damaged)?;
    summary.last_lsn = next_lsn - 1;
    let quarantined = replay.logs.iter().filter(|(_, log)| log.quarantined.is_some());
    summary.quarantined = quarantined.map(|(&group, _)| group).collect();
    Ok(Recovered { replay, live: sequences.into(), previous, next_lsn, summary })
}

/// After a crash of the process the tail may be in the page cache alone. It counts from now on, so
/// it must reach the disk before anything refers to it.
fn sync_recovered(disk: &dyn Disk, loaded: &Loaded) -> Result<(), JournalError> {
    let failed = |why| JournalError::disk("syncing the recovered tail", &loaded.path, why);
    disk.open(&loaded.path).map_err(failed)?.sync_data().map_err(failed)?;
    disk.sync_dir(WAL_DIR).map_err(failed)
}

/// Neighbours must name each other.
fn check_chain(
    loaded: &Loaded,
    next: Option<&Loaded>,
    next_lsn: Lsn,
    is_first: bool,
) -> Result<(), JournalError> {
    let header = &loaded.header;
    let damage = |segment, reason: String| {
        Err(JournalError::Damaged(Damage { segment, offset: 0, lsn: header.first_lsn, reason }))
    };
    if header.first_lsn != next_lsn {
        let reason = format!("it begins with record {}, not {next_lsn}", header.first_lsn);
        return damage(header.sequence, reason);
    }
    if is_first && header.sequence == 1 && header.previous.is_some() {
        return damage(1, "the first segment names one before it".to_owned());
    }
    let Some(next) = next else { return Ok(()) };
    let named = next.header.previous.as_ref().map(|previous| previous.sequence);
    if named != Some(header.sequence) || next.header.sequence != header.sequence + 1 {
        let reason = format!("segment {:016x} is missing before it", next.header.sequence - 1);
        return damage(next.header.sequence, reason);
    }
    Ok(())
}
