//! A machine from the chunks of a checkpoint.
//!
//! Chunks come one by one, so a caller that reads them from disk holds one at a time. An item may
//! be cut by the end of a chunk; what there is of it waits for the next. An error names the chunk
//! and the byte in it where the item begins that is wrong; nothing of a machine is given out before
//! everything has been checked.

use std::sync::Arc;

use quantumqtt_topics::Filter;

use super::chunk::{CHUNK_FORMAT_DEDUPE, CHUNK_FORMAT_FIRST, ChunkHeader};
use super::read::{Header, Messages, OpenSession, read_header, read_message};
use super::stream::{Counts, kind};
use crate::codec::read_dedupe_key;
use crate::dedupe::Accepted;
use crate::expiry::Deadline;
use crate::fields::{FieldError, FieldReader};
use crate::limits::Limits;
use crate::machine::Machine;
use crate::message::Message;
use crate::subscribe::Granted;

/// What is wrong with the chunks of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestoreFault {
    /// The first bytes are not a chunk's.
    #[error("these bytes are no chunk of a checkpoint")]
    NotACheckpoint,
    /// Another release's format.
    #[error("format {0} is none this build reads")]
    OtherFormat(u8),
    /// The state came about under newer rules.
    #[error("apply version {0} is newer than this build applies")]
    NewerApplyVersion(u16),
    /// Fewer bytes than announced, or fewer chunks.
    #[error("it is cut off")]
    CutOff,
    /// More bytes than announced, or more chunks.
    #[error("there are bytes behind its end")]
    Trailing,
    /// Damaged bytes.
    #[error("its sum is wrong")]
    WrongSum,
    /// A chunk is missing, doubled or out of its place.
    #[error("chunk {expected} was due, this is chunk {found}")]
    WrongNumber {
        /// The number that was due.
        expected: u32,
        /// The number of this one.
        found: u32,
    },
    /// Partition or index differ from those of the chunks before it.
    #[error("it belongs to another checkpoint")]
    OtherCheckpoint,
    /// An item of a kind that this build does not know.
    #[error("it holds an item of unknown kind {0}")]
    UnknownKind(u8),
    /// An item that may not stand here.
    #[error("an item of kind {0} is out of its place")]
    OutOfPlace(u8),
    /// An item that should stand before the one before it, or stands there twice.
    #[error("an item of kind {0} is out of order")]
    OutOfOrder(u8),
    /// An item that cannot be read.
    #[error("an item {0}")]
    Malformed(#[from] FieldError),
    /// A filter that MQTT does not allow.
    #[error("it holds a malformed topic filter")]
    Filter,
    /// A reference to a message that was not there before.
    #[error("it refers to the unknown message {0}")]
    UnknownMessage(u64),
    /// A member of a share group that has no such subscription.
    #[error("it refers to the unknown session {0}")]
    UnknownSession(u64),
    /// No machine can ever have been in this state.
    #[error("the state is unsound: {0}")]
    Unsound(&'static str),
    /// Something is missing or twice there.
    #[error("it announces {announced} items of kind {kind} and holds {found}")]
    WrongCount {
        /// The kind.
        kind: u8,
        /// How many there should be.
        announced: u64,
        /// How many there are.
        found: u64,
    },
    /// Everything could be read, and it is another state than the one that was written.
    #[error("digest {found:032x} is not the announced {announced:032x}")]
    WrongDigest {
        /// What it should be.
        announced: u128,
        /// What it is.
        found: u128,
    },
}

/// Why no machine came out of these chunks, and where that shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("checkpoint cannot be restored: chunk {chunk}, byte {offset}: {fault}")]
pub struct RestoreError {
    /// Which chunk, counted from 0 as they came.
    pub chunk: u32,
    /// Which byte of it.
    pub offset: usize,
    /// What is wrong.
    pub fault: RestoreFault,
}

/// A machine that goes on where another was.
#[derive(Debug)]
pub struct Restored {
    /// The machine.
    pub machine: Machine,
    /// The log index of the last entry that is in its state.
    pub index: u64,
}

/// Which items may come next.
#[derive(Debug)]
enum Place {
    Header,
    Sessions,
    Session(Box<OpenSession>),
    Groups,
    /// A group, the cursor it will have, and how many members it still misses.
    Members {
        filter: Arc<str>,
        cursor: u64,
        missing: u64,
    },
    Retained,
    Dedupe,
    Over,
}

/// See the head of this file.
#[derive(Debug)]
pub struct Restorer {
    first: Option<ChunkHeader>,
    next_number: u32,
    /// The beginning of an item whose end has not come yet.
    pending: Vec<u8>,
    pending_at: Position,
    builder: Builder,
    /// Where the last item stood, once it has come.
    end_at: Option<Position>,
}

/// A chunk, counted as they came, and a byte of it.
type Position = (u32, usize);

impl Default for Restorer {
    fn default() -> Self {
        Self::new()
    }
}

impl Restorer {
    /// Waits for chunk 0.
    pub fn new() -> Self {
        Self {
            first: None,
            next_number: 0,
            pending: Vec::new(),
            pending_at: (0, 0),
            builder: Builder::new(),
            end_at: None,
        }
    }

    /// Takes the next chunk. After an error this restorer is of no further use.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        let number = self.next_number;
        let fault_at = |offset, fault| RestoreError { chunk: number, offset, fault };
        if self.end_at.is_some() {
            return Err(fault_at(0, RestoreFault::Trailing));
        }
        let (header, format, body) =
            ChunkHeader::open(chunk).map_err(|(offset, fault)| fault_at(offset, fault))?;
        if self.first.is_none() {
            self.builder.format = format;
        }
        let first = *self.first.get_or_insert(header);
        let is_same = (header.partition, header.index) == (first.partition, first.index);
        if !is_same || format != self.builder.format {
            return Err(fault_at(0, RestoreFault::OtherCheckpoint));
        }
        if header.number != number {
            let fault = RestoreFault::WrongNumber { expected: number, found: header.number };
            return Err(fault_at(0, fault));
        }
        self.next_number = number.saturating_add(1);
        self.read_body(number, body)?;
        if header.is_last && !self.pending.is_empty() {
            return Err(at(self.pending_at, RestoreFault::CutOff));
        }
        match (&self.builder.place, header.is_last) {
            (Place::Over, true) => Ok(()),
            (Place::Over, false) => Err(fault_at(0, RestoreFault::OutOfPlace(kind::END))),
            (_, true) => Err(fault_at(chunk.len(), RestoreFault::CutOff)),
            (_, false) => Ok(()),
        }
    }

    /// All chunks have been pushed: checks what can only be checked of the whole.
    pub fn finish(self) -> Result<Restored, RestoreError> {
        let (Some(end_at), Some(first)) = (self.end_at, self.first) else {
            return Err(at((self.next_number, 0), RestoreFault::CutOff));
        };
        let builder = self.builder;
        if builder.machine.partition() != first.partition {
            return Err(at((0, 0), RestoreFault::OtherCheckpoint));
        }
        let machine = builder.finish().map_err(|fault| at(end_at, fault))?;
        Ok(Restored { machine, index: first.index })
    }

    fn read_body(&mut self, number: u32, body: &[u8]) -> Result<(), RestoreError> {
        let carried = self.pending.len();
        let carried_at = self.pending_at;
        let position = |place: usize| match place.checked_sub(carried) {
            Some(place) => (number, ChunkHeader::BODY_AT + place),
            None => carried_at,
        };
        let mut joined = std::mem::take(&mut self.pending);
        let bytes = if carried == 0 {
            body
        } else {
            joined.extend_from_slice(body);
            &joined
        };
        let mut place = 0;
        while let Some((item_kind, item, item_bytes)) =
            next_item(&bytes[place..]).map_err(|fault| at(position(place), fault))?
        {
            let read = self.builder.read_item(item_kind, item);
            read.map_err(|fault| at(position(place), fault))?;
            if item_kind == kind::END {
                self.end_at = Some(position(place));
            }
            place += item_bytes;
        }
        self.pending_at = position(place);
        if carried == 0 {
            self.pending.extend_from_slice(&body[place..]);
        } else {
            joined.drain(..place);
            self.pending = joined;
        }
        Ok(())
    }
}

fn at((chunk, offset): Position, fault: RestoreFault) -> RestoreError {
    RestoreError { chunk, offset, fault }
}

/// Kind, body, and length with both.
type Item<'a> = (u8, &'a [u8], usize);

/// The item at the front of `bytes`; `None` if its end is not there.
fn next_item(bytes: &[u8]) -> Result<Option<Item<'_>>, RestoreFault> {
    let mut reader = FieldReader::new(bytes);
    let Ok(item_kind) = reader.byte() else {
        return Ok(None);
    };
    if !(kind::HEADER..=kind::LAST).contains(&item_kind) {
        return Err(RestoreFault::UnknownKind(item_kind));
    }
    match reader.bytes() {
        Ok(body) => Ok(Some((item_kind, body, bytes.len() - reader.len()))),
        Err(FieldError::Truncated) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The machine as far as it has been read.
#[derive(Debug)]
struct Builder {
    /// Of the chunks.
    format: u8,
    machine: Machine,
    header: Option<Header>,
    place: Place,
    messages: Messages,
    counts: Counts,
    announced: Option<(Counts, u128)>,
    last_client_id: Option<Arc<str>>,
    last_group: Option<Arc<str>>,
    last_topic: Option<Box<str>>,
    /// Shared subscriptions of all sessions; each is a member of a group.
    shared_count: u64,
}

impl Builder {
    fn new() -> Self {
        Self {
            format: CHUNK_FORMAT_FIRST,
            machine: Machine::new(0, Limits::default()),
            header: None,
            place: Place::Header,
            messages: Messages::new(),
            counts: [0; kind::COUNT],
            announced: None,
            last_client_id: None,
            last_group: None,
            last_topic: None,
            shared_count: 0,
        }
    }

    fn read_item(&mut self, item_kind: u8, body: &[u8]) -> Result<(), RestoreFault> {
        let mut reader = FieldReader::new(body);
        let place = std::mem::replace(&mut self.place, Place::Over);
        self.place = match (place, item_kind) {
            (Place::Header, kind::HEADER) => self.read_header(&mut reader)?,
            (Place::Header | Place::Over, _) => return Err(RestoreFault::OutOfPlace(item_kind)),
            (place, kind::MESSAGE) => {
                self.read_message(&mut reader)?;
                place
            }
            (Place::Sessions, kind::SESSION) => self.read_session(&mut reader)?,
            (Place::Session(mut open), part) => {
                open.read_part(part, &mut reader, &self.messages)?;
                self.close_session(open)?
            }
            (Place::Sessions | Place::Groups, kind::GROUP) => self.read_group(&mut reader)?,
            (Place::Members { filter, cursor, missing }, kind::MEMBER) => {
                self.read_member(&mut reader, filter, cursor, missing)?
            }
            (Place::Sessions | Place::Groups | Place::Retained, kind::RETAINED) => {
                self.read_retained(&mut reader)?;
                Place::Retained
            }
            (Place::Sessions | Place::Groups | Place::Retained | Place::Dedupe, kind::DEDUPE)
                if self.format >= CHUNK_FORMAT_DEDUPE =>
            {
                self.read_dedupe(&mut reader)?;
                Place::Dedupe
            }
            (Place::Sessions | Place::Groups | Place::Retained | Place::Dedupe, kind::END) => {
                self.read_end(&mut reader)?;
                Place::Over
            }
            _ => return Err(RestoreFault::OutOfPlace(item_kind)),
        };
        reader.finish()?;
        self.counts[usize::from(item_kind)] += 1;
        Ok(())
    }

    fn read_header(&mut self, reader: &mut FieldReader<'_>) -> Result<Place, RestoreFault> {
        let header = read_header(reader)?;
        self.machine = Machine {
            now_ms: header.now_ms,
            next_offset: header.next_offset,
            next_publish_seq: header.next_publish_seq,
            last_epoch: header.last_epoch,
            last_incarnation: header.last_incarnation,
            ..Machine::new(header.partition, header.limits)
        };
        self.header = Some(header);
        Ok(Place::Sessions)
    }

    fn read_message(&mut self, reader: &mut FieldReader<'_>) -> Result<(), RestoreFault> {
        let message = read_message(reader)?;
        if message.offset >= self.machine.next_offset {
            return Err(FieldError::Range.into());
        }
        match self.messages.insert(message.offset, Arc::new(message)) {
            None => Ok(()),
            Some(_) => Err(RestoreFault::OutOfOrder(kind::MESSAGE)),
        }
    }

    fn message_at(&self, offset: u64) -> Result<Arc<Message>, RestoreFault> {
        self.messages.get(&offset).cloned().ok_or(RestoreFault::UnknownMessage(offset))
    }

    fn read_session(&mut self, reader: &mut FieldReader<'_>) -> Result<Place, RestoreFault> {
        let header = self.header.as_ref().ok_or(RestoreFault::OutOfPlace(kind::SESSION))?;
        let open = OpenSession::read(reader, header)?;
        self.close_session(Box::new(open))
    }

    /// Takes the session into the machine if it is complete.
    fn close_session(&mut self, open: Box<OpenSession>) -> Result<Place, RestoreFault> {
        if !open.is_complete() {
            return Ok(Place::Session(open));
        }
        let session = open.finish()?;
        let key = session.incarnation;
        let is_in_order = self.last_client_id.as_ref().is_none_or(|last| *last < session.client_id);
        if !is_in_order || self.machine.sessions.get(key).is_some() {
            return Err(RestoreFault::OutOfOrder(kind::SESSION));
        }
        self.last_client_id = Some(session.client_id.clone());
        for subscription in session.subscriptions.iter() {
            let filter = Filter::parse(&subscription.filter).map_err(|_| RestoreFault::Filter)?;
            if filter.share.is_some() {
                self.shared_count += 1;
            } else {
                self.machine.subscriptions.insert(&filter, key, Granted::of(subscription));
            }
        }
        if let Some(at_ms) = session.will_due_ms {
            self.machine.deadlines.insert(at_ms, Deadline::Will(key));
        }
        if let Some(at_ms) = session.expires_at_ms {
            self.machine.deadlines.insert(at_ms, Deadline::Session(key));
        }
        self.machine.sessions.insert(session);
        Ok(Place::Sessions)
    }

    fn read_group(&mut self, reader: &mut FieldReader<'_>) -> Result<Place, RestoreFault> {
        let filter: Arc<str> = reader.text()?.into();
        let (cursor, missing) = (reader.number()?, reader.number()?);
        let is_shared = Filter::parse(&filter).map_err(|_| RestoreFault::Filter)?.share.is_some();
        if !is_shared || cursor >= missing {
            return Err(FieldError::Range.into());
        }
        if self.last_group.as_ref().is_some_and(|last| *last >= filter) {
            return Err(RestoreFault::OutOfOrder(kind::GROUP));
        }
        self.last_group = Some(filter.clone());
        Ok(Place::Members { filter, cursor, missing })
    }

    fn read_member(
        &mut self,
        reader: &mut FieldReader<'_>,
        text: Arc<str>,
        cursor: u64,
        missing: u64,
    ) -> Result<Place, RestoreFault> {
        let key = reader.number()?;
        let filter = Filter::parse(&text).map_err(|_| RestoreFault::Filter)?;
        let session = self.machine.sessions.get(key);
        let subscription = session.and_then(|session| session.subscriptions.get(&text));
        let granted = Granted::of(subscription.ok_or(RestoreFault::UnknownSession(key))?);
        if self.machine.subscriptions.insert(&filter, key, granted).is_some() {
            return Err(RestoreFault::OutOfOrder(kind::MEMBER));
        }
        let missing = missing - 1;
        if missing > 0 {
            return Ok(Place::Members { filter: text, cursor, missing });
        }
        let is_restored = usize::try_from(cursor)
            .is_ok_and(|cursor| self.machine.subscriptions.restore_cursor(&filter, cursor));
        let unsound = RestoreFault::Unsound("a cursor points at a member");
        if is_restored { Ok(Place::Groups) } else { Err(unsound) }
    }

    fn read_retained(&mut self, reader: &mut FieldReader<'_>) -> Result<(), RestoreFault> {
        let message = self.message_at(reader.number()?)?;
        let is_in_order = self.last_topic.as_ref().is_none_or(|last| *last < message.topic);
        if !is_in_order {
            return Err(RestoreFault::OutOfOrder(kind::RETAINED));
        }
        if message.payload.is_empty() {
            return Err(RestoreFault::Unsound("an empty message is not retained"));
        }
        self.last_topic = Some(message.topic.clone());
        self.machine.retain(&message);
        Ok(())
    }

    fn read_dedupe(&mut self, reader: &mut FieldReader<'_>) -> Result<(), RestoreFault> {
        let at_ms = reader.number()?;
        let key = read_dedupe_key(reader)?;
        if at_ms > self.machine.now_ms {
            return Err(FieldError::Range.into());
        }
        let is_next = self.machine.dedupe.restore(Accepted::new(at_ms, key));
        if is_next { Ok(()) } else { Err(RestoreFault::OutOfOrder(kind::DEDUPE)) }
    }

    fn read_end(&mut self, reader: &mut FieldReader<'_>) -> Result<(), RestoreFault> {
        let mut counts: Counts = [0; kind::COUNT];
        for item_kind in kind::counted(self.format) {
            counts[usize::from(item_kind)] = reader.number()?;
        }
        let digest = reader.bytes()?.try_into().map_err(|_| FieldError::Range)?;
        self.announced = Some((counts, u128::from_le_bytes(digest)));
        for item_kind in kind::counted(self.format) {
            let place = usize::from(item_kind);
            let (announced, found) = (counts[place], self.counts[place]);
            if announced != found {
                return Err(RestoreFault::WrongCount { kind: item_kind, announced, found });
            }
        }
        if self.counts[usize::from(kind::MEMBER)] != self.shared_count {
            return Err(RestoreFault::Unsound("a shared subscription is a member of its group"));
        }
        Ok(())
    }

    /// The digest made anew: whatever was lost on the way there and back shows in it.
    fn finish(self) -> Result<Machine, RestoreFault> {
        let (_, announced) = self.announced.ok_or(RestoreFault::CutOff)?;
        let found = self.machine.digest();
        if announced != found {
            return Err(RestoreFault::WrongDigest { announced, found });
        }
        Ok(self.machine)
    }
}
