//! A block: some neighbouring records as columns, the unit of sealing, reading and caching.
//!
//! The same thing in memory and on disk. The tail keeps blocks as they will be written, so that a
//! reader at the live edge and a reader of last year take the same path, and sealing a chunk
//! copies bytes and nothing else.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{Int32Type, TimestampMicrosecondType, Utf8Type};
use arrow_array::{ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use crate::body::{BodyReader, Fault};
use crate::builder::NO_FORMAT;
use crate::column::{Flags, Numbers, Pairs, Texts, repeated};
use crate::limits::BLOCK_ROWS_MAX;
use crate::record::{Record, Source};
use crate::schema::{Column, Columns, PAYLOAD_FORMAT_ID};

/// Whose log it is. Never on disk as a column: bound into every seal, put in when read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The partition.
    pub partition: u32,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) rows: usize,
    body: Buffer,
    pub(crate) first_offset: u64,
    pub(crate) last_offset: u64,
    pub(crate) ts_min_us: i64,
    pub(crate) ts_max_us: i64,
    offset: Numbers<i64>,
    ts: Numbers<i64>,
    topic: Texts,
    payload: Texts,
    qos: Numbers<i8>,
    retain: Flags,
    source: Numbers<i8>,
    client_id: Texts,
    incarnation: Numbers<i64>,
    session_epoch: Numbers<i64>,
    publish_seq: Numbers<i64>,
    forward_seq: Numbers<i64>,
    routing_epoch: Numbers<i64>,
    content_type: Texts,
    response_topic: Texts,
    correlation_data: Texts,
    user_properties: Pairs,
    expiry_s: Numbers<i64>,
    payload_format: Numbers<i8>,
}

impl Block {
    /// Reads a body that may hold anything.
    pub(crate) fn parse(body: Buffer) -> Result<Self, Fault> {
        let mut reader = BodyReader::new(&body)?;
        let rows = reader.rows;
        if rows == 0 || rows > BLOCK_ROWS_MAX {
            return Err("no rows, or more than a block has");
        }
        let mut block = Self::empty(rows);
        let mut seen = 0_u32;
        while let Some(mut entry) = reader.next()? {
            let bit = 1_u32 << (entry.id & 31);
            if seen & bit != 0 {
                return Err("a column comes twice");
            }
            seen |= bit;
            block.take_column(&mut entry)?;
        }
        block.body = body;
        block.check()?;
        Ok(block)
    }

    fn empty(rows: usize) -> Self {
        Self {
            rows,
            body: Buffer::default(),
            first_offset: 0,
            last_offset: 0,
            ts_min_us: 0,
            ts_max_us: 0,
            offset: Numbers::Null,
            ts: Numbers::Null,
            topic: Texts::Null,
            payload: Texts::Null,
            qos: Numbers::Null,
            retain: Flags::Constant(false),
            source: Numbers::Null,
            client_id: Texts::Null,
            incarnation: Numbers::Null,
            session_epoch: Numbers::Null,
            publish_seq: Numbers::Null,
            forward_seq: Numbers::Null,
            routing_epoch: Numbers::Null,
            content_type: Texts::Null,
            response_topic: Texts::Null,
            correlation_data: Texts::Null,
            user_properties: Pairs::Null,
            expiry_s: Numbers::Null,
            payload_format: Numbers::Constant(NO_FORMAT),
        }
    }

    fn take_column(&mut self, entry: &mut crate::body::Entry) -> Result<(), Fault> {
        let rows = self.rows;
        if entry.id == PAYLOAD_FORMAT_ID {
            self.payload_format = Numbers::parse(entry, rows)?;
            return Ok(());
        }
        let column = Column::ALL.get(usize::from(entry.id)).ok_or("a column of a later release")?;
        match column {
            Column::Tenant | Column::Partition => return Err("a column that is never stored"),
            Column::Offset => self.offset = Numbers::parse(entry, rows)?,
            Column::Ts => self.ts = Numbers::parse(entry, rows)?,
            Column::Topic => self.topic = Texts::parse(entry, rows, true)?,
            Column::Payload => self.payload = Texts::parse(entry, rows, false)?,
            Column::Qos => self.qos = Numbers::parse(entry, rows)?,
            Column::Retain => self.retain = Flags::parse(entry, rows)?,
            Column::Source => self.source = Numbers::parse(entry, rows)?,
            Column::ClientId => self.client_id = Texts::parse(entry, rows, true)?,
            Column::Incarnation => self.incarnation = Numbers::parse(entry, rows)?,
            Column::SessionEpoch => self.session_epoch = Numbers::parse(entry, rows)?,
            Column::PublishSeq => self.publish_seq = Numbers::parse(entry, rows)?,
            Column::ForwardSeq => self.forward_seq = Numbers::parse(entry, rows)?,
            Column::RoutingEpoch => self.routing_epoch = Numbers::parse(entry, rows)?,
            Column::ContentType => self.content_type = Texts::parse(entry, rows, true)?,
            Column::ResponseTopic => self.response_topic = Texts::parse(entry, rows, true)?,
            Column::CorrelationData => self.correlation_data = Texts::parse(entry, rows, false)?,
            Column::UserProperties => self.user_properties = Pairs::parse(entry, rows)?,
            Column::ExpiryS => self.expiry_s = Numbers::parse(entry, rows)?,
        }
        Ok(())
    }

    /// What every record has is there and means something; what the block spans is noted.
    fn check(&mut self) -> Result<(), Fault> {
        if !(self.offset.is_complete() && self.ts.is_complete()) {
            return Err("a record without offset or time");
        }
        if !(self.topic.is_complete() && self.payload.is_complete()) {
            return Err("a record without topic or payload");
        }
        self.qos.check(|qos| (0..=2).contains(&qos))?;
        self.source.check(|code| Source::from_code(code.cast_unsigned()).is_some())?;
        self.payload_format.check(|format| (NO_FORMAT..=1).contains(&format))?;
        let end = |numbers: &Numbers<i64>, row| numbers.get(row).unwrap_or_default();
        let (first, last) = (end(&self.offset, 0), end(&self.offset, self.rows - 1));
        let rising = match &self.offset {
            Numbers::Plain(values, _) => values.windows(2).all(|pair| pair[0] < pair[1]),
            Numbers::Constant(_) => self.rows == 1,
            Numbers::Sequence(_) | Numbers::Null => true,
        };
        if first < 0 || last < first || !rising {
            return Err("offsets do not rise");
        }
        self.first_offset = first.cast_unsigned();
        self.last_offset = last.cast_unsigned();
        (self.ts_min_us, self.ts_max_us) = match &self.ts {
            Numbers::Plain(values, _) => (
                values.iter().copied().min().unwrap_or(0),
                values.iter().copied().max().unwrap_or(0),
            ),
            _ => (end(&self.ts, 0), end(&self.ts, self.rows - 1)),
        };
        if self.ts_min_us < 0 { Err("a time before 1970") } else { Ok(()) }
    }

    /// The bytes to seal.
    pub(crate) fn body(&self) -> &Buffer {
        &self.body
    }

    /// What it weighs in memory, for budgets.
    pub(crate) fn weight_bytes(&self) -> usize {
        self.body.len() + size_of::<Self>()
    }

    pub(crate) fn offset(&self, row: usize) -> u64 {
        self.offset.get(row).unwrap_or_default().cast_unsigned()
    }

    /// The row with this offset.
    pub(crate) fn find(&self, offset: u64) -> Option<usize> {
        let row = self.find_from(offset);
        (row < self.rows && self.offset(row) == offset).then_some(row)
    }

    /// The first row at or after this offset; `rows` if none is.
    pub(crate) fn find_from(&self, offset: u64) -> usize {
        match &self.offset {
            Numbers::Plain(values, _) => {
                values.partition_point(|value| value.cast_unsigned() < offset)
            }
            _ => (offset.saturating_sub(self.first_offset)).min(self.rows as u64) as usize,
        }
    }

    /// The first row that is not older than this.
    pub(crate) fn find_time(&self, ts_us: i64) -> Option<usize> {
        (0..self.rows).find(|row| self.ts.get(*row).is_some_and(|ts| ts >= ts_us))
    }

    pub(crate) fn topic(&self, row: usize) -> &str {
        self.topic.text(row).unwrap_or_default()
    }

    /// The rows of a range as Arrow, with the columns of `schema`, which are `columns`.
    pub(crate) fn batch(
        &self,
        identity: &Identity,
        columns: Columns,
        schema: &SchemaRef,
        rows: Range<usize>,
    ) -> RecordBatch {
        let arrays = columns.iter().map(|column| self.array(identity, column)).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
            .expect("the block was checked against the schema when it was opened");
        batch.slice(rows.start, rows.len())
    }

    fn array(&self, identity: &Identity, column: Column) -> ArrayRef {
        let rows = self.rows;
        match column {
            Column::Tenant => repeated::<Utf8Type>(identity.tenant.as_bytes(), rows),
            Column::Partition => {
                let partition = identity.partition.cast_signed();
                Arc::new(PrimitiveArray::<Int32Type>::from_value(partition, rows))
            }
            Column::Offset => self.offset.array(rows),
            Column::Ts => {
                Arc::new(self.ts.array_of::<TimestampMicrosecondType>(rows).with_timezone("UTC"))
            }
            Column::Topic => self.topic.text_array(rows),
            Column::Payload => self.payload.binary_array(rows),
            Column::Qos => self.qos.array(rows),
            Column::Retain => self.retain.array(rows),
            Column::Source => self.source.source_array(rows),
            Column::ClientId => self.client_id.text_array(rows),
            Column::Incarnation => self.incarnation.array(rows),
            Column::SessionEpoch => self.session_epoch.array(rows),
            Column::PublishSeq => self.publish_seq.array(rows),
            Column::ForwardSeq => self.forward_seq.array(rows),
            Column::RoutingEpoch => self.routing_epoch.array(rows),
            Column::ContentType => self.content_type.text_array(rows),
            Column::ResponseTopic => self.response_topic.text_array(rows),
            Column::CorrelationData => self.correlation_data.binary_array(rows),
            Column::UserProperties => self.user_properties.array(rows),
            Column::ExpiryS => self.expiry_s.array(rows),
        }
    }

    /// Row `row` as a record; `pairs` lends the memory for its user properties.
    pub(crate) fn record<'a>(
        &'a self,
        row: usize,
        pairs: &'a mut Vec<(&'a str, &'a str)>,
    ) -> Record<'a> {
        pairs.extend(self.user_properties.get(row));
        let unsigned = |numbers: &Numbers<i64>| numbers.get(row).map(i64::cast_unsigned);
        let expiry_s = self.expiry_s.get(row).map(|expiry_s| expiry_s.cast_unsigned() as u32);
        Record {
            offset: self.offset(row),
            now_ms: self.ts.get(row).unwrap_or_default().cast_unsigned() / 1000,
            topic: self.topic(row),
            payload: self.payload.get(row).unwrap_or_default(),
            qos: self.qos.get(row).cast_unsigned(),
            retain: self.retain.get(row),
            source: Source::from_code(self.source.get(row).cast_unsigned())
                .unwrap_or(Source::System),
            client_id: self.client_id.text(row),
            incarnation: unsigned(&self.incarnation),
            session_epoch: unsigned(&self.session_epoch),
            publish_seq: unsigned(&self.publish_seq),
            forward_seq: unsigned(&self.forward_seq),
            routing_epoch: unsigned(&self.routing_epoch),
            content_type: self.content_type.text(row),
            response_topic: self.response_topic.text(row),
            correlation_data: self.correlation_data.get(row),
            user_properties: pairs,
            expiry_s,
            payload_format: u8::try_from(self.payload_format.get(row)).ok(),
        }
    }
}

/// One record of the log, held by the block it is in.
#[derive(Debug, Clone)]
pub struct Row {
    block: Arc<Block>,
    row: usize,
}

impl Row {
    pub(crate) fn new(block: Arc<Block>, row: usize) -> Self {
        Self { block, row }
    }

    /// Its offset.
    pub fn offset(&self) -> u64 {
        self.block.offset(self.row)
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        self.block.topic(self.row)
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        self.block.payload.get(self.row).unwrap_or_default()
    }

    /// Its payload without a copy. As long as it lives, so does the whole block.
    pub fn share_payload(&self) -> Bytes {
        self.block.payload.share(self.row).into()
    }

    /// What the block behind it weighs; rows of one block share it.
    pub fn block_bytes(&self) -> usize {
        self.block.weight_bytes()
    }

    /// All of it, lent to `use_record`.
    pub fn with<T>(&self, use_record: impl FnOnce(&Record<'_>) -> T) -> T {
        let mut pairs = Vec::new();
        use_record(&self.block.record(self.row, &mut pairs))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.with(|record| other.with(|theirs| record == theirs))
    }
}
