//! Opening a node's message log: the chunks that the checkpoint lists, and the tail from the
//! entries behind it.
//!
//! A directory of a build that knew no message log has checkpoints without a list: the log begins
//! with the first record that is still to be had. Without a checkpoint all of it is in the entries.

use std::sync::Arc;

use quantumqtt_journal::KeyProvider;
use quantumqtt_machine::{Effect, Record};
use quantumqtt_records::{
    Disk, Error, FileDisk, Identity, Keys, Manifest, Options, RecordLog, SealWhen,
};

use crate::config::LogConfig;
use crate::limits::{RECORDS_FOLDER, RECORDS_PER_APPEND};
use crate::open_log::{Beginning, GROUP, LogError};
use crate::recorded;

/// What the keys of the message log are derived for; one tenant per key domain.
const PURPOSE: &str = "message log 0";

/// A message log while the entries behind the checkpoint are applied.
pub(crate) struct Replayed {
    pub(crate) log: RecordLog,
    routing_epoch: u64,
    gathered: Vec<Record>,
}

impl Replayed {
    /// Opens the log of a partition whose next record gets `next_offset`.
    pub(crate) fn open(
        config: &LogConfig,
        beginning: &Beginning,
        keys: &dyn KeyProvider,
        listed: Option<Manifest>,
        next_offset: u64,
    ) -> Result<Self, LogError> {
        let listed = listed.unwrap_or(Manifest {
            earliest: next_offset,
            end: next_offset,
            chunks: Vec::new(),
        });
        if listed.end != next_offset {
            let end = listed.end;
            return Err(LogError::Replay(format!(
                "the message log of the checkpoint ends at {end}, its state at {next_offset}"
            )));
        }
        let epoch = keys.current_epoch();
        let keys = Keys::new(epoch, keys.epoch_key(epoch)?.derive(PURPOSE));
        let disk = Arc::new(FileDisk::new(&config.directory));
        let directory = format!("{RECORDS_FOLDER}/{GROUP:016x}");
        make_dirs(&*disk, &directory)?;
        let identity =
            Identity { tenant: beginning.tenant.clone(), partition: beginning.header.partition };
        let options = Options { chunk_bytes: config.chunk_bytes, ..Options::default() };
        let (log, _) = RecordLog::open(disk, &directory, identity, keys, options, &listed)?;
        let routing_epoch = beginning.header.routing_epoch;
        Ok(Self { log, routing_epoch, gathered: Vec::new() })
    }

    /// Takes the records among what an entry came to; the rest concerns nobody any more.
    pub(crate) fn take(&mut self, effects: &mut Vec<Effect>) -> Result<(), LogError> {
        self.gathered.extend(effects.drain(..).filter_map(|effect| match effect {
            Effect::Append(record) => Some(record),
            _ => None,
        }));
        if self.gathered.len() >= RECORDS_PER_APPEND { self.append() } else { Ok(()) }
    }

    /// Appends what was taken, and makes chunks of what is worth it: a long log does not fit into
    /// memory.
    pub(crate) fn append(&mut self) -> Result<(), LogError> {
        recorded::append(&mut self.log, self.routing_epoch, &self.gathered)?;
        self.gathered.clear();
        if let Some(job) = self.log.plan_seal(SealWhen::Full) {
            let sealed = job.execute()?;
            self.log.publish_seal(sealed);
        }
        Ok(())
    }

    /// What was taken since the last append.
    pub(crate) fn into_parts(self) -> (RecordLog, Vec<Record>) {
        (self.log, self.gathered)
    }
}

/// The directory of the chunks, whose name must not be lost when the chunks are not.
fn make_dirs(disk: &dyn Disk, directory: &str) -> Result<(), LogError> {
    let make = || {
        disk.make_dir(directory)?;
        disk.sync_dir(RECORDS_FOLDER)?;
        disk.sync_dir("")
    };
    let told = |source| Error::Disk { action: "make", name: directory.to_owned(), source };
    Ok(make().map_err(told)?)
}
