//! The durable path of one node, turned by hand on a disk that lies: what the simulator drives.
//!
//! Everything between a proposal and its effects is what a broker runs: `partition.rs`, `log.rs`,
//! the steps of `open_log.rs`, the journal and the machine. Absent are sockets, shards, threads and
//! clocks, and who decides when to write, to sync, to checkpoint and to die is whoever turns the
//! crank. Checkpoints go the way of `checkpointer.rs` without its thread, a chunk per call.

use std::sync::Arc;

use bytes::Bytes;
use quantumqtt_journal::{
    Checkpoint, CheckpointWriter, Disk, Drive, Durability, Entropy, FixedKeys, Floors, Group,
    GroupOptions, Journal, JournalError, JournalOptions, NoClock, Refusal,
};
use quantumqtt_machine::{Effect, Entry, EntryBuilder, EntryHeader, Limits, Machine};
use quantumqtt_reactor::Clock;

use crate::checkpointer::SCHEMA;
use crate::log::{DurableLog, Log};
use crate::log_view::LogView;
use crate::open_log::{Beginning, GROUP, LogError, begin_life, make_group, restore, settle};
use crate::partition::{Partition, PartitionError};

/// Nothing here is secret.
const KEY_SEED: [u8; 32] = [7; 32];

/// How a crank is made ready.
pub struct CrankSpec {
    /// What it stands on.
    pub disk: Arc<dyn Disk>,
    /// Where salts come from.
    pub entropy: Arc<dyn Entropy>,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// When records count.
    pub durability: Durability,
    /// The bounds of the partition.
    pub limits: Limits,
    /// The time of this life's first entries.
    pub now_ms: u64,
}

/// One committed entry, applied.
#[derive(Debug)]
pub struct Turned {
    /// Its place in the log.
    pub index: u64,
    /// The entry itself.
    pub entry: Bytes,
    /// What it came to.
    pub effects: Vec<Effect>,
}

/// This life is over: nothing more is taken, nothing more is answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Stopped(String);

impl From<PartitionError> for Stopped {
    fn from(error: PartitionError) -> Self {
        Self(error.to_string())
    }
}

/// What the log stands at.
#[derive(Debug, Clone)]
pub struct CrankStatus {
    /// The last entry that was applied.
    pub applied: u64,
    /// The last entry of the log, durable or not.
    pub last: u64,
    /// Entries up to here may be gone.
    pub compacted: u64,
    /// The checkpoint this life was restored from; 0 without one.
    pub restored: u64,
    /// Whether the disk has no room.
    pub is_full: bool,
}

/// See the head of this file.
pub struct Crank {
    partition: Partition,
    journal: Arc<Journal>,
    restored: u64,
    writing: Option<CheckpointWriter>,
    /// Published, and the log is not cut behind it yet.
    uncut: Option<Checkpoint>,
}

impl Crank {
    /// Opens the log, applies what it holds and begins a life; all of it is told in order.
    pub fn open(spec: CrankSpec, told: &mut Vec<Turned>) -> Result<Self, LogError> {
        let mut options = JournalOptions::new(1);
        options.segment_bytes = spec.segment_bytes;
        options.durability = spec.durability;
        options.drive = Drive::Pump;
        options.entropy = spec.entropy;
        options.clock = Arc::new(NoClock);
        let beginning = Beginning {
            header: EntryHeader { leader: 1, ..EntryHeader::default() },
            limits: spec.limits,
            // The simulation's clients judge wills by their delays alone.
            will_grace_s: 0,
            owner: 0,
            tenant: "default".into(),
            now_ms: spec.now_ms,
            // Nobody asks it: time comes with every call.
            clock: Clock::start(),
        };
        let keys = FixedKeys::new(KEY_SEED);
        let (journal, groups) = Journal::open(spec.disk, options, &keys, Arc::new(|_| {}))?;
        let recovered = match groups.into_iter().find(|group| group.id() == GROUP) {
            Some(recovered) => recovered,
            None => make_group(&journal, &beginning)?,
        };
        if let Some(damage) = recovered.quarantined() {
            return Err(LogError::Quarantined(damage.clone()));
        }
        let restored = recovered.checkpoint().map_or(0, Checkpoint::index);
        let machine = match recovered.checkpoint() {
            None => Machine::new(beginning.header.partition, Limits::default()),
            Some(checkpoint) => restore(checkpoint)?.0,
        };
        let journal = Arc::new(journal);
        let view = Arc::new(LogView::new(Arc::clone(&journal)));
        let group = Group::start(recovered, GroupOptions::new(0));
        let log = DurableLog::new(Arc::clone(&journal), group, view);
        let log = Log::Journal(Box::new(log));
        let mut partition = Partition::new(machine, beginning.header, log);
        // What fails is told by the next `advance`.
        let pump = || drop(journal.pump());
        let mut witness = |index, entry, effects: &mut Vec<Effect>| {
            told.push(Turned { index, entry, effects: std::mem::take(effects) });
            Ok(())
        };
        settle(&mut partition, &pump, &mut witness)?;
        begin_life(&mut partition, &beginning);
        settle(&mut partition, &pump, &mut witness)?;
        Ok(Self { partition, journal, restored, writing: None, uncut: None })
    }

    /// Asks for an entry.
    pub fn propose(&mut self, builder: &mut EntryBuilder, now_ms: u64) {
        self.partition.propose(builder, now_ms);
    }

    /// Asks for a tick if something in the machine waits for this moment.
    pub fn tick(&mut self, now_ms: u64) -> Result<(), Stopped> {
        Ok(self.partition.propose_tick(now_ms).map(drop)?)
    }

    /// Hands what was proposed to the log's writer, and applies what has become durable.
    pub fn advance(&mut self, told: &mut Vec<Turned>) -> Result<(), Stopped> {
        self.partition.advance()?;
        let mut effects = Vec::new();
        while let Some(applied) = self.partition.apply_next(&mut effects)? {
            let index = self.partition.applied_index();
            let effects = std::mem::take(&mut effects);
            told.push(Turned { index, entry: applied.entry, effects });
        }
        Ok(())
    }

    /// Lets the writer write and sync. What fails is told by the next `advance`.
    pub fn pump(&self) {
        let _ = self.journal.pump();
    }

    /// Begins the file half of a checkpoint, as of what is applied; its index.
    pub fn begin_checkpoint_files(&mut self) -> Result<u64, JournalError> {
        let log = self.partition.parts().1.durable().expect("it was opened with a log");
        let writer = CheckpointWriter::begin(&self.journal, log.group(), SCHEMA)?;
        let index = writer.index();
        self.writing = Some(writer);
        Ok(index)
    }

    /// Begins the other half: the state as it is now is what the checkpoint of `index` will hold.
    pub fn begin_checkpoint_state(&mut self, index: u64) {
        self.partition.parts().0.begin_checkpoint(index);
    }

    /// Writes one chunk; after the last publishes, and cuts the log but never past `floor`.
    ///
    /// The index of the checkpoint once all of it is done.
    pub fn step_checkpoint(
        &mut self,
        bytes_max: usize,
        floor: Option<u64>,
    ) -> Result<Option<u64>, JournalError> {
        if let Some(writer) = &mut self.writing {
            let (machine, _) = self.partition.parts();
            let Some(chunk) = machine.next_chunk(bytes_max) else {
                let digest = machine.checkpoint_digest().unwrap_or_default();
                let published = self.writing.take().map(|w| w.publish(&digest.to_be_bytes()));
                self.uncut = published.transpose()?;
                return self.cut(floor);
            };
            let written = writer.chunk(&format!("state-{}", writer.index()), &chunk);
            if written.is_err() {
                self.writing = None;
                machine.abandon_checkpoint();
            }
            return written.map(|()| None);
        }
        self.cut(floor)
    }

    fn cut(&mut self, floor: Option<u64>) -> Result<Option<u64>, JournalError> {
        let Some(checkpoint) = self.uncut.take() else { return Ok(None) };
        let floors = floor.map_or_else(Floors::none, |index| Floors::none().hold("reader", index));
        let log = self.partition.parts().1.durable().expect("it was opened with a log");
        match log.group().compact(&self.journal, &checkpoint, &floors) {
            Ok(_) => Ok(Some(checkpoint.index())),
            Err(Refusal::Busy { .. } | Refusal::Full) => {
                self.uncut = Some(checkpoint);
                Ok(None)
            }
            Err(_) => Err(self.journal.failure().unwrap_or(JournalError::Stopped)),
        }
    }

    /// Changes the state behind the log's back, which no broker does: a seeded bug.
    pub fn apply_unlogged(&mut self, entry: Bytes) -> Result<Vec<Effect>, Stopped> {
        let entry = Entry::parse(entry).map_err(PartitionError::from)?;
        let mut effects = Vec::new();
        let applied = self.partition.parts().0.apply(&entry, &mut effects);
        applied.map_err(PartitionError::from)?;
        Ok(effects)
    }

    /// What the log stands at.
    pub fn status(&mut self) -> CrankStatus {
        let log = self.partition.parts().1.durable().expect("it was opened with a log");
        let status = log.group().status();
        CrankStatus {
            applied: log.applied_index(),
            last: status.last_index,
            compacted: status.compacted,
            restored: self.restored,
            is_full: self.journal.is_full(),
        }
    }

    /// Why the log stopped for good, if it did.
    pub fn failure(&self) -> Option<JournalError> {
        self.journal.failure()
    }

    /// The state.
    pub fn machine(&self) -> &Machine {
        self.partition.machine()
    }
}
