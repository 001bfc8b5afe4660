//! Checkpoints: the state of a group as of one index, in chunks that its owner names.
//!
//! A checkpoint exists when its manifest has its final name. Before that every chunk was written
//! and synced, the manifest was written and synced under another name, and the directory was
//! synced; so a crash leaves a whole checkpoint or none, and files without a manifest are litter
//! that the next start sweeps. A chunk is authenticated before anybody sees it.
//!
//! The log is cut behind a checkpoint by `Group::compact` alone, and never past the lowest of the
//! named floors it is given.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use crate::body::CheckpointMark;
use crate::crypto::{EpochKeys, SALT_BYTES, Sealer, TAG_BYTES};
use crate::disk::{Disk, read_whole, write_whole};
use crate::error::{JournalError, Refusal};
use crate::group::Group;
use crate::journal::Journal;
use crate::limits::{CHECKPOINTS_KEPT, CHUNK_BYTES_MAX, CHUNKS_MAX, MANIFEST_BYTES_MAX};
use crate::manifest::{Chunk, Manifest, ManifestError, Signer, is_name, sha256};
use crate::members::Members;
use crate::recovery::KeyRing;

pub(crate) const CHECKPOINT_DIR: &str = "checkpoints";

fn group_dir(group: u64) -> String {
    format!("{CHECKPOINT_DIR}/{group:016x}")
}

fn chunk_path(group: u64, index: u64, number: usize) -> String {
    format!("{}/{index:016x}-{number:05}.ckp", group_dir(group))
}

fn manifest_path(group: u64, index: u64) -> String {
    format!("{}/{index:016x}.json", group_dir(group))
}

/// The index in a manifest's file name.
fn index_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// What must stay in the log, by name: `effective_product_floor` is the lowest (LOG-30).
///
/// A floor of N says that entries up to N are not needed by whoever holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floors {
    floors: BTreeMap<String, u64>,
}

impl Floors {
    /// Nobody needs anything.
    pub fn none() -> Self {
        Self::default()
    }

    /// Somebody needs every entry above an index.
    #[must_use]
    pub fn hold(mut self, name: &str, index: u64) -> Self {
        self.floors.insert(name.to_owned(), index);
        self
    }

    /// The lowest floor and whose it is.
    pub fn effective_product_floor(&self) -> Option<(&str, u64)> {
        let lowest = self.floors.iter().min_by_key(|(_, index)| **index)?;
        Some((lowest.0, *lowest.1))
    }
}

/// How far a compaction went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Entries up to here may be gone from now on.
    pub index: u64,
    /// The floor that held it below the checkpoint, if one did.
    pub held_by: Option<String>,
}

/// A checkpoint that checks out.
#[derive(Clone)]
pub struct Checkpoint {
    manifest: Manifest,
    disk: Arc<dyn Disk>,
    keys: Arc<EpochKeys>,
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("manifest", &self.manifest).finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Whose state it is.
    pub fn group(&self) -> u64 {
        self.manifest.group
    }

    /// The last entry it covers.
    pub fn index(&self) -> u64 {
        self.manifest.index
    }

    /// That entry's term.
    pub fn term(&self) -> u64 {
        self.manifest.term
    }

    /// The members as of that entry.
    pub fn members(&self) -> &Members {
        &self.manifest.members
    }

    /// The version of its owner's chunks.
    pub fn schema(&self) -> u32 {
        self.manifest.schema
    }

    /// What the owner says its state hashes to.
    pub fn state_digest(&self) -> &[u8] {
        &self.manifest.state_digest
    }

    /// Its chunks, in the order they were written.
    pub fn chunks(&self) -> &[Chunk] {
        &self.manifest.chunks
    }

    /// Reads, checks and opens one chunk.
    pub fn read(&self, number: usize) -> Result<Bytes, JournalError> {
        let Manifest { group, index, salt, chunks, .. } = &self.manifest;
        let path = chunk_path(*group, *index, number);
        let failed = |why| JournalError::disk("reading a chunk", &path, why);
        let mut sealed = read_whole(&*self.disk.open(&path).map_err(failed)?).map_err(failed)?;
        let refuse = |reason: &str| {
            let reason = format!("chunk {number} {reason}");
            JournalError::Checkpoint { group: *group, index: *index, reason }
        };
        let chunk = chunks.get(number).ok_or_else(|| refuse("is not in the manifest"))?;
        if sha256(&sealed) != chunk.digest {
            return Err(refuse("has another digest"));
        }
        let key = self.keys.checkpoint(salt, *group, *index);
        if !key.open(number as u32, chunk.name.as_bytes(), &mut sealed) {
            return Err(refuse("is not authentic"));
        }
        sealed.truncate(sealed.len().saturating_sub(TAG_BYTES));
        if sealed.len() as u64 != chunk.bytes {
            return Err(refuse("has another length"));
        }
        Ok(Bytes::from(sealed))
    }

    /// Reads all and keeps nothing: whether every chunk checks out.
    pub fn verify(&self) -> Result<(), JournalError> {
        (0..self.manifest.chunks.len()).try_for_each(|number| self.read(number).map(drop))
    }
}

/// Writes one checkpoint; dropped before `publish` it leaves litter and no checkpoint.
///
/// It is independent of the group it began with, and may move to a thread of its own.
pub struct CheckpointWriter {
    manifest: Manifest,
    disk: Arc<dyn Disk>,
    keys: Arc<EpochKeys>,
    signer: Arc<Signer>,
    sealer: Sealer,
}

impl CheckpointWriter {
    /// Begins a checkpoint of what the group's machine has applied by now.
    pub fn begin(journal: &Journal, group: &Group, schema: u32) -> Result<Self, JournalError> {
        let (place, members) = group.checkpoint_place();
        let mut salt = [0; SALT_BYTES];
        journal.options().entropy.fill(&mut salt);
        let keys = Arc::clone(journal.keys());
        let manifest = Manifest {
            node: journal.options().node_id,
            group: group.id(),
            index: place.index,
            term: place.term,
            members,
            schema,
            key_epoch: keys.epoch,
            salt,
            chunks: Vec::new(),
            state_digest: Vec::new(),
        };
        let disk = Arc::clone(journal.disk());
        let dir = group_dir(manifest.group);
        let failed = |why| JournalError::disk("beginning a checkpoint", &dir, why);
        disk.make_dir(&dir).map_err(failed)?;
        disk.sync_dir(CHECKPOINT_DIR).map_err(failed)?;
        let names = disk.list(&dir).map_err(failed)?;
        let this = format!("{:016x}", manifest.index);
        if names.contains(&format!("{this}.json")) {
            let reason = "it exists already".to_owned();
            let Manifest { group, index, .. } = manifest;
            return Err(JournalError::Checkpoint { group, index, reason });
        }
        for litter in names.iter().filter(|name| name.starts_with(&this)) {
            disk.remove(&format!("{dir}/{litter}")).map_err(failed)?;
        }
        let sealer = keys.checkpoint(&manifest.salt, manifest.group, manifest.index);
        Ok(Self { manifest, disk, keys, signer: Arc::clone(journal.signer()), sealer })
    }

    /// The last entry the checkpoint covers.
    pub fn index(&self) -> u64 {
        self.manifest.index
    }

    /// Adds a chunk. Names need not differ; order is kept.
    pub fn chunk(&mut self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        let Manifest { group, index, chunks, .. } = &mut self.manifest;
        let number = chunks.len();
        if bytes.len() > CHUNK_BYTES_MAX || number >= CHUNKS_MAX || !is_name(name) {
            let reason = format!(
                "chunk {number} ({name:?}, {} bytes) is too large, one too many or badly named",
                bytes.len()
            );
            return Err(JournalError::Checkpoint { group: *group, index: *index, reason });
        }
        let mut sealed = Vec::with_capacity(bytes.len() + TAG_BYTES);
        sealed.extend_from_slice(bytes);
        let tag = self.sealer.seal(number as u32, name.as_bytes(), &mut sealed);
        sealed.extend_from_slice(&tag);
        let path = chunk_path(*group, *index, number);
        write_synced(&*self.disk, &path, &sealed)?;
        chunks.push(Chunk {
            name: name.to_owned(),
            bytes: bytes.len() as u64,
            digest: sha256(&sealed),
        });
        Ok(())
    }

    /// Signs the manifest and gives it its name: from here on the checkpoint exists.
    pub fn publish(mut self, state_digest: &[u8]) -> Result<Checkpoint, JournalError> {
        self.manifest.state_digest = state_digest.to_vec();
        let Manifest { group, index, .. } = self.manifest;
        let text = self.manifest.encode(&self.signer);
        if text.len() > MANIFEST_BYTES_MAX {
            let reason = "its manifest is too large".to_owned();
            return Err(JournalError::Checkpoint { group, index, reason });
        }
        let path = manifest_path(group, index);
        let half = format!("{path}.new");
        write_synced(&*self.disk, &half, text.as_bytes())?;
        let dir = group_dir(group);
        let failed = |why| JournalError::disk("publishing a checkpoint", &path, why);
        self.disk.sync_dir(&dir).map_err(failed)?;
        self.disk.rename(&half, &path).map_err(failed)?;
        self.disk.sync_dir(&dir).map_err(failed)?;
        Ok(Checkpoint { manifest: self.manifest, disk: self.disk, keys: self.keys })
    }
}

fn write_synced(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), JournalError> {
    let failed = |why| JournalError::disk("writing a checkpoint", path, why);
    let file = disk.create(path).map_err(failed)?;
    write_whole(&*file, 0, &[IoSlice::new(bytes)]).map_err(failed)?;
    file.sync_data().map_err(failed)
}

impl Group {
    /// Lets the log go up to a checkpoint, but never past the lowest floor (LOG-30).
    ///
    /// Segments that no group needs any more are recycled once the record of it is durable.
    /// Checkpoints but the newest two go as well.
    pub fn compact(
        &mut self,
        journal: &Journal,
        checkpoint: &Checkpoint,
        floors: &Floors,
    ) -> Result<Compaction, Refusal> {
        let group = self.id();
        if self.status().quarantined.is_some() {
            return Err(Refusal::Quarantined { group });
        }
        journal.admit(group, self.token())?;
        assert_eq!(checkpoint.group(), group, "a checkpoint covers its own group");
        assert!(checkpoint.index() <= self.status().applied, "only what is applied is covered");
        let mut compaction = Compaction { index: checkpoint.index(), held_by: None };
        if let Some((name, floor)) = floors.effective_product_floor()
            && floor < compaction.index
        {
            compaction = Compaction { index: floor, held_by: Some(name.to_owned()) };
        }
        // A floor below what is gone already cannot bring it back.
        compaction.index = compaction.index.max(self.status().compacted);
        let mark = CheckpointMark {
            index: checkpoint.index(),
            term: checkpoint.term(),
            compacted_index: compaction.index,
            compacted_term: self.term_at(compaction.index),
            members: checkpoint.members().clone(),
        };
        self.cover(journal, &mark);
        prune(&**journal.disk(), group);
        Ok(compaction)
    }
}

/// Removes all but the newest checkpoints. What fails stays, and is tried at the next compaction.
fn prune(disk: &dyn Disk, group: u64) {
    let dir = group_dir(group);
    let Ok(names) = disk.list(&dir) else { return };
    let published: BTreeSet<u64> = names.iter().filter_map(|name| index_of(name)).collect();
    let kept = published.iter().rev().nth(CHECKPOINTS_KEPT - 1).copied().unwrap_or(0);
    let old: Vec<&String> = names.iter().filter(|name| is_older(name, kept)).collect();
    // Manifests first: a manifest whose chunks are gone would look like damage.
    for name in old.iter().filter(|name| index_of(name).is_some()) {
        if disk.remove(&format!("{dir}/{name}")).is_err() {
            return;
        }
    }
    if disk.sync_dir(&dir).is_err() {
        return;
    }
    for name in old.iter().filter(|name| index_of(name).is_none()) {
        let _ = disk.remove(&format!("{dir}/{name}"));
    }
}

fn is_older(name: &str, kept: u64) -> bool {
    name.get(..16)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .is_some_and(|index| index < kept)
}

/// Every published checkpoint, by group and index.
pub(crate) fn list_checkpoints(disk: &dyn Disk) -> Result<Vec<(u64, u64)>, JournalError> {
    let listed = |dir: &str| {
        disk.list(dir).map_err(|why| JournalError::disk("listing checkpoints", dir, why))
    };
    let mut found = Vec::new();
    for group in listed(CHECKPOINT_DIR)? {
        let Ok(group) = u64::from_str_radix(&group, 16) else { continue };
        let indexes = listed(&group_dir(group))?;
        found.extend(indexes.iter().filter_map(|name| Some((group, index_of(name)?))));
    }
    Ok(found)
}

/// The newest checkpoint of a group that checks out, and what is wrong with newer ones.
pub(crate) fn find_checkpoint(
    disk: &Arc<dyn Disk>,
    ring: &mut KeyRing<'_>,
    signer: &Signer,
    group: u64,
) -> Result<(Option<Checkpoint>, Vec<JournalError>), JournalError> {
    let dir = group_dir(group);
    let names = disk.list(&dir);
    let names = names.map_err(|why| JournalError::disk("listing checkpoints", &dir, why))?;
    let mut refused = Vec::new();
    let indexes: BTreeSet<u64> = names.iter().filter_map(|name| index_of(name)).collect();
    for &index in indexes.iter().rev() {
        let loaded = load(disk, ring, signer, group, index)
            .and_then(|checkpoint| checkpoint.verify().map(|()| checkpoint));
        match loaded {
            Ok(checkpoint) => return Ok((Some(checkpoint), refused)),
            Err(newer @ JournalError::NewerFormat { .. }) => return Err(newer),
            Err(why) => refused.push(why),
        }
    }
    Ok((None, refused))
}

pub(crate) fn load(
    disk: &Arc<dyn Disk>,
    ring: &mut KeyRing<'_>,
    signer: &Signer,
    group: u64,
    index: u64,
) -> Result<Checkpoint, JournalError> {
    let path = manifest_path(group, index);
    let failed = |why| JournalError::disk("reading a manifest", &path, why);
    let text = read_whole(&*disk.open(&path).map_err(failed)?).map_err(failed)?;
    let refuse = |reason: &str| {
        let reason = reason.to_owned();
        JournalError::Checkpoint { group, index, reason }
    };
    let manifest = Manifest::decode(&text, signer).map_err(|why| match why {
        ManifestError::Newer(found) => {
            let known = crate::manifest::MANIFEST_FORMAT;
            JournalError::NewerFormat { path: path.clone(), found, known }
        }
        ManifestError::Refused(reason) => refuse(reason),
    })?;
    if manifest.group != group || manifest.index != index {
        return Err(refuse("the manifest has another checkpoint's name"));
    }
    let keys = ring.epoch(manifest.key_epoch)?;
    Ok(Checkpoint { manifest, disk: Arc::clone(disk), keys })
}
