//! When a checkpoint is made, and how it comes to disk while the partition goes on.
//!
//! The owner of the partition begins one when the log has grown enough, or has grown at all for
//! long enough. From then on a thread of its own asks for one chunk after another by mail, seals
//! it, writes it and syncs it; the owner does no more per turn than write one chunk into memory.
//! When the last is on disk the manifest is published, and only then the log is cut behind it.
//!
//! With the state goes the list of the message log's chunks (`RECORDS`). It ends exactly with the
//! records of the checkpoint's entry: the thread waits for the keeper to have them on disk. So the
//! log is never cut past a record that is in no durable chunk (LOG-30).
//!
//! A checkpoint that fails costs nothing but its own work: the log is still whole. It is tried
//! again after a while, and exporters are told why it failed.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;
use quantumqtt_journal::{Checkpoint, CheckpointWriter, Floors, JournalError, Refusal};
use quantumqtt_machine::Machine;
use quantumqtt_records::Manifest;

use crate::limits::{CHECKPOINT_CHUNK_BYTES, CHECKPOINT_RETRY_MS, RECORDS_FOLDER};
use crate::log::DurableLog;
use crate::message_log::{Intake, Item};
use crate::open_log::Bell;

/// The version of what is in chunks; the chunks say their own format, too. Since 2 the list of the
/// message log's chunks is in it.
pub(crate) const SCHEMA: u32 = 2;
/// How names of the pieces of that list begin.
pub(crate) const RECORDS: &str = "records-";

/// When checkpoints are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cadence {
    pub(crate) interval_ms: u64,
    pub(crate) log_bytes: u64,
}

/// What the writing thread asks of the partition's owner.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// The next chunk.
    Chunk,
    /// It is published; cut the log behind it.
    Cut(Box<Published>),
    /// It could not be written.
    GiveUp(JournalError),
}

/// A checkpoint that is durable, and the list of chunks in it.
#[derive(Debug)]
pub(crate) struct Published {
    checkpoint: Checkpoint,
    records: Manifest,
}

/// See the head of this file.
pub(crate) struct Checkpointer {
    cadence: Cadence,
    bell: Arc<Bell>,
    owner: u16,
    /// To the thread, while one writes.
    writing: Option<Sender<Part>>,
    /// Published, and the journal was too busy to cut the log.
    uncut: Option<Box<Published>>,
    last_at_ms: u64,
    last_index: u64,
    last_written_bytes: u64,
    not_before_ms: u64,
    /// Somebody asked for one before its time.
    is_wanted: bool,
}

/// What the thread gets.
enum Part {
    Chunk(Bytes),
    Digest(u128),
}

impl Checkpointer {
    pub(crate) fn new(cadence: Cadence, bell: Arc<Bell>, owner: u16, now_ms: u64) -> Self {
        Self {
            cadence,
            bell,
            owner,
            writing: None,
            uncut: None,
            last_at_ms: now_ms,
            last_index: 0,
            last_written_bytes: 0,
            not_before_ms: 0,
            is_wanted: false,
        }
    }

    /// Make one soon: the log behind it is worth more cut than kept.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whoever was restored from a checkpoint owes the next one later.
    pub(crate) fn restored_from(&mut self, index: u64) {
        self.last_index = index;
    }

    /// When the end of a turn should look here again; None while nothing is due by time alone.
    pub(crate) fn next_wake_ms(&self, log: &DurableLog) -> Option<u64> {
        let is_idle = self.writing.is_none() && log.applied_index() > self.last_index;
        is_idle.then(|| (self.last_at_ms + self.cadence.interval_ms).max(self.not_before_ms))
    }

    /// The end of a turn: begin a checkpoint if one is due.
    pub(crate) fn on_turn_end(
        &mut self,
        now_ms: u64,
        machine: &mut Machine,
        log: &mut DurableLog,
        records: &Intake,
    ) {
        if let Some(published) = self.uncut.take() {
            self.cut(published, log, records);
        }
        if self.is_due(now_ms, log) {
            self.begin(now_ms, machine, log, records);
        }
    }

    fn is_due(&self, now_ms: u64, log: &DurableLog) -> bool {
        if self.writing.is_some() || now_ms < self.not_before_ms {
            return false;
        }
        let written = log.written_bytes().saturating_sub(self.last_written_bytes);
        let has_waited = now_ms.saturating_sub(self.last_at_ms) >= self.cadence.interval_ms;
        let has_grown = log.applied_index() > self.last_index;
        has_grown && (self.is_wanted || has_waited || written >= self.cadence.log_bytes)
    }

    fn begin(
        &mut self,
        now_ms: u64,
        machine: &mut Machine,
        log: &mut DurableLog,
        records: &Intake,
    ) {
        self.is_wanted = false;
        self.last_at_ms = now_ms;
        self.last_written_bytes = log.written_bytes();
        self.not_before_ms = now_ms + CHECKPOINT_RETRY_MS;
        let begun = CheckpointWriter::begin(&log.journal().clone(), log.group(), SCHEMA);
        let begun = begun.and_then(|writer| self.start_thread(writer, records));
        match begun {
            Ok(index) => {
                self.last_index = index;
                machine.begin_checkpoint(index);
            }
            Err(error) => log.view().checkpoint_failed(&error),
        }
    }

    fn start_thread(
        &mut self,
        writer: CheckpointWriter,
        records: &Intake,
    ) -> Result<u64, JournalError> {
        let index = writer.index();
        let (to_thread, parts) = channel();
        let (bell, owner) = (Arc::clone(&self.bell), self.owner);
        let thread = thread::Builder::new().name("checkpoint".to_owned());
        let started = thread.spawn({
            let list = records.mark();
            move || write(writer, &parts, &list, &bell, owner)
        });
        // Without a thread for it there is no checkpoint, and no other harm.
        let started = started.map_err(|source| JournalError::Disk {
            what: "starting the checkpoint's thread",
            path: "thread".to_owned(),
            source: Arc::new(source),
        });
        started.map(|_| {
            self.writing = Some(to_thread);
            index
        })
    }

    /// The thread asks for something.
    pub(crate) fn on_wanted(
        &mut self,
        wanted: Wanted,
        machine: &mut Machine,
        log: &mut DurableLog,
        records: &Intake,
    ) {
        match wanted {
            Wanted::Chunk => self.hand_over(machine),
            Wanted::Cut(published) => {
                self.writing = None;
                log.view().checkpoint_made(published.checkpoint.index());
                self.cut(published, log, records);
            }
            Wanted::GiveUp(error) => {
                self.writing = None;
                machine.abandon_checkpoint();
                log.view().checkpoint_failed(&error);
            }
        }
    }

    fn hand_over(&self, machine: &mut Machine) {
        let Some(to_thread) = &self.writing else { return };
        let part = match machine.next_chunk(CHECKPOINT_CHUNK_BYTES) {
            Some(chunk) => Part::Chunk(chunk),
            None => Part::Digest(machine.checkpoint_digest().unwrap_or_default()),
        };
        // A thread that is gone has said why, or died, which the next attempt will show.
        let _ = to_thread.send(part);
    }

    fn cut(&mut self, published: Box<Published>, log: &mut DurableLog, records: &Intake) {
        let journal = Arc::clone(log.journal());
        // All that the message log has of the entries up to here is in durable chunks.
        let floors = Floors::none().hold("message_log", published.checkpoint.index());
        match log.group().compact(&journal, &published.checkpoint, &floors) {
            Ok(_) => records.ask(Item::Cut(published.records)),
            Err(Refusal::Busy { .. } | Refusal::Full) => self.uncut = Some(published),
            // Failed or quarantined: the partition stops for a better reason than this.
            Err(_) => {}
        }
    }
}

/// The thread: ask, write, ask again, publish.
fn write(
    mut writer: CheckpointWriter,
    parts: &Receiver<Part>,
    list: &Receiver<Manifest>,
    bell: &Bell,
    owner: u16,
) {
    let index = writer.index();
    loop {
        bell.want(owner, Wanted::Chunk);
        // The owner is gone: so is the wish for a checkpoint.
        let Ok(part) = parts.recv() else { return };
        let written = match part {
            Part::Chunk(chunk) => writer.chunk(&format!("state-{index}"), &chunk),
            Part::Digest(digest) => {
                let wanted = match publish(writer, list, digest) {
                    Ok(published) => Wanted::Cut(Box::new(published)),
                    Err(error) => Wanted::GiveUp(error),
                };
                return bell.want(owner, wanted);
            }
        };
        if let Err(error) = written {
            return bell.want(owner, Wanted::GiveUp(error));
        }
    }
}

/// The list of the message log's chunks, as soon as they are on disk; then all of it is published.
fn publish(
    mut writer: CheckpointWriter,
    list: &Receiver<Manifest>,
    digest: u128,
) -> Result<Published, JournalError> {
    let index = writer.index();
    let records = list.recv().map_err(|_| JournalError::Disk {
        what: "writing the message log for a checkpoint",
        path: RECORDS_FOLDER.to_owned(),
        source: Arc::new(ErrorKind::Interrupted.into()),
    })?;
    for piece in records.encode().chunks(CHECKPOINT_CHUNK_BYTES) {
        writer.chunk(&format!("{RECORDS}{index}"), piece)?;
    }
    Ok(Published { checkpoint: writer.publish(&digest.to_be_bytes())?, records })
}
