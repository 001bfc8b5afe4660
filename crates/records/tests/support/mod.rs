//! What the tests of the log share: records that own their parts, and a log with a past.

#![allow(dead_code)] // each test program uses what it needs
#![allow(unreachable_pub)] // `pub` says what is meant for them

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;
use quantumqtt_records::{
    Disk, Error, Identity, Keys, LogReader, Manifest, Options, Range, Record, RecordLog, Result,
    SealWhen, Source,
};

pub const KEY: [u8; 32] = [7; 32];

/// A record that owns its parts; the model is a vector of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub now_ms: u64,
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub source: Source,
    pub client_id: Option<String>,
    pub numbers: [Option<u64>; 5],
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation_data: Option<Vec<u8>>,
    pub user_properties: Vec<(String, String)>,
    pub expiry_s: Option<u32>,
    pub payload_format: Option<u8>,
}

impl Owned {
    pub fn plain(number: u64, payload: &[u8]) -> Self {
        Self {
            now_ms: 1_700_000_000_000 + number,
            topic: format!("plant/{}/temperature", number % 7),
            payload: payload.to_vec(),
            qos: 1,
            retain: false,
            source: Source::Mqtt,
            client_id: Some(format!("sensor-{}", number % 3)),
            numbers: [Some(1), Some(2), Some(number), None, Some(1)],
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
            expiry_s: None,
            payload_format: None,
        }
    }

    /// Lends the record at `offset`.
    pub fn lend<T>(&self, offset: u64, use_record: impl FnOnce(Record<'_>) -> T) -> T {
        let pairs: Vec<(&str, &str)> =
            self.user_properties.iter().map(|(key, value)| (&**key, &**value)).collect();
        let [incarnation, session_epoch, publish_seq, forward_seq, routing_epoch] = self.numbers;
        use_record(Record {
            offset,
            now_ms: self.now_ms,
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            source: self.source,
            client_id: self.client_id.as_deref(),
            incarnation,
            session_epoch,
            publish_seq,
            forward_seq,
            routing_epoch,
            content_type: self.content_type.as_deref(),
            response_topic: self.response_topic.as_deref(),
            correlation_data: self.correlation_data.as_deref(),
            user_properties: &pairs,
            expiry_s: self.expiry_s,
            payload_format: self.payload_format,
        })
    }

    pub fn of(record: &Record<'_>) -> Self {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self {
            now_ms: record.now_ms,
            topic: record.topic.to_owned(),
            payload: record.payload.to_vec(),
            qos: record.qos,
            retain: record.retain,
            source: record.source,
            client_id: text(record.client_id),
            numbers: [
                record.incarnation,
                record.session_epoch,
                record.publish_seq,
                record.forward_seq,
                record.routing_epoch,
            ],
            content_type: text(record.content_type),
            response_topic: text(record.response_topic),
            correlation_data: record.correlation_data.map(<[u8]>::to_vec),
            user_properties: record.user_properties.iter().map(pair).collect(),
            expiry_s: record.expiry_s,
            payload_format: record.payload_format,
        }
    }
}

/// Any record, with sizes and absences that change from one to the next, or do not.
pub fn any_record() -> impl Strategy<Value = Owned> {
    let text = || proptest::option::of("[a-zü]{0,12}");
    let number = || proptest::option::of(0..=i64::MAX.cast_unsigned());
    let payload = prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => (any::<u8>(), 1_000..60_000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    let names = (text(), text(), text());
    let pairs = proptest::collection::vec(("[a-c]{0,3}", "\\PC{0,8}"), 0..3);
    let small = (0..=2_u8, any::<bool>(), 0..6_u8, proptest::option::of(0..=1_u8));
    let rest = (
        proptest::array::uniform5(number()),
        proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)),
        proptest::option::of(any::<u32>()),
    );
    (0..4_000_000_000_000_u64, "[a-z/]{1,20}", payload, names, pairs, small, rest).prop_map(
        |(now_ms, topic, payload, names, user_properties, small, rest)| Owned {
            now_ms,
            topic,
            payload,
            qos: small.0,
            retain: small.1,
            source: Source::from_code(small.2).expect("a code below six"),
            client_id: names.0,
            numbers: rest.0,
            content_type: names.1,
            response_topic: names.2,
            correlation_data: rest.1,
            user_properties,
            expiry_s: rest.2,
            payload_format: small.3,
        },
    )
}

pub fn identity() -> Identity {
    Identity { tenant: "default".into(), partition: 3 }
}

pub fn keys() -> Keys {
    Keys::new(1, KEY)
}

pub fn directory() -> &'static str {
    "log"
}

/// Sizes small enough for a test to see chunks merge.
pub fn small() -> Options {
    Options { chunk_bytes: 4_000, merged_bytes: 1_000_000, cache_bytes: 1 << 20 }
}

pub fn open(disk: &Arc<dyn Disk>, manifest: &Manifest) -> Result<RecordLog> {
    let opened = RecordLog::open(disk.clone(), directory(), identity(), keys(), small(), manifest);
    opened.map(|(log, _)| log)
}

/// Appends what comes at `offset` and after it, as one batch.
pub fn append(log: &mut RecordLog, offset: u64, records: &[Owned]) -> Result<u64> {
    let mut added = 0;
    for (offset, record) in (offset..).zip(records) {
        added += record.lend(offset, |record| log.append([record]))?.added;
    }
    Ok(added)
}

pub fn seal(log: &mut RecordLog) -> Result<()> {
    let Some(job) = log.plan_seal(SealWhen::Now) else { return Ok(()) };
    match job.execute() {
        Ok(sealed) => {
            log.publish_seal(sealed);
            Ok(())
        }
        Err(error) => {
            log.abandon_seal();
            Err(error)
        }
    }
}

/// Every record from `start` on, as Arrow shows them.
pub fn read_all(reader: &LogReader, start: u64) -> Result<Vec<(u64, Owned)>> {
    let mut found = Vec::new();
    let mut range = Range::from(start);
    loop {
        let step = reader.read(&range, 100_000)?;
        found.extend(step.batches.iter().flat_map(records_of));
        if step.next == range.start {
            return Ok(found);
        }
        range.start = step.next;
    }
}

/// The records at these offsets, however many steps it takes.
pub fn read_points(reader: &LogReader, offsets: &[u64]) -> Result<Vec<(u64, Owned)>> {
    let mut found = Vec::new();
    let mut left = offsets;
    while !left.is_empty() {
        let rows = reader.read_points(left, 100_000)?.rows;
        assert!(!rows.is_empty(), "every step gets on");
        left = &left[rows.len()..];
        found.extend(rows.iter().map(|row| (row.offset(), row.with(Owned::of))));
    }
    Ok(found)
}

/// The rows of a batch with all columns. What Arrow does not show is left out.
pub fn records_of(batch: &RecordBatch) -> Vec<(u64, Owned)> {
    let text = |name: &str| batch.column_by_name(name).expect(name).as_string::<i32>().clone();
    let binary = |name: &str| batch.column_by_name(name).expect(name).as_binary::<i32>().clone();
    let long =
        |name: &str| batch.column_by_name(name).expect(name).as_primitive::<Int64Type>().clone();
    let numbers =
        ["incarnation", "session_epoch", "publish_seq", "forward_seq", "routing_epoch"].map(long);
    let (offset, expiry_s) = (long("offset"), long("expiry_s"));
    let ts = batch.column_by_name("ts").expect("ts").as_primitive::<TimestampMicrosecondType>();
    let qos = batch.column_by_name("qos").expect("qos").as_primitive::<Int8Type>();
    let retain = batch.column_by_name("retain").expect("retain").as_boolean();
    let pairs = batch.column_by_name("user_properties").expect("pairs").as_list::<i32>();
    let maybe_text =
        |array: &StringArray, row| array.is_valid(row).then(|| array.value(row).to_owned());
    let maybe =
        |array: &Int64Array, row| array.is_valid(row).then(|| array.value(row).cast_unsigned());
    let row = |row: usize| {
        assert_eq!(text("tenant").value(row), "default");
        let record = Owned {
            now_ms: ts.value(row).cast_unsigned() / 1000,
            topic: text("topic").value(row).to_owned(),
            payload: binary("payload").value(row).to_vec(),
            qos: qos.value(row).cast_unsigned(),
            retain: retain.value(row),
            source: Source::from_word(text("source").value(row)).expect("a source"),
            client_id: maybe_text(&text("client_id"), row),
            numbers: numbers.each_ref().map(|array| maybe(array, row)),
            content_type: maybe_text(&text("content_type"), row),
            response_topic: maybe_text(&text("response_topic"), row),
            correlation_data: binary("correlation_data")
                .iter()
                .nth(row)
                .expect("a row")
                .map(<[u8]>::to_vec),
            user_properties: if pairs.is_valid(row) { pairs_of(&pairs.value(row)) } else { vec![] },
            expiry_s: maybe(&expiry_s, row).map(|expiry_s| u32::try_from(expiry_s).expect("u32")),
            payload_format: None,
        };
        (offset.value(row).cast_unsigned(), record)
    };
    (0..batch.num_rows()).map(row).collect()
}

fn pairs_of(list: &ArrayRef) -> Vec<(String, String)> {
    let pairs = list.as_struct();
    let (keys, values) = (pairs.column(0).as_string::<i32>(), pairs.column(1).as_string::<i32>());
    let pair = |row| (keys.value(row).to_owned(), values.value(row).to_owned());
    (0..pairs.len()).map(pair).collect()
}

/// The records without what Arrow does not show, with their offsets.
pub fn shown(offset: u64, records: &[Owned]) -> Vec<(u64, Owned)> {
    let show = |record: &Owned| Owned { payload_format: None, ..record.clone() };
    (offset..).zip(records.iter().map(show)).collect()
}

pub fn expired(result: Result<impl std::fmt::Debug>) -> (u64, u64) {
    match result {
        Err(Error::OffsetExpired { from, until }) => (from, until),
        other => panic!("expected expired offsets, got {other:?}"),
    }
}
