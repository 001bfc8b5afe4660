//! Looks at a data directory that is stopped or copied: everything is read, nothing is written.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use raft::eraftpb::EntryType;

use crate::body::decode_entries;
use crate::checkpoint::{Checkpoint, list_checkpoints, load};
use crate::disk::Disk;
use crate::error::{Damage, JournalError};
use crate::format::{RecordHead, RecordKind};
use crate::journal::{find_checkpoints, lock};
use crate::keys::KeyProvider;
use crate::manifest::Signer;
use crate::reader::Record;
use crate::recovery::{
    KeyRing, Loaded, Replay, SegmentEnd, Visitor, list_segments, load_segment, recover,
    walk_segment,
};
use crate::shared::Lsn;

/// How far an inspection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files looked at.
    pub done: usize,
    /// Files there are.
    pub total: usize,
    /// Bytes read so far.
    pub bytes: u64,
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its sequence number.
    pub sequence: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes up to the end of what counts.
    pub used: u64,
    /// Its first record's number.
    pub first_lsn: Lsn,
    /// Records of every kind.
    pub records: u32,
    /// Whether it ends with a trailer, or its successor vouches for it.
    pub sealed: bool,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupReport {
    /// Its term.
    pub term: u64,
    /// Whom it voted for in that term.
    pub vote: u64,
    /// The commit index the log knows of; a start may find more to be committed.
    pub commit: u64,
    /// Entries up to here may be gone.
    pub compacted: u64,
    /// The last index.
    pub last_index: u64,
    /// The newest checkpoint the log knows of.
    pub checkpoint: u64,
    /// Entries in the segments, replaced ones included.
    pub entries: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Why it is quarantined.
    pub quarantined: Option<Damage>,
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Whose.
    pub group: u64,
    /// Which.
    pub index: u64,
    /// Its chunks.
    pub chunks: usize,
    /// Their bytes, unsealed.
    pub bytes: u64,
    /// The state's digest, as its owner gave it.
    pub state_digest: Vec<u8>,
    /// What does not check out.
    pub damage: Option<String>,
}

/// All an inspection found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Oldest first.
    pub segments: Vec<SegmentReport>,
    /// By id.
    pub groups: BTreeMap<u64, GroupReport>,
    /// By group and index.
    pub checkpoints: Vec<CheckpointReport>,
    /// Records by kind.
    pub records: BTreeMap<RecordKind, u64>,
    /// Everything below the durable watermark that does not check out.
    pub damages: Vec<Damage>,
    /// Where a torn tail would be cut; that is no damage.
    pub cut: Option<Damage>,
    /// Whether the log ends with a trailer.
    pub clean: bool,
}

impl Report {
    /// Whether a start would find nothing wrong.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty() && self.checkpoints.iter().all(|found| found.damage.is_none())
    }
}

/// Reads and checks everything. Damage is in the report; errors are what keeps one from looking:
/// a wrong key, a newer format, a disk that cannot be read.
pub fn inspect(
    disk: &Arc<dyn Disk>,
    keys: &dyn KeyProvider,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, JournalError> {
    let mut ring = KeyRing::new(keys);
    let sequences = list_segments(&**disk)?;
    let checkpoints = list_checkpoints(&**disk)?;
    let total = sequences.len() + checkpoints.len();
    let mut bytes = 0;
    let mut done = 0;
    let mut report = Report::default();
    let mut counting = Counting::default();
    let mut next = None;
    // From the newest to the oldest would need no look ahead; records must be read in order.
    for (position, &sequence) in sequences.iter().enumerate() {
        let loaded = match next.take() {
            Some(loaded) => loaded,
            None => load_reported(&**disk, &mut ring, sequence, &mut report)?,
        };
        let following = match sequences.get(position + 1) {
            Some(&following) => Some(load_reported(&**disk, &mut ring, following, &mut report)?),
            None => None,
        };
        if let Some(loaded) = &loaded {
            bytes += loaded.bytes.len() as u64;
            let following = following.as_ref().and_then(Option::as_ref);
            check_segment(loaded, following, &mut ring, &mut report, &mut counting)?;
        }
        next = following;
        done += 1;
        progress(Progress { done, total, bytes });
    }
    counting.report(&mut report);
    let seed = keys.signing_seed().map_err(|why| JournalError::Key(why.into()))?;
    let signer = Signer::new(&seed);
    for (group, index) in checkpoints {
        let found = check_checkpoint(disk, &mut ring, &signer, group, index)?;
        bytes += found.bytes;
        report.checkpoints.push(found);
        done += 1;
        progress(Progress { done, total, bytes });
    }
    Ok(report)
}

fn load_reported(
    disk: &dyn Disk,
    ring: &mut KeyRing<'_>,
    sequence: u64,
    report: &mut Report,
) -> Result<Option<Loaded>, JournalError> {
    match load_segment(disk, ring, sequence, None) {
        Ok(loaded) => Ok(Some(loaded)),
        Err(JournalError::Damaged(damage)) => {
            report.damages.push(damage);
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

fn check_segment(
    loaded: &Loaded,
    following: Option<&Loaded>,
    ring: &mut KeyRing<'_>,
    report: &mut Report,
    counting: &mut Counting,
) -> Result<(), JournalError> {
    let keys = ring.epoch(loaded.header.key_epoch)?;
    let limit = following.and_then(|following| following.header.previous.as_ref());
    let limit = limit.filter(|limit| limit.sequence == loaded.header.sequence);
    let header = &loaded.header;
    let (end, used, records) = match walk_segment(loaded, &keys, limit, counting) {
        Ok(SegmentEnd { sealed, next_lsn, trailer, cut }) => {
            if following.is_none() {
                report.clean = trailer;
                report.cut = cut.map(|reason| Damage {
                    segment: header.sequence,
                    offset: sealed.end,
                    lsn: next_lsn,
                    reason: reason.to_owned(),
                });
            }
            (trailer || limit.is_some(), sealed.end, sealed.records)
        }
        Err(damage) => {
            // What follows cannot be told apart from consequences of this.
            counting.lost = true;
            let used = damage.offset;
            report.damages.push(damage);
            (false, used, 0)
        }
    };
    report.segments.push(SegmentReport {
        sequence: header.sequence,
        bytes: loaded.bytes.len() as u64,
        used,
        first_lsn: header.first_lsn,
        records,
        sealed: end,
    });
    Ok(())
}

fn check_checkpoint(
    disk: &Arc<dyn Disk>,
    ring: &mut KeyRing<'_>,
    signer: &Signer,
    group: u64,
    index: u64,
) -> Result<CheckpointReport, JournalError> {
    let mut found = CheckpointReport {
        group,
        index,
        chunks: 0,
        bytes: 0,
        state_digest: Vec::new(),
        damage: None,
    };
    match load(disk, ring, signer, group, index) {
        Ok(checkpoint) => {
            found.chunks = checkpoint.chunks().len();
            found.bytes = checkpoint.chunks().iter().map(|chunk| chunk.bytes).sum();
            found.state_digest = checkpoint.state_digest().to_vec();
            found.damage = checkpoint.verify().err().map(|why| why.to_string());
        }
        Err(why @ JournalError::Checkpoint { .. }) => found.damage = Some(why.to_string()),
        Err(other) => return Err(other),
    }
    Ok(found)
}

/// Replays and counts.
#[derive(Default)]
struct Counting {
    replay: Replay,
    records: BTreeMap<RecordKind, u64>,
    entries: BTreeMap<u64, (u64, u64)>,
    lost: bool,
    flaws: Vec<Damage>,
}

impl Counting {
    fn report(self, report: &mut Report) {
        report.records = self.records;
        report.damages.extend(self.flaws);
        for (group, row) in self.replay.rows {
            let (entries, bytes) = self.entries.get(&group).copied().unwrap_or_default();
            let log = self.replay.logs.get(&group);
            report.groups.insert(
                group,
                GroupReport {
                    term: row.term,
                    vote: row.vote,
                    commit: row.commit,
                    compacted: row.compacted_index,
                    last_index: row.last_index,
                    checkpoint: row.checkpoint_index,
                    entries,
                    bytes,
                    quarantined: log.and_then(|log| log.quarantined.clone()),
                },
            );
        }
    }
}

impl Visitor for Counting {
    fn record(&mut self, segment: u64, record: Record) -> Result<(), Damage> {
        let head = record.head;
        *self.records.entry(head.kind).or_default() += 1;
        if head.kind == RecordKind::Entries {
            let (entries, bytes) = self.entries.entry(head.group).or_default();
            *entries += u64::from(head.count);
            *bytes += head.record_bytes() as u64;
        }
        if self.lost { Ok(()) } else { self.replay.record(segment, record) }
    }

    fn unauthentic(&mut self, head: &RecordHead, damage: Damage) -> Result<(), Damage> {
        self.flaws.push(damage.clone());
        self.replay.unauthentic(head, damage)
    }
}

/// One record, opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedRecord {
    /// Its segment.
    pub segment: u64,
    /// Where it stands.
    pub offset: u64,
    /// Its number; marks and tables have that of the record after them.
    pub lsn: Lsn,
    /// What it is.
    pub kind: RecordKind,
    /// Whose; 0 for marks and tables.
    pub group: u64,
    /// Its first index, if it has one.
    pub first_index: u64,
    /// Its term, if it has one.
    pub term: u64,
    /// The payloads of entries; other records have none.
    pub payloads: Vec<Bytes>,
}

/// Hands every record that counts to `each`, in order, until it breaks.
pub fn dump(
    disk: &Arc<dyn Disk>,
    keys: &dyn KeyProvider,
    each: &mut dyn FnMut(DumpedRecord) -> ControlFlow<()>,
) -> Result<(), JournalError> {
    let mut ring = KeyRing::new(keys);
    let sequences = list_segments(&**disk)?;
    let mut dumping = Dumping { each, stopped: false };
    for (position, &sequence) in sequences.iter().enumerate() {
        let loaded = load_segment(&**disk, &mut ring, sequence, None)?;
        let following = match sequences.get(position + 1) {
            Some(&following) => Some(load_segment(&**disk, &mut ring, following, None)?),
            None => None,
        };
        let keys = ring.epoch(loaded.header.key_epoch)?;
        let limit = following.as_ref().and_then(|following| following.header.previous.as_ref());
        walk_segment(&loaded, &keys, limit, &mut dumping).map_err(JournalError::Damaged)?;
        if dumping.stopped {
            break;
        }
    }
    Ok(())
}

struct Dumping<'a> {
    each: &'a mut dyn FnMut(DumpedRecord) -> ControlFlow<()>,
    stopped: bool,
}

impl Visitor for Dumping<'_> {
    fn record(&mut self, segment: u64, record: Record) -> Result<(), Damage> {
        let Record { head, body, offset } = record;
        if self.stopped {
            return Ok(());
        }
        let payloads = if head.kind == RecordKind::Entries {
            let read = decode_entries(&body, head.first_index, head.term, head.count);
            let entries = read.map_err(|why| Damage {
                segment,
                offset,
                lsn: head.lsn,
                reason: why.0.to_owned(),
            })?;
            entries.into_iter().map(|entry| entry.data).collect()
        } else {
            Vec::new()
        };
        let dumped = DumpedRecord {
            segment,
            offset,
            lsn: head.lsn,
            kind: head.kind,
            group: head.group,
            first_index: head.first_index,
            term: head.term,
            payloads,
        };
        self.stopped = (self.each)(dumped).is_break();
        Ok(())
    }

    fn unauthentic(&mut self, _: &RecordHead, damage: Damage) -> Result<(), Damage> {
        Err(damage)
    }
}

/// Says that nobody writes in the directory, and on a disk opened to read keeps it so until the
/// guard is dropped.
pub fn hold(disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>, JournalError> {
    lock(disk)
}

/// What a start would make a machine of.
#[derive(Debug)]
pub struct Replayable {
    /// Where its machine is restored from; without one it begins empty.
    pub checkpoint: Option<Checkpoint>,
    /// What is applied behind it, by index; raft's own entries are left out.
    pub entries: Vec<(u64, Bytes)>,
    /// The last index of the group, raft's own entries included.
    pub last_index: u64,
}

/// Reads one group as a start would. Every entry counts that a lone voter would find committed.
pub fn replayable(
    disk: &Arc<dyn Disk>,
    keys: &dyn KeyProvider,
    group: u64,
) -> Result<Option<Replayable>, JournalError> {
    let mut ring = KeyRing::new(keys);
    let Some(&first) = list_segments(&**disk)?.first() else { return Ok(None) };
    let node_id = load_segment(&**disk, &mut ring, first, None)?.header.node_id;
    let mut recovered = recover(&**disk, &mut ring, node_id)?;
    let seed = keys.signing_seed().map_err(|why| JournalError::Key(why.into()))?;
    let mut found = find_checkpoints(disk, &mut ring, &Signer::new(&seed), &mut recovered)?;
    let Some(row) = recovered.replay.rows.get(&group) else { return Ok(None) };
    let log = recovered.replay.logs.remove(&group).unwrap_or_default();
    if let Some(damage) = log.quarantined {
        return Err(JournalError::Damaged(damage));
    }
    let checkpoint = found.remove(&group);
    let behind = checkpoint.as_ref().map_or(0, Checkpoint::index);
    let entries = log.entries.into_iter().filter(|entry| entry.index > behind);
    let entries = entries
        .filter(|entry| entry.entry_type == EntryType::EntryNormal && !entry.data.is_empty());
    Ok(Some(Replayable {
        checkpoint,
        entries: entries.map(|entry| (entry.index, entry.data)).collect(),
        last_index: row.last_index.max(behind),
    }))
}
