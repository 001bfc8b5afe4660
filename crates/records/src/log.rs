//! The message log of one partition, as its owner has it.
//!
//! # Rules
//!
//! - One thread owns a log: the one that applies the partition's entries. It appends what apply
//!   says and decides when to seal, merge, retain and sweep; it never touches the disk for that.
//!   Jobs do ([`crate::SealJob`], [`crate::RewriteJob`], [`crate::SweepJob`]).
//! - Offsets are dense. A gap or a repeat that differs is a broken invariant and stops the owner.
//! - A record is durable through the replicated log before it is appended here; the tail in memory
//!   is rebuilt from there. The replicated log may be compacted up to `Manifest::end`, once a
//!   checkpoint with that manifest is durable.
//! - A chunk's file is removed when it is out of use, no reader is in the middle of it, and a list
//!   without it is durable. Not before.
//!
//! # A record's states
//!
//! open block → finished block of the tail → chunk of the log → (merged into a larger one)* →
//! gone, or kept while something refers to it → gone.
//!
//! Nothing here reads a clock, and nothing a reader does holds the log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::block::Identity;
use crate::cache::{BlockCache, Files};
use crate::chunk::{Chunk, ChunkInfo, ChunkKind, OpenFault, Place, id_of, is_unfinished};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::job::{Purpose, RewriteJob, Rewritten, SealJob, Sealed, SweepJob};
use crate::limits::{
    CACHE_BYTES_DEFAULT, CHUNK_BYTES_DEFAULT, HOLDS_MAX, MERGE_FAN_IN, MERGED_BYTES_DEFAULT,
    TAIL_BYTES_MAX,
};
use crate::manifest::{Manifest, UNFINISHED_NAME as UNFINISHED_MANIFEST};
use crate::reader::LogReader;
use crate::record::Record;
use crate::seal::Keys;
use crate::shared::{Shared, State};

/// The folder for files that are none of ours to delete and of no use.
const QUARANTINE: &str = "quarantine";

/// Sizes that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The tail is worth a chunk at this size.
    pub chunk_bytes: u64,
    /// Merging makes no chunk much larger.
    pub merged_bytes: u64,
    /// What opened blocks may take in memory.
    pub cache_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            merged_bytes: MERGED_BYTES_DEFAULT,
            cache_bytes: CACHE_BYTES_DEFAULT,
        }
    }
}

/// Numbers for chunks, taken by jobs on any thread; none is used twice.
#[derive(Debug, Clone)]
pub(crate) struct ChunkIds(Arc<AtomicU64>);

impl ChunkIds {
    pub(crate) fn take(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// What was found beside the list when a log was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Unfinished or unlisted files that were removed; the replicated log still has what they had.
    pub removed: Vec<String>,
    /// Unlisted files that cannot be read, moved out of the way and kept.
    pub quarantined: Vec<String>,
}

/// What an append did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    /// Records that are new.
    pub added: u64,
    /// Records that were there already, and equal.
    pub repeated: u64,
    /// Records that retention has dropped since; nothing is left to compare them with.
    pub expired: u64,
}

/// How long and how much to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// A chunk goes when its latest record is older.
    pub age_ms: Option<u64>,
    /// A chunk goes when what lies behind it has this much. So at least this much always stays,
    /// and at most one chunk more.
    pub bytes: Option<u64>,
}

/// Keeps the log from an offset on, whatever retention says, until released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who or what for.
    pub name: String,
    /// The first offset that stays.
    pub offset: u64,
}

/// When to make the tail a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealWhen {
    /// When it is worth one.
    Full,
    /// Whatever there is: a checkpoint or a clean end wants it.
    Now,
}

/// Frozen figures for exporters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// The first offset readers may ask for.
    pub earliest: u64,
    /// Where the tail begins.
    pub durable_end: u64,
    /// The offset that comes next.
    pub end: u64,
    /// Chunks of the log.
    pub chunk_count: usize,
    /// Their files.
    pub chunk_bytes: u64,
    /// Kept chunks.
    pub kept_count: usize,
    /// Records in them.
    pub kept_records: u64,
    /// Their files.
    pub kept_bytes: u64,
    /// Files out of use that wait for a durable list or a reader.
    pub obsolete_count: usize,
    /// Bytes in memory that are in no chunk yet.
    pub tail_bytes: u64,
    /// Named holds.
    pub hold_count: usize,
    /// The lowest held offset; the end without holds. What retention would have dropped below the
    /// end and above this is the price of holding.
    pub held_from: u64,
    /// Chunks that a job found damaged; they are not merged any more.
    pub suspect_count: usize,
}

/// See the head of this file.
#[derive(Debug)]
pub struct RecordLog {
    shared: Arc<Shared>,
    ids: ChunkIds,
    options: Options,
    sealing: bool,
    rewriting: bool,
    obsolete: Vec<Arc<Chunk>>,
    suspect: BTreeSet<u64>,
    holds: BTreeMap<String, u64>,
}

impl RecordLog {
    /// Opens a log as the last durable list says it is; a new one with an empty list. What was
    /// appended after `manifest.end` is handed over again by the owner, from the replicated log.
    ///
    /// Only footers are read. A listed chunk that is missing or damaged is an error: the replica
    /// stops, and asks another for it. An unlisted chunk is removed if it is whole (the replicated
    /// log has what it had) and set aside if it cannot be read.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &str,
        identity: Identity,
        keys: Keys,
        options: Options,
        manifest: &Manifest,
    ) -> Result<(Self, Found)> {
        manifest.check()?;
        let directory = directory.into();
        let place = Place { disk, directory, identity, keys };
        let names = look_around(&place)?;
        let open = |kind| -> Result<Vec<Arc<Chunk>>> {
            let listed = manifest.of_kind(kind);
            listed.map(|info| Chunk::open_listed(&place, info).map(Arc::new)).collect()
        };
        let (chunks, kept) = (open(ChunkKind::Log)?, open(ChunkKind::Kept)?);
        let state = State::new(chunks, kept, manifest.earliest, manifest.end);
        let found = clear_away(&place, manifest, &names)?;
        let used = names.iter().filter_map(|name| id_of(name));
        let next = used.max().map_or(1, |id| id.saturating_add(1));
        let shared = Arc::new(Shared {
            files: Files::new(place.disk.clone()),
            cache: BlockCache::new(options.cache_bytes),
            blocks_read: AtomicU64::new(0),
            state: Mutex::new(state),
            place,
        });
        let log = Self {
            shared,
            ids: ChunkIds(Arc::new(AtomicU64::new(next))),
            options,
            sealing: false,
            rewriting: false,
            obsolete: Vec::new(),
            suspect: BTreeSet::new(),
            holds: BTreeMap::new(),
        };
        Ok((log, found))
    }

    /// A reader of this log.
    pub fn reader(&self) -> LogReader {
        LogReader::new(self.shared.clone())
    }

    /// Appends the records of one applied entry, in order. Offsets that are there already are
    /// compared and skipped, so that a replay after a crash may begin anywhere at or before the
    /// durable end.
    pub fn append<'r>(
        &mut self,
        records: impl IntoIterator<Item = Record<'r>>,
    ) -> Result<Appended> {
        let mut done = Appended::default();
        let mut state = self.shared.state.lock();
        for record in records {
            let varying_bytes = record.check()?;
            if record.offset == state.end {
                state.push(&record, varying_bytes);
                done.added += 1;
            } else if record.offset > state.end {
                return Err(Error::Gap { expected: state.end, found: record.offset });
            } else if MutexGuard::unlocked(&mut state, || self.is_repeat(&record))? {
                done.repeated += 1;
            } else {
                done.expired += 1;
            }
        }
        Ok(done)
    }

    /// Whether the record is there; false if it has expired.
    fn is_repeat(&self, record: &Record<'_>) -> Result<bool> {
        let block = match self.reader().referenced_block(record.offset) {
            Ok(block) => block,
            Err(Error::OffsetExpired { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(row) = block.find(record.offset) else { return Ok(false) };
        let mut pairs = Vec::new();
        if block.record(row, &mut pairs) == *record {
            Ok(true)
        } else {
            Err(Error::Conflict { offset: record.offset })
        }
    }

    /// Whether the owner should stop proposing until a chunk was sealed: sealing does not keep up,
    /// and the tail is memory.
    pub fn is_tail_full(&self) -> bool {
        self.shared.state.lock().unsealed_bytes() >= TAIL_BYTES_MAX
    }

    /// The tail as a job, unless one is under way or there is nothing to do.
    pub fn plan_seal(&mut self, when: SealWhen) -> Option<SealJob> {
        if self.sealing {
            return None;
        }
        let mut state = self.shared.state.lock();
        match when {
            SealWhen::Full if state.tail_bytes < self.options.chunk_bytes => return None,
            SealWhen::Full => {}
            SealWhen::Now => state.close_block(),
        }
        if state.tail.is_empty() {
            return None;
        }
        self.sealing = true;
        Some(SealJob {
            place: self.shared.place.clone(),
            ids: self.ids.clone(),
            blocks: state.tail.iter().cloned().collect(),
            chunk_bytes_max: self.options.merged_bytes,
        })
    }

    /// The chunks are part of the log; the blocks leave the tail.
    pub fn publish_seal(&mut self, sealed: Sealed) {
        let mut state = self.shared.state.lock();
        let gone: u64 =
            state.tail.drain(..sealed.block_count).map(|block| block.body().len() as u64).sum();
        state.tail_bytes -= gone;
        if let Some(last) = sealed.chunks.last() {
            state.durable_end = last.info.last_offset + 1;
        }
        state.log.extend(sealed.chunks);
        self.sealing = false;
    }

    /// The job failed; the tail is as it was, and a later job may try again. (A node whose sync
    /// failed stops instead.)
    pub fn abandon_seal(&mut self) {
        self.sealing = false;
    }

    /// Neighbouring chunks of alike size that are better one, as a job.
    pub fn plan_merge(&mut self) -> Option<RewriteJob> {
        if self.rewriting {
            return None;
        }
        let most = self.options.merged_bytes;
        let worth_it = |window: &&[Arc<Chunk>]| {
            let sizes = window.iter().map(|chunk| chunk.info.file_bytes);
            let (sum, largest) = (sizes.clone().sum::<u64>(), sizes.max().unwrap_or(0));
            // Alike enough that no byte is written again for the sake of a few.
            sum <= most
                && sum >= 2 * largest
                && window.iter().all(|chunk| !self.suspect.contains(&chunk.info.id))
        };
        let sources = {
            let state = self.shared.state.lock();
            state.log.windows(MERGE_FAN_IN).find(worth_it)?.to_vec()
        };
        Some(self.rewrite(Purpose::Merge, sources, None))
    }

    /// Chunks that are older or more than wanted, as a job that keeps the rows at `referenced`:
    /// rising offsets that sessions, queues or anything else of the owner's still refer to. It is
    /// enough that they were complete when this is called, since nothing refers anew to what is
    /// old.
    pub fn plan_retention(
        &mut self,
        now_ms: u64,
        retention: &Retention,
        referenced: &Arc<[u64]>,
    ) -> Option<RewriteJob> {
        debug_assert!(referenced.is_sorted(), "sorted references are looked up by halving");
        if self.rewriting {
            return None;
        }
        let held_from = self.held_from();
        let sources: Vec<Arc<Chunk>> = {
            let state = self.shared.state.lock();
            let chunks: u64 = state.log.iter().map(|chunk| chunk.info.file_bytes).sum();
            let mut behind = chunks + state.unsealed_bytes();
            let goes = |chunk: &&Arc<Chunk>| {
                behind -= chunk.info.file_bytes;
                let ts_ms = chunk.info.ts_max_us.max(0).cast_unsigned() / 1000;
                let is_old =
                    retention.age_ms.is_some_and(|age_ms| ts_ms.saturating_add(age_ms) < now_ms);
                let is_much = retention.bytes.is_some_and(|bytes| behind >= bytes);
                chunk.info.last_offset < held_from && (is_old || is_much)
            };
            state.log.iter().take_while(goes).cloned().collect()
        };
        let goes = !sources.is_empty();
        goes.then(|| self.rewrite(Purpose::Retain, sources, Some(referenced.clone())))
    }

    /// Kept chunks of which at most half is still referred to, as a job.
    pub fn plan_thinning(&mut self, referenced: &Arc<[u64]>) -> Option<RewriteJob> {
        if self.rewriting {
            return None;
        }
        let mostly_gone = |chunk: &&Arc<Chunk>| {
            let from = referenced.partition_point(|offset| *offset < chunk.info.first_offset);
            let until = referenced.partition_point(|offset| *offset <= chunk.info.last_offset);
            (until - from) as u64 * 2 <= chunk.info.record_count
        };
        let sources: Vec<Arc<Chunk>> = {
            let state = self.shared.state.lock();
            let kept = state.kept.iter().skip_while(|chunk| !mostly_gone(chunk));
            kept.take_while(mostly_gone).cloned().collect()
        };
        let worth_it = !sources.is_empty();
        worth_it.then(|| self.rewrite(Purpose::Thin, sources, Some(referenced.clone())))
    }

    fn rewrite(
        &mut self,
        purpose: Purpose,
        sources: Vec<Arc<Chunk>>,
        referenced: Option<Arc<[u64]>>,
    ) -> RewriteJob {
        self.rewriting = true;
        RewriteJob {
            place: self.shared.place.clone(),
            ids: self.ids.clone(),
            purpose,
            sources,
            referenced,
            chunk_bytes_max: self.options.merged_bytes,
        }
    }

    /// The new chunks take the place of their sources, which are out of use from now on.
    pub fn publish_rewrite(&mut self, rewritten: Rewritten) {
        let mut state = self.shared.state.lock();
        let Rewritten { purpose, sources, chunks } = rewritten;
        let count = sources.len();
        match purpose {
            Purpose::Merge => {
                let from = position(&state.log, sources[0]);
                self.obsolete.extend(state.log.splice(from..from + count, chunks));
            }
            Purpose::Retain => {
                let from = position(&state.log, sources[0]);
                assert_eq!(from, 0, "retention begins at the oldest, and rewrites do not overlap");
                self.obsolete.extend(state.log.drain(..count));
                state.kept.extend(chunks);
                state.earliest =
                    state.log.first().map_or(state.durable_end, |chunk| chunk.info.first_offset);
            }
            Purpose::Thin => {
                let from = position(&state.kept, sources[0]);
                self.obsolete.extend(state.kept.splice(from..from + count, chunks));
            }
        }
        self.rewriting = false;
    }

    /// The job failed; nothing has changed. Damage is remembered: what is damaged is not merged.
    pub fn abandon_rewrite(&mut self, why: &Error) {
        if let Error::DamagedBlock { chunk, .. } | Error::DamagedChunk { chunk, .. } = why {
            self.suspect.insert(*chunk);
        }
        self.rewriting = false;
    }

    /// The list for the next checkpoint.
    pub fn manifest(&self) -> Manifest {
        let state = self.shared.state.lock();
        Manifest {
            earliest: state.earliest,
            end: state.durable_end,
            chunks: state.infos().cloned().collect(),
        }
    }

    /// The chunks of the next checkpoint.
    pub fn chunks(&self) -> Vec<ChunkInfo> {
        self.manifest().chunks
    }

    /// Files that can go now that `durable` is a durable list: out of use, not on it, and in
    /// nobody's hands.
    pub fn plan_sweep(&mut self, durable: &Manifest) -> Option<SweepJob> {
        let listed: BTreeSet<u64> = durable.chunks.iter().map(|chunk| chunk.id).collect();
        let can_go = |chunk: &mut Arc<Chunk>| {
            Arc::strong_count(chunk) == 1 && !listed.contains(&chunk.info.id)
        };
        let chunks: BTreeSet<u64> =
            self.obsolete.extract_if(.., can_go).map(|chunk| chunk.info.id).collect();
        (!chunks.is_empty()).then(|| SweepJob { place: self.shared.place.clone(), chunks })
    }

    /// Keeps everything from `offset` on until released; a second hold of a name replaces it.
    pub fn hold(&mut self, name: &str, offset: u64) -> Result<()> {
        if self.holds.len() == HOLDS_MAX && !self.holds.contains_key(name) {
            return Err(Error::TooMany { what: "holds", most: HOLDS_MAX });
        }
        let earliest = self.shared.state.lock().earliest;
        if offset < earliest {
            return Err(Error::OffsetExpired { from: offset, until: earliest });
        }
        self.holds.insert(name.to_owned(), offset);
        Ok(())
    }

    /// Ends a hold; whether there was one.
    pub fn release(&mut self, name: &str) -> bool {
        self.holds.remove(name).is_some()
    }

    /// All holds, by name.
    pub fn holds(&self) -> Vec<Hold> {
        let hold = |(name, offset): (&String, &u64)| Hold { name: name.clone(), offset: *offset };
        self.holds.iter().map(hold).collect()
    }

    fn held_from(&self) -> u64 {
        self.holds.values().copied().min().unwrap_or(u64::MAX)
    }

    /// Figures as of now.
    pub fn statistics(&self) -> LogStatistics {
        let state = self.shared.state.lock();
        let bytes = |chunks: &[Arc<Chunk>]| chunks.iter().map(|chunk| chunk.info.file_bytes).sum();
        LogStatistics {
            earliest: state.earliest,
            durable_end: state.durable_end,
            end: state.end,
            chunk_count: state.log.len(),
            chunk_bytes: bytes(&state.log),
            kept_count: state.kept.len(),
            kept_records: state.kept.iter().map(|chunk| chunk.info.record_count).sum(),
            kept_bytes: bytes(&state.kept),
            obsolete_count: self.obsolete.len(),
            tail_bytes: state.unsealed_bytes(),
            hold_count: self.holds.len(),
            held_from: self.held_from().min(state.end),
            suspect_count: self.suspect.len(),
        }
    }
}

fn position(chunks: &[Arc<Chunk>], id: u64) -> usize {
    let found = chunks.iter().position(|chunk| chunk.info.id == id);
    found.expect("only rewrites take chunks away, and there is one at a time")
}

fn look_around(place: &Place) -> Result<Vec<String>> {
    let told = |action| move |source| Error::disk(action, &*place.directory, source);
    place.disk.make_dir(&place.directory).map_err(told("make the directory"))?;
    place.disk.list(&place.directory).map_err(told("list"))
}

/// Removes or sets aside what is not on the list.
fn clear_away(place: &Place, manifest: &Manifest, names: &[String]) -> Result<Found> {
    let listed: BTreeSet<u64> = manifest.chunks.iter().map(|chunk| chunk.id).collect();
    let mut found = Found::default();
    for name in names {
        if is_unfinished(name) || name == UNFINISHED_MANIFEST {
            found.removed.push(name.clone());
        } else if let Some(id) = id_of(name).filter(|id| !listed.contains(id)) {
            match Chunk::open(place, id) {
                Ok(_) => found.removed.push(name.clone()),
                Err(OpenFault::Damaged(_)) => found.quarantined.push(name.clone()),
                // Not ours to judge: another release, or a key we were not given.
                Err(OpenFault::Other(Error::NewerFormat { .. } | Error::UnknownKey { .. })) => {
                    found.quarantined.push(name.clone());
                }
                Err(OpenFault::Other(error)) => return Err(error),
            }
        }
    }
    for name in &found.removed {
        let path = place.path(name);
        let removed = place.disk.remove(&path);
        removed.map_err(|source| Error::disk("remove", &path, source))?;
    }
    set_aside(place, &found.quarantined)?;
    if found != Found::default() {
        place.sync()?;
    }
    Ok(found)
}

fn set_aside(place: &Place, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let aside = place.path(QUARANTINE);
    let told = |source| Error::disk("set aside into", &aside, source);
    place.disk.make_dir(&aside).map_err(told)?;
    for name in names {
        place.disk.rename(&place.path(name), &format!("{aside}/{name}")).map_err(told)?;
    }
    place.disk.sync_dir(&aside).map_err(told)
}
