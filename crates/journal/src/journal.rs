//! The log of a node: opening it, its watermark, its end.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use raft::eraftpb::Entry;

use crate::body::{CheckpointMark, GroupRow};
use crate::boot;
use crate::checkpoint::{CHECKPOINT_DIR, Checkpoint, find_checkpoint};
use crate::crypto::EpochKeys;
use crate::disk::Disk;
use crate::error::{Damage, JournalError, Refusal};
use crate::format::{RecordKind, Sealed, align};
use crate::keys::KeyProvider;
use crate::limits::{GROUPS_MAX, entry_bytes_max};
use crate::manifest::Signer;
use crate::members::Members;
use crate::options::{Drive, JournalOptions};
use crate::recovery::{KeyRing, Recovered, RecoverySummary, recover};
use crate::segment::{WAL_DIR, segment_path};
use crate::shared::{Lsn, Shared, Stager, Wake, WakeToken};
use crate::shelf::Shelf;
use crate::statistics::{Counters, Statistics};
use crate::thread::Threads;
use crate::writer::{Beginning, Writer};

const LOCK_PATH: &str = "lock";

/// A group that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its id, unique on all nodes and never used again.
    pub id: u64,
    /// Its first members; every node must make it with the same ones.
    pub members: Members,
    /// Which of the node's record keys protect it; tenants get domains of their own later.
    pub key_domain: u32,
}

/// A group as the log left it, for `Group::start`.
#[derive(Debug)]
pub struct RecoveredGroup {
    pub(crate) id: u64,
    pub(crate) node_id: u64,
    pub(crate) row: GroupRow,
    pub(crate) entries: VecDeque<Entry>,
    pub(crate) quarantined: Option<Damage>,
    pub(crate) entry_bytes_max: usize,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Whether the checkpoint is ahead of the log.
    pub(crate) skipped: bool,
}

impl RecoveredGroup {
    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Why it takes no writes, if it does not: something below the durable watermark is damaged.
    pub fn quarantined(&self) -> Option<&Damage> {
        self.quarantined.as_ref()
    }

    /// What its machine is to be restored from; without one it begins empty.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// The last index the log has of it.
    pub fn last_index(&self) -> u64 {
        self.row.last_index
    }
}

/// The log of one node.
pub struct Journal {
    shared: Arc<Shared>,
    shelf: Arc<Shelf>,
    disk: Arc<dyn Disk>,
    options: JournalOptions,
    counters: Arc<Counters>,
    keys: Arc<EpochKeys>,
    signer: Arc<Signer>,
    summary: RecoverySummary,
    groups: Mutex<BTreeSet<u64>>,
    threads: Option<Threads>,
    pumped: Option<Mutex<Writer>>,
    /// Held to the end: two writers in one directory would destroy it.
    _lock: Box<dyn Any + Send + Sync>,
}

impl Journal {
    /// Locks the directory, reads and checks everything in it, and starts to write.
    ///
    /// `wake` is called from the writer's thread and must not block.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: JournalOptions,
        keys: &dyn KeyProvider,
        wake: Wake,
    ) -> Result<(Self, Vec<RecoveredGroup>), JournalError> {
        Self::open_if(disk, options, keys, wake, |_| Ok(()))
    }

    /// Like `open`, but `accept` judges what was found before anything is written: a start that it
    /// refuses leaves every file as it was, however often it is tried.
    pub fn open_if<E: From<JournalError>>(
        disk: Arc<dyn Disk>,
        options: JournalOptions,
        keys: &dyn KeyProvider,
        wake: Wake,
        accept: impl FnOnce(&[RecoveredGroup]) -> Result<(), E>,
    ) -> Result<(Self, Vec<RecoveredGroup>), E> {
        options.check()?;
        let failed = |why| JournalError::disk("making the directories", WAL_DIR, why);
        disk.make_dir(WAL_DIR).map_err(failed)?;
        disk.make_dir(CHECKPOINT_DIR).map_err(failed)?;
        disk.sync_dir("").map_err(failed)?;
        let lock = lock(&*disk)?;
        let mut ring = KeyRing::new(keys);
        let mut recovered = recover(&*disk, &mut ring, options.node_id)?;
        let seed = keys.signing_seed().map_err(|why| JournalError::Key(why.into()))?;
        let signer = Arc::new(Signer::new(&seed));
        let checkpoints = find_checkpoints(&disk, &mut ring, &signer, &mut recovered)?;
        let epoch = Arc::new(EpochKeys::load(keys, keys.current_epoch())?);
        let shared = Arc::new(Shared::new(recovered.next_lsn, wake));
        let counters = Arc::new(Counters::default());
        let summary = recovered.summary.clone();
        let recovered_end = recovered.previous.clone();
        let (groups, beginning) = split(recovered, checkpoints, &options);
        accept(&groups)?;
        let shelf = Arc::new(Shelf::open(Arc::clone(&disk), options.segment_bytes)?);
        let mut writer = Writer::new(
            Arc::clone(&shared),
            Arc::clone(&shelf),
            Arc::clone(&disk),
            Arc::clone(&epoch),
            &options,
            Arc::clone(&counters),
            beginning,
        );
        let ended =
            recovered_end.filter(|_| summary.quarantined.is_empty() && summary.cut.is_none());
        writer.begin()?;
        if let Some(ended) = ended.filter(|_| !shared.is_full()) {
            give_back(&*disk, &ended, options.alignment);
        }
        let ids = groups.iter().map(RecoveredGroup::id).collect();
        let (threads, pumped) = match options.drive {
            Drive::Pump => (None, Some(Mutex::new(writer))),
            Drive::Threads => {
                let clock = Arc::clone(&options.clock);
                let started = Threads::start(writer, Arc::clone(&shared), &shelf, clock);
                let threads = started
                    .map_err(|why| JournalError::disk("starting the writer", "thread", why))?;
                (Some(threads), None)
            }
        };
        let groups_known = Mutex::new(ids);
        let journal = Self {
            shared,
            shelf,
            disk,
            options,
            counters,
            keys: epoch,
            signer,
            summary,
            groups: groups_known,
            threads,
            pumped,
            _lock: lock,
        };
        boot::write_record(&journal);
        for group in &groups {
            journal.skip_to_checkpoint(group);
        }
        Ok((journal, groups))
    }

    /// After a cut of power under `Durability::Group` a checkpoint may be ahead of the log.
    fn skip_to_checkpoint(&self, group: &RecoveredGroup) {
        let Some(checkpoint) = group.checkpoint.as_ref().filter(|_| group.skipped) else { return };
        let mark = mark_of(checkpoint);
        let (index, term) = (mark.index, mark.term);
        let mut stager = self.stager(group.id, group.row.key_domain);
        stager.push(RecordKind::Checkpoint, (index, term, 0), |out| mark.encode(out));
        stager.finish_lazily();
    }

    /// Makes a group. It exists once a record staged after it is durable.
    pub fn create_group(&self, spec: &GroupSpec) -> Result<RecoveredGroup, JournalError> {
        let refuse = |problem| Err(JournalError::Group { group: spec.id, problem });
        if !spec.members.is_sound() {
            return refuse("has no voters, or too many members, or a member 0");
        }
        let mut groups = self.groups.lock();
        if groups.contains(&spec.id) {
            return refuse("exists already");
        }
        if groups.len() >= GROUPS_MAX {
            return refuse("is one more than a journal holds");
        }
        groups.insert(spec.id);
        drop(groups);
        let row = GroupRow {
            key_domain: spec.key_domain,
            members: spec.members.clone(),
            ..GroupRow::default()
        };
        let mut stager = self.stager(spec.id, spec.key_domain);
        stager.push(RecordKind::GroupCreate, (0, 0, 0), |out| row.encode(spec.id, out));
        stager.finish_lazily();
        Ok(RecoveredGroup {
            id: spec.id,
            node_id: self.options.node_id,
            row,
            entries: VecDeque::new(),
            quarantined: None,
            entry_bytes_max: entry_bytes_max(self.options.segment_bytes),
            checkpoint: None,
            skipped: false,
        })
    }

    /// Ends a group whose `Group` is gone; its records are given up with their segments.
    pub fn destroy_group(&self, group: u64) -> Result<(), JournalError> {
        if !self.groups.lock().remove(&group) {
            return Err(JournalError::Group { group, problem: "does not exist" });
        }
        let mut stager = self.stager(group, 0);
        stager.push(RecordKind::GroupDestroy, (0, 0, 0), |_| {});
        stager.finish_unwatched();
        Ok(())
    }

    /// Everything up to here may be acknowledged.
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.acknowledged()
    }

    /// Everything up to here was synced; behind `durable_lsn` only under `Durability::Group`.
    pub fn synced_lsn(&self) -> Lsn {
        self.shared.synced()
    }

    /// Why the journal stopped for good, if it did.
    pub fn failure(&self) -> Option<JournalError> {
        self.shared.failure()
    }

    /// Whether the disk has no room for the next segment. It ends by itself.
    pub fn is_full(&self) -> bool {
        self.shared.is_full()
    }

    /// What the start found.
    pub fn recovery(&self) -> &RecoverySummary {
        &self.summary
    }

    /// The writer's counters.
    pub fn statistics(&self) -> Statistics {
        self.counters.snapshot()
    }

    /// How it was opened.
    pub fn options(&self) -> &JournalOptions {
        &self.options
    }

    /// The disk it was opened on.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(crate) fn keys(&self) -> &Arc<EpochKeys> {
        &self.keys
    }

    pub(crate) fn signer(&self) -> &Arc<Signer> {
        &self.signer
    }

    pub(crate) fn admit(&self, group: u64, token: WakeToken) -> Result<(), Refusal> {
        self.shared.admit(group, token)
    }

    pub(crate) fn stager(&self, group: u64, key_domain: u32) -> Stager<'_> {
        self.shared.stage(group, key_domain)
    }

    /// Does what the threads would do, until there is nothing to do. For `Drive::Pump` alone.
    pub fn pump(&self) -> Result<bool, JournalError> {
        let writer = self.pumped.as_ref().expect("only a journal without threads is pumped");
        let mut writer = writer.lock();
        let mut moved = false;
        loop {
            match writer.pump() {
                Ok(true) => moved = true,
                Ok(false) => break,
                Err(why) => {
                    self.shared.fail(why.clone());
                    return Err(why);
                }
            }
            self.shelf.work_once();
        }
        Ok(moved)
    }

    /// Writes what is staged, seals the segment and lets the directory go.
    pub fn stop(mut self) -> Result<(), JournalError> {
        if let Some(writer) = self.pumped.take()
            && !self.shared.has_failed()
        {
            self.shared.staging.lock().stopping = true;
            writer.into_inner().finish()?;
        }
        self.end_threads();
        self.failure().map_or(Ok(()), Err)
    }

    fn end_threads(&mut self) {
        let Some(threads) = self.threads.take() else { return };
        self.shared.staging.lock().stopping = true;
        self.shared.work.notify_all();
        self.shelf.stop();
        threads.join();
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// Gives the zeros behind a recovered segment's end back: starts in a row shall not fill the disk.
///
/// The new segment's header says where the old one ends, so nothing that counts is touched, and if
/// it fails nothing is lost but room.
fn give_back(disk: &dyn Disk, ended: &Sealed, alignment: u32) {
    let used = align(ended.end, alignment) + u64::from(alignment);
    let path = segment_path(ended.sequence);
    let _ = disk
        .open(&path)
        .and_then(|file| if file.length()? > used { file.cut_off(used) } else { Ok(()) });
}

pub(crate) fn lock(disk: &dyn Disk) -> Result<Box<dyn Any + Send + Sync>, JournalError> {
    disk.lock(LOCK_PATH).map_err(|why| {
        if why.kind() == std::io::ErrorKind::WouldBlock {
            return JournalError::Locked { path: LOCK_PATH.to_owned() };
        }
        JournalError::disk("locking", LOCK_PATH, why)
    })
}

/// A log that ends where a checkpoint does.
fn mark_of(checkpoint: &Checkpoint) -> CheckpointMark {
    let (index, term) = (checkpoint.index(), checkpoint.term());
    CheckpointMark {
        index,
        term,
        compacted_index: index,
        compacted_term: term,
        members: checkpoint.members().clone(),
    }
}

/// The newest usable checkpoint of each group; a group whose log needs one and has none is an
/// error.
pub(crate) fn find_checkpoints(
    disk: &Arc<dyn Disk>,
    ring: &mut KeyRing<'_>,
    signer: &Signer,
    recovered: &mut Recovered,
) -> Result<BTreeMap<u64, Checkpoint>, JournalError> {
    let mut found = BTreeMap::new();
    for (&group, row) in &recovered.replay.rows {
        let (checkpoint, refused) = find_checkpoint(disk, ring, signer, group)?;
        let healthy = !recovered.summary.quarantined.contains(&group);
        let reached = checkpoint.as_ref().map_or(0, Checkpoint::index);
        // Without a checkpoint the members at the beginning are unknown once one was recorded.
        if healthy
            && (reached < row.compacted_index || (checkpoint.is_none() && row.checkpoint_index > 0))
        {
            let index = row.checkpoint_index;
            let none = || JournalError::Checkpoint { group, index, reason: "it is gone".into() };
            return Err(refused.into_iter().next().unwrap_or_else(none));
        }
        let told = refused.iter().map(ToString::to_string);
        recovered.summary.checkpoints_refused.extend(told);
        if let Some(checkpoint) = checkpoint {
            found.insert(group, checkpoint);
        }
    }
    Ok(found)
}

/// What the shards get, and what the writer goes on from.
fn split(
    recovered: Recovered,
    mut checkpoints: BTreeMap<u64, Checkpoint>,
    options: &JournalOptions,
) -> (Vec<RecoveredGroup>, Beginning) {
    let Recovered { mut replay, live, previous, next_lsn, summary } = recovered;
    let mut groups = Vec::with_capacity(replay.rows.len());
    for (&id, row) in &replay.rows {
        let log = replay.logs.remove(&id).unwrap_or_default();
        let mut group = RecoveredGroup {
            id,
            node_id: options.node_id,
            row: row.clone(),
            entries: log.entries,
            quarantined: log.quarantined,
            checkpoint: checkpoints.remove(&id),
            skipped: false,
            entry_bytes_max: entry_bytes_max(options.segment_bytes),
        };
        // The writer's rows stay what the log says; a record will carry the group over the gap.
        if let Some(checkpoint) = &group.checkpoint
            && checkpoint.index() > row.last_index
        {
            group.entries.clear();
            group.skipped = true;
            group.row.cover(&mark_of(checkpoint));
        }
        groups.push(group);
    }
    let beginning = Beginning {
        rows: replay.rows,
        spans: replay.spans,
        live,
        previous,
        next_lsn,
        pinned: summary.quarantined,
    };
    (groups, beginning)
}
