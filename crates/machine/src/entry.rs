//! The entry: what the log replicates, one batch of commands.
//!
//! ```text
//! header, 45 bytes, little-endian
//!   format        u8    high nibble 0xE, low nibble the format, now 1
//!   apply_version u16   the oldest rules of apply under which the commands can be read: 2 if a
//!                       publish has a de-duplication key, PUBACKs are joined, the server itself
//!                       has ended a connection, or a message was declined; else 1
//!   partition     u32   index on the tenant's ring
//!   tenant        u32   numeric slot; no tenant name ever reaches the disk (LOG-35)
//!   routing_epoch u64
//!   leader        u32   the node that proposed
//!   batch_seq     u64   that leader's count of proposals
//!   now_ms        u64   that leader's clock; the only time apply ever sees
//!   count         u16   commands
//!   body_bytes    u32   bytes after the header
//! then `count` times
//!   kind          u8
//!   length        varint
//!   body          `length` bytes, see `codec.rs`
//! ```
//!
//! A subscriber acknowledges a window of messages at once, so PUBACKs whose ids follow each other
//! are one record that stands for so many commands. It comes apart in `commands`; nobody above
//! knows of it.
//!
//! Reading never skips. A newer format, a newer apply version or an unknown kind means that this
//! build is too old for this log; the node must stop and say so, because going on would leave it
//! with a state that no other replica has. The WAL below has already checked sums, so anything
//! malformed that arrives here is a bug or an attack, and is answered by a typed error.

use bytes::Bytes;
use quantumqtt_wire::ReasonCode;

use crate::codec::{
    PUBACK_RUN_MAX, PubAckRun, id_after, kind, read_command, read_puback_run, write_command,
    write_puback_run,
};
use crate::command::{AckKind, ClientAck, Command};
use crate::fields::{FieldError, FieldReader, write_number};

/// An entry is closed when its commands reach this many bytes.
pub const ENTRY_BYTES_CLOSE: usize = 64 * 1024;
/// An entry is closed when it holds this many commands.
pub const ENTRY_COMMANDS_MAX: u16 = 512;
/// The rules of apply this build knows; older entries keep their own rules.
pub const APPLY_VERSION: u16 = 2;
/// The rules an entry needs whose commands every release knows. What needs no more is written so:
/// the release before this one can read the log until it holds something of ours.
pub(crate) const APPLY_VERSION_FIRST: u16 = 1;
/// Since this version a publish may have a de-duplication key, PUBACKs may be joined, wills be
/// deferred and messages be declined.
pub(crate) const APPLY_VERSION_SECOND: u16 = 2;

const FORMAT_MARK: u8 = 0xE0;
const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 45;

/// Why bytes are no entry that this build can apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The first byte is not an entry's.
    #[error("entry begins with {0:#04x}, which is no entry format")]
    NotAnEntry(u8),
    /// Written by a newer release.
    #[error("entry has format {0}, newer than this build reads")]
    NewerFormat(u8),
    /// Proposed under newer rules.
    #[error("entry has apply version {0}, newer than this build applies")]
    NewerApplyVersion(u16),
    /// A command kind of a newer release, or none at all.
    #[error("entry holds a command of unknown kind {0}")]
    UnknownKind(u8),
    /// Fewer bytes than announced.
    #[error("entry is cut off")]
    Truncated,
    /// More bytes than announced, or a header that contradicts itself.
    #[error("entry header does not fit its commands")]
    Mismatch,
    /// A body that cannot be read.
    #[error("command of kind {kind} {source}")]
    Malformed {
        /// The kind of the command.
        kind: u8,
        /// What is wrong with it.
        source: FieldError,
    },
    /// The builder holds as many commands, or bytes, as an entry may.
    #[error("entry is full")]
    Full,
}

/// What an entry says about all of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EntryHeader {
    /// Index of the partition on the tenant's ring.
    pub partition: u32,
    /// Numeric slot of the tenant.
    pub tenant: u32,
    /// The routing epoch the leader knew.
    pub routing_epoch: u64,
    /// The node that proposed.
    pub leader: u32,
    /// That leader's count of proposals.
    pub batch_seq: u64,
    /// That leader's clock.
    pub now_ms: u64,
}

/// Gathers the commands of one loop turn.
#[derive(Debug, Default)]
pub struct EntryBuilder {
    commands: Vec<u8>,
    body: Vec<u8>,
    count: u16,
    /// Whether something in it is new to version 2.
    needs_second: bool,
    /// The record written last, if it is of PUBACKs and may grow.
    run: Option<OpenRun>,
}

/// Where the last record stands, and what it says.
#[derive(Debug, Clone, Copy)]
struct OpenRun {
    starts_at: usize,
    session_epoch: u64,
    first: u16,
    next: u16,
    count: u16,
}

impl EntryBuilder {
    /// An empty builder; it keeps its buffers from entry to entry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a command. The one that crosses the closing size is still taken, so that a publish
    /// larger than an entry gets an entry of its own.
    pub fn push(&mut self, command: &Command<'_>) -> Result<(), EntryError> {
        if let Command::ClientAck(ack) = command
            && self.extend_run(ack)
        {
            return Ok(());
        }
        if self.count >= ENTRY_COMMANDS_MAX {
            return Err(EntryError::Full);
        }
        // Bodies have no fixed length, so the body is written beside and its length goes before it.
        self.body.clear();
        let command_kind = write_command(&mut self.body, command);
        let length_max = (u32::MAX as usize).saturating_sub(self.commands.len() + 16);
        if self.body.len() > length_max {
            return Err(EntryError::Full);
        }
        self.run = match command {
            Command::ClientAck(ack) => self.begin_run(ack),
            _ => None,
        };
        self.append_body(command_kind);
        self.count += 1;
        self.needs_second |= is_of_second(command);
        Ok(())
    }

    fn append_body(&mut self, command_kind: u8) {
        self.commands.push(command_kind);
        write_number(&mut self.commands, self.body.len() as u64);
        self.commands.extend_from_slice(&self.body);
    }

    /// What may follow `ack`, which is about to be written.
    fn begin_run(&self, ack: &ClientAck<'_>) -> Option<OpenRun> {
        is_plain(ack).then(|| OpenRun {
            starts_at: self.commands.len(),
            session_epoch: ack.session_epoch,
            first: ack.packet_id,
            next: id_after(ack.packet_id),
            count: 1,
        })
    }

    /// Writes the last record anew with one more acknowledgement in it, if `ack` is the next.
    ///
    /// The epoch names the client too: no two sessions of a partition ever have the same.
    fn extend_run(&mut self, ack: &ClientAck<'_>) -> bool {
        let Some(mut run) = self.run.filter(|run| {
            (run.next, run.session_epoch) == (ack.packet_id, ack.session_epoch)
                && is_plain(ack)
                && run.count < PUBACK_RUN_MAX
        }) else {
            return false;
        };
        (run.next, run.count) = (id_after(run.next), run.count + 1);
        self.commands.truncate(run.starts_at);
        self.body.clear();
        let OpenRun { session_epoch, first, count, .. } = run;
        let written = PubAckRun { client_id: ack.client_id, session_epoch, first, count };
        write_puback_run(&mut self.body, &written);
        self.append_body(kind::PUBACK_RUN);
        self.needs_second = true;
        self.run = Some(run);
        true
    }

    /// Whether the entry must be proposed before another command is added.
    pub fn is_full(&self) -> bool {
        self.count >= ENTRY_COMMANDS_MAX || self.commands.len() >= ENTRY_BYTES_CLOSE
    }

    /// Whether there is nothing to propose.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Records gathered so far; several acknowledgements may be one.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Closes the entry and leaves the builder empty.
    pub fn finish(&mut self, header: &EntryHeader) -> Bytes {
        let mut entry = Vec::with_capacity(HEADER_BYTES + self.commands.len());
        entry.push(FORMAT_MARK | FORMAT);
        let apply_version =
            if self.needs_second { APPLY_VERSION_SECOND } else { APPLY_VERSION_FIRST };
        entry.extend_from_slice(&apply_version.to_le_bytes());
        entry.extend_from_slice(&header.partition.to_le_bytes());
        entry.extend_from_slice(&header.tenant.to_le_bytes());
        entry.extend_from_slice(&header.routing_epoch.to_le_bytes());
        entry.extend_from_slice(&header.leader.to_le_bytes());
        entry.extend_from_slice(&header.batch_seq.to_le_bytes());
        entry.extend_from_slice(&header.now_ms.to_le_bytes());
        entry.extend_from_slice(&self.count.to_le_bytes());
        entry.extend_from_slice(&(self.commands.len() as u32).to_le_bytes());
        entry.extend_from_slice(&self.commands);
        self.commands.clear();
        self.count = 0;
        self.needs_second = false;
        self.run = None;
        // One oversized publish must not keep its memory for the life of the builder.
        self.commands.shrink_to(2 * ENTRY_BYTES_CLOSE);
        self.body.shrink_to(2 * ENTRY_BYTES_CLOSE);
        Bytes::from(entry)
    }
}

/// A committed entry, framed and checked; its commands borrow from its bytes.
#[derive(Debug, Clone)]
pub struct Entry {
    header: EntryHeader,
    apply_version: u16,
    count: u16,
    bytes: Bytes,
}

impl Entry {
    /// Checks header and framing of every command; bodies are checked as they are read.
    pub fn parse(bytes: Bytes) -> Result<Self, EntryError> {
        let first = *bytes.first().ok_or(EntryError::Truncated)?;
        if first & 0xF0 != FORMAT_MARK || first == FORMAT_MARK {
            return Err(EntryError::NotAnEntry(first));
        }
        if first & 0x0F > FORMAT {
            return Err(EntryError::NewerFormat(first & 0x0F));
        }
        let mut header = HeaderReader { rest: &bytes[1..] };
        let apply_version = u16::from_le_bytes(header.take()?);
        if apply_version > APPLY_VERSION {
            return Err(EntryError::NewerApplyVersion(apply_version));
        }
        let fields = EntryHeader {
            partition: u32::from_le_bytes(header.take()?),
            tenant: u32::from_le_bytes(header.take()?),
            routing_epoch: u64::from_le_bytes(header.take()?),
            leader: u32::from_le_bytes(header.take()?),
            batch_seq: u64::from_le_bytes(header.take()?),
            now_ms: u64::from_le_bytes(header.take()?),
        };
        let count = u16::from_le_bytes(header.take()?);
        let body_bytes = u32::from_le_bytes(header.take()?) as usize;
        if apply_version == 0 || count > ENTRY_COMMANDS_MAX || header.rest.len() > body_bytes {
            return Err(EntryError::Mismatch);
        }
        if header.rest.len() < body_bytes {
            return Err(EntryError::Truncated);
        }
        check_framing(header.rest, count)?;
        Ok(Self { header: fields, apply_version, count, bytes })
    }

    /// What the entry says about all of its commands.
    pub fn header(&self) -> &EntryHeader {
        &self.header
    }

    /// The rules its commands were proposed under.
    pub fn apply_version(&self) -> u16 {
        self.apply_version
    }

    /// How many records it holds; one of acknowledgements stands for several commands.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The whole entry as it stands in the log.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The commands in log order.
    pub fn commands(&self) -> Commands<'_> {
        let reader = FieldReader::new(&self.bytes[HEADER_BYTES..]);
        Commands { reader, apply_version: self.apply_version, run: None }
    }
}

/// Whether a release that knows version 1 only could not read it.
fn is_of_second(command: &Command<'_>) -> bool {
    match command {
        Command::Publish(publish) => publish.dedupe.is_some(),
        Command::ConnectionLost(lost) => lost.will_grace_s > 0,
        Command::ClientAck(ack) => ack.kind == AckKind::Declined,
        Command::LeaveWill(_) => true,
        _ => false,
    }
}

/// Whether an acknowledgement says nothing but that a message has arrived.
fn is_plain(ack: &ClientAck<'_>) -> bool {
    ack.kind == AckKind::PubAck && ack.reason == ReasonCode::SUCCESS && ack.packet_id != 0
}

fn check_framing(commands: &[u8], count: u16) -> Result<(), EntryError> {
    let mut reader = FieldReader::new(commands);
    for _ in 0..count {
        let command_kind = reader.byte().map_err(|_| EntryError::Truncated)?;
        if !(kind::FIRST..=kind::LAST).contains(&command_kind) {
            return Err(EntryError::UnknownKind(command_kind));
        }
        reader.bytes().map_err(|source| EntryError::Malformed { kind: command_kind, source })?;
    }
    reader.finish().map_err(|_| EntryError::Mismatch)
}

struct HeaderReader<'a> {
    rest: &'a [u8],
}

impl HeaderReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], EntryError> {
        let (field, rest) = self.rest.split_first_chunk::<N>().ok_or(EntryError::Truncated)?;
        self.rest = rest;
        Ok(*field)
    }
}

/// The first command of what is left of a run, which is not empty.
fn take_ack<'a>(run: &mut PubAckRun<'a>) -> Command<'a> {
    let packet_id = run.first;
    (run.first, run.count) = (id_after(packet_id), run.count - 1);
    Command::ClientAck(ClientAck {
        client_id: run.client_id,
        session_epoch: run.session_epoch,
        packet_id,
        kind: AckKind::PubAck,
        reason: ReasonCode::SUCCESS,
    })
}

/// The commands of one entry. Ends after the first error: what follows cannot be trusted.
#[derive(Debug, Clone)]
pub struct Commands<'a> {
    reader: FieldReader<'a>,
    apply_version: u16,
    /// What is left of the record being taken apart.
    run: Option<PubAckRun<'a>>,
}

impl<'a> Commands<'a> {
    fn read_next(&mut self) -> Result<Command<'a>, EntryError> {
        let command_kind = self.reader.byte().map_err(|_| EntryError::Truncated)?;
        let malformed = |source| EntryError::Malformed { kind: command_kind, source };
        let body = self.reader.bytes().map_err(malformed)?;
        if command_kind == kind::PUBACK_RUN {
            if self.apply_version < APPLY_VERSION_SECOND {
                return Err(EntryError::UnknownKind(command_kind));
            }
            let run = self.run.insert(read_puback_run(body).map_err(malformed)?);
            return Ok(take_ack(run));
        }
        let command = read_command(command_kind, body);
        let command = command.ok_or(EntryError::UnknownKind(command_kind))?.map_err(malformed)?;
        if self.apply_version < APPLY_VERSION_SECOND && is_of_second(&command) {
            return Err(malformed(FieldError::Range));
        }
        Ok(command)
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, EntryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(run) = self.run.as_mut().filter(|run| run.count > 0) {
            return Some(Ok(take_ack(run)));
        }
        if self.reader.is_empty() {
            return None;
        }
        let command = self.read_next();
        if command.is_err() {
            self.reader = FieldReader::new(&[]);
        }
        Some(command)
    }
}
