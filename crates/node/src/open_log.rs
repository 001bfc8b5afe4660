//! Opening a node's log: keys, journal, the state it leads to, and the first entries of this life.
//!
//! Before anybody connects: everything the log holds is applied, what it comes to is thrown away
//! (whoever was to be answered is gone), and what only the end of the last life makes true is
//! committed: limits that were changed in the configuration, and the loss of every connection that
//! was open. All of it waits for the disk here, so a broker that says `ready` has its state whole.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use quantumqtt_journal::{
    Checkpoint, Damage, Durability, FileDisk, Group, GroupOptions, GroupSpec, Journal,
    JournalError, JournalOptions, KeyError, LocalKeyFile, Members, RecoveredGroup, WakeToken,
};
use quantumqtt_machine::{
    Command, ConnectionLost, Effect, EntryBuilder, EntryHeader, Limits, Machine, RestoreError,
    Restorer,
};
use quantumqtt_reactor::{Clock, Poster};
use quantumqtt_records::limits::POOL_BYTES_DEFAULT;
use quantumqtt_records::{Error as RecordsError, Manifest, ReaderPool, Retention};

use crate::checkpointer::{Cadence, Checkpointer, RECORDS, Wanted};
use crate::config::LogConfig;
use crate::keeper::{KeeperThread, Keeping};
use crate::limits::{GROUP_SYNC_BYTES, RECORD_READERS, WAL_FOLDER};
use crate::log::{DurableLog, Log};
use crate::log_view::LogView;
use crate::message_log::{Intake, MessageLog};
use crate::open_records::Replayed;
use crate::partition::{Partition, PartitionError, Recording};
use crate::shard::Mail;

/// The one partition's group. Ids are never used again, so that a stale message finds nobody.
pub(crate) const GROUP: u64 = 1;
/// Which of the node's record keys protect it: the default tenant's.
const KEY_DOMAIN: u32 = 0;

/// A node's log cannot be opened. Nothing was overwritten.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The directory cannot be used.
    #[error("data directory {path} cannot be used")]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is a log, but no key to read it with.
    #[error("key file {path} is missing, and the log in {directory} was written under it")]
    KeyMissing {
        /// Where the key was looked for.
        path: PathBuf,
        /// The directory with the log.
        directory: PathBuf,
    },
    /// The key file cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The journal says no.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Something that was acknowledged is damaged.
    #[error("the log is damaged where it was durable: {0}")]
    Quarantined(Damage),
    /// The checkpoint's bytes are whole, but they are no state.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The message log says no.
    #[error("the message log cannot be opened: {0}")]
    Records(#[from] RecordsError),
    /// The threads that keep and read the message log cannot be had.
    #[error("no thread for the message log")]
    Threads(#[source] std::io::Error),
    /// There is no room to begin another file of the log.
    #[error("the disk has no room for the log")]
    Full,
    /// The log holds what this build cannot apply.
    #[error("{0}")]
    Replay(String),
}

impl LogError {
    /// How to go on.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "name another one with --data, or mend its permissions",
            Self::KeyMissing { .. } => {
                "put the key file back where it was; without it the log cannot be read"
            }
            Self::Key(_) => "the key file must be a plain file of this user with mode 0600",
            Self::Journal(error) => error.hint(),
            Self::Records(RecordsError::Disk { .. }) => {
                "look at the disk of the data directory, then start again"
            }
            Self::Threads(_) => "raise the limit of processes (ulimit -u)",
            Self::Full => "make room on the disk of the data directory, then start again",
            Self::Records(_) | Self::Quarantined(_) => {
                "nothing was overwritten: copy the directory away, then restore a backup"
            }
            Self::Restore(_) | Self::Replay(_) => {
                "start the version that wrote the log, or a later one; if it was this one, please \
                 report it"
            }
        }
    }
}

impl From<PartitionError> for LogError {
    fn from(error: PartitionError) -> Self {
        Self::Replay(error.to_string())
    }
}

/// What the journal's writer rings: at first whoever opens the log, then the shards.
#[derive(Default)]
pub(crate) struct Bell {
    shards: OnceLock<Poster<Mail>>,
    has_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// From now on shards are rung.
    pub(crate) fn hand_to(&self, shards: Poster<Mail>) {
        // Whoever hands it over twice has two reactors; the first keeps it.
        let _ = self.shards.set(shards);
    }

    fn ring(&self, token: WakeToken) {
        if let Some(shards) = self.shards.get() {
            shards.post(token as u16, Mail::LogMoved);
        } else {
            *self.has_rung.lock() = true;
            self.rung.notify_all();
        }
    }

    /// The thread that writes a checkpoint asks its owner for something.
    pub(crate) fn want(&self, owner: u16, wanted: Wanted) {
        if let Some(shards) = self.shards.get() {
            shards.post(owner, Mail::CheckpointWants(wanted));
        }
    }

    fn wait(&self) {
        let mut has_rung = self.has_rung.lock();
        while !std::mem::take(&mut *has_rung) {
            self.rung.wait(&mut has_rung);
        }
    }
}

/// A log that was opened, and the partition on it.
pub(crate) struct Opened {
    pub(crate) partition: Partition,
    pub(crate) view: Arc<LogView>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) message_log: MessageLog,
    pub(crate) keys: Arc<LocalKeyFile>,
}

/// What opening needs to know of the partition.
pub(crate) struct Beginning {
    pub(crate) header: EntryHeader,
    pub(crate) limits: Limits,
    /// The end of the last life was no failure of those who were connected.
    pub(crate) will_grace_s: u32,
    pub(crate) owner: u16,
    pub(crate) tenant: Arc<str>,
    pub(crate) now_ms: u64,
    pub(crate) clock: Clock,
}

/// See the head of this file.
pub(crate) fn open(config: &LogConfig, beginning: &Beginning) -> Result<Opened, LogError> {
    let unusable = |source| LogError::Directory { path: config.directory.clone(), source };
    let disk = FileDisk::new(&config.directory).map_err(unusable)?;
    let keys = Arc::new(open_keys(config)?);
    let mut options = JournalOptions::new(u64::from(beginning.header.leader));
    options.segment_bytes = config.segment_bytes;
    if let Some(delay) = config.group_delay {
        let delay_ms = delay.as_millis().try_into().unwrap_or(u64::MAX);
        options.durability = Durability::Group { delay_ms, bytes: GROUP_SYNC_BYTES };
    }
    let bell = Arc::new(Bell::default());
    let wake = {
        let bell = Arc::clone(&bell);
        Arc::new(move |token| bell.ring(token))
    };
    let mut restored = None;
    let accept = |groups: &[RecoveredGroup]| {
        restored = restore_if_sound(groups)?;
        Ok::<(), LogError>(())
    };
    let (journal, groups) = Journal::open_if(Arc::new(disk), options, &*keys, wake, accept)?;
    let recovered = match groups.into_iter().find(|group| group.id() == GROUP) {
        Some(recovered) => recovered,
        None => make_group(&journal, beginning)?,
    };
    let journal = Arc::new(journal);
    let view = Arc::new(LogView::new(Arc::clone(&journal)));
    let cadence = Cadence {
        interval_ms: config.checkpoint_interval.as_millis() as u64,
        log_bytes: config.checkpoint_log_bytes,
    };
    let mut checkpointer =
        Checkpointer::new(cadence, Arc::clone(&bell), beginning.owner, beginning.now_ms);
    let (machine, listed) = match restored {
        None => (Machine::new(beginning.header.partition, Limits::default()), None),
        Some((index, machine, listed)) => {
            checkpointer.restored_from(index);
            view.checkpoint_index.store(index, Ordering::Relaxed);
            (machine, listed)
        }
    };
    let next_offset = machine.statistics().next_offset;
    let mut records = Replayed::open(config, beginning, &*keys, listed, next_offset)?;
    let group = Group::start(recovered, GroupOptions::new(usize::from(beginning.owner)));
    let log = DurableLog::new(Arc::clone(&journal), group, Arc::clone(&view));
    let log = Log::Journal(Box::new(log));
    let mut partition = Partition::new(machine, beginning.header, log);
    settle(&mut partition, &|| bell.wait(), &mut |_, _, effects| records.take(effects))?;
    records.append()?;
    begin_life(&mut partition, beginning);
    settle(&mut partition, &|| bell.wait(), &mut |_, _, effects| records.take(effects))?;
    let message_log = keep_records(config, beginning, &bell, &journal, records, &mut partition)?;
    Ok(Opened { partition, view, bell, checkpointer, message_log, keys })
}

/// What a checkpoint holds: its place, the state, and the list of chunks.
type Restored = (u64, Machine, Option<Manifest>);

/// Judge what the journal found while nothing was written yet: damage to what was acknowledged
/// refuses the start, and so does a checkpoint that holds no state.
fn restore_if_sound(groups: &[RecoveredGroup]) -> Result<Option<Restored>, LogError> {
    let Some(found) = groups.iter().find(|group| group.id() == GROUP) else { return Ok(None) };
    if let Some(damage) = found.quarantined() {
        return Err(LogError::Quarantined(damage.clone()));
    }
    let Some(checkpoint) = found.checkpoint() else { return Ok(None) };
    let (machine, listed) = restore(checkpoint)?;
    Ok(Some((checkpoint.index(), machine, listed)))
}

/// From now on a thread keeps the message log.
fn keep_records(
    config: &LogConfig,
    beginning: &Beginning,
    bell: &Arc<Bell>,
    journal: &Arc<Journal>,
    records: Replayed,
    partition: &mut Partition,
) -> Result<MessageLog, LogError> {
    let (log, mut first) = records.into_parts();
    let intake = Arc::new(Intake::new());
    let pool = ReaderPool::start(RECORD_READERS, POOL_BYTES_DEFAULT).map_err(LogError::Threads)?;
    let message_log = MessageLog::new(log.reader(), pool, Arc::clone(&intake));
    let (bell, owner) = (Arc::clone(bell), beginning.owner);
    let journal = Arc::clone(journal);
    let keeping = Keeping {
        log,
        intake: Arc::clone(&intake),
        is_synced: Box::new(move |lsn| journal.synced_lsn() >= lsn),
        routing_epoch: beginning.header.routing_epoch,
        retention: Retention {
            age_ms: config.retention_age.map(|age| age.as_millis() as u64),
            bytes: config.retention_bytes,
        },
        clock: beginning.clock,
        ring: Box::new(move || bell.ring(usize::from(owner))),
    };
    let keeper = KeeperThread::start(keeping).map_err(LogError::Threads)?;
    partition.keep_records(Recording { intake, _keeper: keeper });
    partition.record(&mut first);
    Ok(message_log)
}

/// The state of a checkpoint of a node's own partition, for tools that look at a stopped log.
pub fn state_of(checkpoint: &Checkpoint) -> Result<Machine, LogError> {
    restore(checkpoint).map(|(machine, _)| machine)
}

/// The state a checkpoint holds, whose own digest was checked on the way, and the list of the
/// message log's chunks; none if a build wrote it that kept no message log.
pub(crate) fn restore(checkpoint: &Checkpoint) -> Result<(Machine, Option<Manifest>), LogError> {
    let mut restorer = Restorer::new();
    let mut list = Vec::new();
    for (number, chunk) in checkpoint.chunks().iter().enumerate() {
        let bytes = checkpoint.read(number)?;
        if chunk.name.starts_with(RECORDS) {
            list.extend_from_slice(&bytes);
        } else {
            restorer.push(&bytes)?;
        }
    }
    let list = if list.is_empty() { None } else { Some(Manifest::decode(&list)?) };
    let restored = restorer.finish()?;
    if restored.index != checkpoint.index() {
        let (said, found) = (checkpoint.index(), restored.index);
        return Err(LogError::Replay(format!("checkpoint of {said} holds the state of {found}")));
    }
    Ok((restored.machine, list))
}

/// The node's keys. A log without its key must not be given a new one: nothing could read it.
fn open_keys(config: &LogConfig) -> Result<LocalKeyFile, LogError> {
    let has_key = fs::symlink_metadata(&config.key_file).is_ok();
    let has_log = fs::read_dir(config.directory.join(WAL_FOLDER))
        .is_ok_and(|mut files| files.next().is_some());
    if has_log && !has_key {
        let (path, directory) = (config.key_file.clone(), config.directory.clone());
        return Err(LogError::KeyMissing { path, directory });
    }
    Ok(LocalKeyFile::open_or_create(&config.key_file)?)
}

pub(crate) fn make_group(
    journal: &Journal,
    beginning: &Beginning,
) -> Result<RecoveredGroup, LogError> {
    let members = Members::voters(&[u64::from(beginning.header.leader)]);
    let spec = GroupSpec { id: GROUP, members, key_domain: KEY_DOMAIN };
    Ok(journal.create_group(&spec)?)
}

/// Told of every entry that was found: its index, itself and what it came to.
pub(crate) type Witness<'a> = dyn FnMut(u64, Bytes, &mut Vec<Effect>) -> Result<(), LogError> + 'a;

/// Apply all there is, waiting for the disk; what it comes to concerns nobody any more.
pub(crate) fn settle(
    partition: &mut Partition,
    wait: &dyn Fn(),
    witness: &mut Witness<'_>,
) -> Result<(), LogError> {
    let mut effects: Vec<Effect> = Vec::new();
    loop {
        partition.advance()?;
        while let Some(applied) = partition.apply_next(&mut effects)? {
            witness(partition.applied_index(), applied.entry, &mut effects)?;
            effects.clear();
        }
        if partition.is_settled() {
            return Ok(());
        }
        if partition.log_is_full() {
            return Err(LogError::Full);
        }
        wait();
    }
}

/// Propose what the end of the last life and the configuration of this one make true.
pub(crate) fn begin_life(partition: &mut Partition, beginning: &Beginning) {
    let machine = partition.machine();
    let mut entries = vec![EntryBuilder::new()];
    let mut push = |command: &Command<'_>| {
        if entries.last().is_none_or(EntryBuilder::is_full) {
            entries.push(EntryBuilder::new());
        }
        let Some(entry) = entries.last_mut() else { return };
        let pushed = entry.push(command);
        assert!(pushed.is_ok(), "a fresh entry takes any command: {pushed:?}");
    };
    // The first entry of a new log, too: limits are state, and defaults may change with releases.
    if *machine.limits() != beginning.limits || machine.statistics().now_ms == 0 {
        push(&Command::SetLimits(beginning.limits));
    }
    for (client_id, session_epoch) in machine.attached_sessions() {
        push(&Command::ConnectionLost(ConnectionLost {
            client_id,
            session_epoch,
            fire_will: true,
            expiry_s: None,
            will_grace_s: beginning.will_grace_s,
        }));
    }
    for mut entry in entries.into_iter().filter(|entry| !entry.is_empty()) {
        partition.propose(&mut entry, beginning.now_ms);
    }
}
