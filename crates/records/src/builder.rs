//! Records become columns: the open end of the log.
//!
//! One builder per log, filled by the owner. Columns that have held only nulls so far cost nothing
//! per record; the first value fills in what is missing. Whether a column has one value only, or
//! counts up, is looked at once, when the block is finished: comparing whole columns is quicker
//! than asking at every record.

#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap)] // Arrow counts in i32, from 0 up

use arrow_buffer::Buffer;

use crate::body::{BodyWriter, Encoding};
use crate::limits::{BLOCK_BYTES_MAX, BLOCK_ROWS_MAX};
use crate::record::Record;
use crate::schema::{Column, PAYLOAD_FORMAT_ID};

/// What a row costs at most beside what varies in length: eleven integers of 8 bytes, lengths of 4
/// for eight columns, four of a byte, a bit each for whether it is null.
const ROW_BYTES_MAX: usize = 11 * 8 + 8 * 4 + 4 + 2;
/// What a block costs at most beside its rows: header and tag on disk, head, directory, gaps.
const FRAME_BYTES_MAX: usize = 2048;
/// When a block is full.
const FULL_BYTES: usize = BLOCK_BYTES_MAX - FRAME_BYTES_MAX;
/// A buffer that one large record has grown is given back.
const KEPT_CAPACITY_MAX: usize = 2 * BLOCK_BYTES_MAX;

/// Which rows have a value. Empty until the first row that has none.
#[derive(Debug, Default)]
struct Validity {
    bits: Vec<u8>,
}

impl Validity {
    /// Begins with `rows` rows that all are, or all are not.
    fn begin(&mut self, rows: usize, valid: bool) {
        self.bits.resize(rows.div_ceil(8), if valid { 0xFF } else { 0 });
    }

    fn push(&mut self, row: usize, valid: bool) {
        if row.is_multiple_of(8) {
            self.bits.truncate(row / 8);
            self.bits.push(0);
        }
        let bit = 1 << (row % 8);
        if valid {
            self.bits[row / 8] |= bit;
        } else {
            self.bits[row / 8] &= !bit;
        }
    }

    fn has_nulls(&self) -> bool {
        !self.bits.is_empty()
    }
}

#[derive(Debug, Default)]
struct Longs {
    values: Vec<i64>,
    validity: Validity,
}

impl Longs {
    #[inline]
    fn push(&mut self, value: i64) {
        self.values.push(value);
    }

    #[inline]
    fn push_maybe(&mut self, row: usize, value: Option<u64>) {
        let Some(value) = value else {
            if !self.values.is_empty() {
                self.push_null(row);
            }
            return;
        };
        if self.values.len() < row {
            self.values.resize(row, 0);
            self.validity.begin(row, false);
        }
        self.values.push(value.cast_signed());
        if self.validity.has_nulls() {
            self.validity.push(row, true);
        }
    }

    fn push_null(&mut self, row: usize) {
        if !self.validity.has_nulls() {
            self.validity.begin(row, true);
        }
        self.values.push(0);
        self.validity.push(row, false);
    }

    fn write(&self, column: Column, writer: &mut BodyWriter) {
        let Some(&first) = self.values.first() else { return };
        if self.validity.has_nulls() {
            writer.column(column.id(), Encoding::Nullable, 2);
            writer.buffer(&self.validity.bits);
            writer.buffer(&self.values);
        } else if self.values.iter().all(|value| *value == first) {
            writer.column(column.id(), Encoding::Constant, 1);
            writer.buffer(&[first]);
        } else if counts_up(&self.values) {
            writer.column(column.id(), Encoding::Sequence, 1);
            writer.buffer(&[first]);
        } else {
            writer.column(column.id(), Encoding::Plain, 1);
            writer.buffer(&self.values);
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        self.validity.bits.clear();
    }
}

fn counts_up(values: &[i64]) -> bool {
    values.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]))
}

#[derive(Debug, Default)]
struct Texts {
    /// One more than rows; none while there are only nulls.
    ends: Vec<i32>,
    bytes: Vec<u8>,
    validity: Validity,
}

impl Texts {
    #[inline]
    fn push(&mut self, value: &[u8]) {
        if self.ends.is_empty() {
            self.ends.push(0);
        }
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len() as i32);
    }

    #[inline]
    fn push_maybe(&mut self, row: usize, value: Option<&[u8]>) {
        let Some(value) = value else {
            if !self.ends.is_empty() {
                self.push_null(row);
            }
            return;
        };
        if self.ends.is_empty() && row > 0 {
            self.ends.resize(row + 1, 0);
            self.validity.begin(row, false);
        }
        self.push(value);
        if self.validity.has_nulls() {
            self.validity.push(row, true);
        }
    }

    fn push_null(&mut self, row: usize) {
        if !self.validity.has_nulls() {
            self.validity.begin(row, true);
        }
        self.ends.push(self.bytes.len() as i32);
        self.validity.push(row, false);
    }

    fn write(&self, column: Column, writer: &mut BodyWriter) {
        if self.ends.is_empty() {
            return;
        }
        if self.validity.has_nulls() {
            writer.column(column.id(), Encoding::Nullable, 3);
            writer.buffer(&self.validity.bits);
        } else if let Some(length) = self.repeated_length() {
            writer.column(column.id(), Encoding::Constant, 1);
            writer.buffer(&self.bytes[..length]);
            return;
        } else {
            writer.column(column.id(), Encoding::Plain, 2);
        }
        writer.buffer(&self.ends);
        writer.buffer(&self.bytes);
    }

    /// The length of the one value that all rows have, if they do.
    fn repeated_length(&self) -> Option<usize> {
        let length = self.ends[1];
        let alike = self.ends.windows(2).all(|pair| pair[1] - pair[0] == length);
        let length = length as usize;
        (alike && self.bytes[length..] == self.bytes[..self.bytes.len() - length]).then_some(length)
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_CAPACITY_MAX {
            self.bytes = Vec::new();
        }
        self.validity.bits.clear();
    }
}

/// Lists of key and value.
#[derive(Debug, Default)]
struct Pairs {
    /// Where each row's pairs end, counted in pairs; one more than rows.
    ends: Vec<i32>,
    keys: Texts,
    values: Texts,
    validity: Validity,
}

impl Pairs {
    #[inline]
    fn push(&mut self, row: usize, pairs: &[(&str, &str)]) {
        if !pairs.is_empty() || !self.ends.is_empty() {
            self.push_any(row, pairs);
        }
    }

    fn push_any(&mut self, row: usize, pairs: &[(&str, &str)]) {
        if self.ends.is_empty() {
            self.ends.resize(row + 1, 0);
            self.validity.begin(row, false);
        }
        for (key, value) in pairs {
            self.keys.push(key.as_bytes());
            self.values.push(value.as_bytes());
        }
        self.ends.push(self.keys.ends.len().saturating_sub(1) as i32);
        self.validity.push(row, !pairs.is_empty());
    }

    fn write(&self, writer: &mut BodyWriter) {
        if self.ends.is_empty() {
            return;
        }
        writer.column(Column::UserProperties.id(), Encoding::Nullable, 6);
        writer.buffer(&self.validity.bits);
        writer.buffer(&self.ends);
        for texts in [&self.keys, &self.values] {
            writer.buffer(&texts.ends);
            writer.buffer(&texts.bytes);
        }
    }

    fn clear(&mut self) {
        self.ends.clear();
        self.keys.clear();
        self.values.clear();
        self.validity.bits.clear();
    }
}

/// A byte per row: `QoS`, the source's code, the payload format.
#[derive(Debug, Default)]
struct Codes {
    values: Vec<i8>,
}

impl Codes {
    fn is_constant(&self) -> bool {
        self.values.iter().all(|value| *value == self.values[0])
    }

    fn write(&self, id: u8, writer: &mut BodyWriter) {
        if self.is_constant() {
            writer.column(id, Encoding::Constant, 1);
            writer.buffer(&self.values[..1]);
        } else {
            writer.column(id, Encoding::Plain, 1);
            writer.buffer(&self.values);
        }
    }

    /// As bits, which is how Arrow keeps a boolean.
    fn write_bits(&self, id: u8, writer: &mut BodyWriter) {
        if self.is_constant() {
            return self.write(id, writer);
        }
        let bits = |rows: &[i8]| {
            rows.iter().enumerate().fold(0_u8, |bits, (at, row)| bits | (u8::from(*row != 0) << at))
        };
        let packed: Vec<u8> = self.values.chunks(8).map(bits).collect();
        writer.column(id, Encoding::Plain, 1);
        writer.buffer(&packed);
    }
}

/// No Payload Format Indicator.
pub(crate) const NO_FORMAT: i8 = -1;

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    rows: usize,
    bytes: usize,
    offset: Longs,
    ts: Longs,
    topic: Texts,
    payload: Texts,
    qos: Codes,
    retain: Codes,
    source: Codes,
    client_id: Texts,
    incarnation: Longs,
    session_epoch: Longs,
    publish_seq: Longs,
    forward_seq: Longs,
    routing_epoch: Longs,
    content_type: Texts,
    response_topic: Texts,
    correlation_data: Texts,
    user_properties: Pairs,
    expiry_s: Longs,
    payload_format: Codes,
}

impl BlockBuilder {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// What the block weighs at most.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the block has room for a record with so many varying bytes. An empty block has room
    /// for any: a record larger than a block gets one of its own.
    pub(crate) fn has_room(&self, varying_bytes: usize) -> bool {
        let fits = self.bytes + varying_bytes + ROW_BYTES_MAX <= FULL_BYTES;
        self.rows == 0 || (fits && self.rows < BLOCK_ROWS_MAX)
    }

    /// Adds a record; the caller has asked for room.
    pub(crate) fn push(&mut self, record: &Record<'_>, varying_bytes: usize) {
        let row = self.rows;
        self.rows += 1;
        self.bytes += varying_bytes + ROW_BYTES_MAX;
        self.offset.push(record.offset.cast_signed());
        self.ts.push(ts_us(record.now_ms));
        self.topic.push(record.topic.as_bytes());
        self.payload.push(record.payload);
        self.qos.values.push(record.qos.min(2).cast_signed());
        self.retain.values.push(i8::from(record.retain));
        self.source.values.push((record.source as u8).cast_signed());
        self.client_id.push_maybe(row, record.client_id.map(str::as_bytes));
        self.incarnation.push_maybe(row, record.incarnation);
        self.session_epoch.push_maybe(row, record.session_epoch);
        self.publish_seq.push_maybe(row, record.publish_seq);
        self.forward_seq.push_maybe(row, record.forward_seq);
        self.routing_epoch.push_maybe(row, record.routing_epoch);
        self.content_type.push_maybe(row, record.content_type.map(str::as_bytes));
        self.response_topic.push_maybe(row, record.response_topic.map(str::as_bytes));
        self.correlation_data.push_maybe(row, record.correlation_data);
        self.user_properties.push(row, record.user_properties);
        self.expiry_s.push_maybe(row, record.expiry_s.map(u64::from));
        let format = record.payload_format.map_or(NO_FORMAT, |format| (format & 1).cast_signed());
        self.payload_format.values.push(format);
    }

    /// The body of a block with what is there; the builder goes on as it is.
    pub(crate) fn body(&self) -> Buffer {
        let mut writer = BodyWriter::new(self.bytes + FRAME_BYTES_MAX);
        self.offset.write(Column::Offset, &mut writer);
        self.ts.write(Column::Ts, &mut writer);
        self.topic.write(Column::Topic, &mut writer);
        self.payload.write(Column::Payload, &mut writer);
        self.qos.write(Column::Qos.id(), &mut writer);
        self.retain.write_bits(Column::Retain.id(), &mut writer);
        self.source.write(Column::Source.id(), &mut writer);
        self.client_id.write(Column::ClientId, &mut writer);
        self.incarnation.write(Column::Incarnation, &mut writer);
        self.session_epoch.write(Column::SessionEpoch, &mut writer);
        self.publish_seq.write(Column::PublishSeq, &mut writer);
        self.forward_seq.write(Column::ForwardSeq, &mut writer);
        self.routing_epoch.write(Column::RoutingEpoch, &mut writer);
        self.content_type.write(Column::ContentType, &mut writer);
        self.response_topic.write(Column::ResponseTopic, &mut writer);
        self.correlation_data.write(Column::CorrelationData, &mut writer);
        self.user_properties.write(&mut writer);
        self.expiry_s.write(Column::ExpiryS, &mut writer);
        if self.payload_format.values.iter().any(|format| *format != NO_FORMAT) {
            self.payload_format.write(PAYLOAD_FORMAT_ID, &mut writer);
        }
        writer.finish(self.rows)
    }

    /// Empties the builder; what it has allocated serves the next block.
    pub(crate) fn clear(&mut self) {
        self.rows = 0;
        self.bytes = 0;
        for longs in [
            &mut self.offset,
            &mut self.ts,
            &mut self.incarnation,
            &mut self.session_epoch,
            &mut self.publish_seq,
            &mut self.forward_seq,
            &mut self.routing_epoch,
            &mut self.expiry_s,
        ] {
            longs.clear();
        }
        for texts in [
            &mut self.topic,
            &mut self.payload,
            &mut self.client_id,
            &mut self.content_type,
            &mut self.response_topic,
            &mut self.correlation_data,
        ] {
            texts.clear();
        }
        for codes in [&mut self.qos, &mut self.retain, &mut self.source, &mut self.payload_format] {
            codes.values.clear();
        }
        self.user_properties.clear();
    }
}

/// The column `ts`; a time beyond what it can say is its last.
fn ts_us(now_ms: u64) -> i64 {
    const LAST_MS: u64 = i64::MAX as u64 / 1000;
    (now_ms.min(LAST_MS) * 1000).cast_signed()
}
