//! The columns that readers of the log see: names, types and order are a promise.
//!
//! `!` in the design means never null. Columns are only ever appended; `tests/golden/records` holds
//! the list, so that a change of it shows as a diff. Two columns are in no block: tenant and
//! partition are the same for all of a log, are bound into every seal and are put in when read.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};

/// How many columns readers see.
pub const COLUMN_COUNT: usize = 20;

/// A column, by its place in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Column {
    Tenant = 0,
    Partition = 1,
    Offset = 2,
    Ts = 3,
    Topic = 4,
    Payload = 5,
    Qos = 6,
    Retain = 7,
    Source = 8,
    ClientId = 9,
    Incarnation = 10,
    SessionEpoch = 11,
    PublishSeq = 12,
    ForwardSeq = 13,
    RoutingEpoch = 14,
    ContentType = 15,
    ResponseTopic = 16,
    CorrelationData = 17,
    UserProperties = 18,
    ExpiryS = 19,
}

impl Column {
    pub(crate) const ALL: [Self; COLUMN_COUNT] = [
        Self::Tenant,
        Self::Partition,
        Self::Offset,
        Self::Ts,
        Self::Topic,
        Self::Payload,
        Self::Qos,
        Self::Retain,
        Self::Source,
        Self::ClientId,
        Self::Incarnation,
        Self::SessionEpoch,
        Self::PublishSeq,
        Self::ForwardSeq,
        Self::RoutingEpoch,
        Self::ContentType,
        Self::ResponseTopic,
        Self::CorrelationData,
        Self::UserProperties,
        Self::ExpiryS,
    ];

    /// Its number inside a block's directory; the same as its place.
    pub(crate) const fn id(self) -> u8 {
        self as u8
    }
}

/// The Payload Format Indicator's number inside a block's directory: stored for deliveries, shown
/// to nobody. Far above the places that columns may yet be appended to.
pub(crate) const PAYLOAD_FORMAT_ID: u8 = 128;

static FIELDS: LazyLock<Vec<Field>> = LazyLock::new(|| {
    let never_null = |name: &str, kind| Field::new(name, kind, false);
    let maybe = |name: &str, kind| Field::new(name, kind, true);
    vec![
        never_null("tenant", DataType::Utf8),
        never_null("partition", DataType::Int32),
        never_null("offset", DataType::Int64),
        never_null("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        never_null("topic", DataType::Utf8),
        never_null("payload", DataType::Binary),
        never_null("qos", DataType::Int8),
        never_null("retain", DataType::Boolean),
        never_null("source", DataType::Utf8),
        maybe("client_id", DataType::Utf8),
        maybe("incarnation", DataType::Int64),
        maybe("session_epoch", DataType::Int64),
        maybe("publish_seq", DataType::Int64),
        maybe("forward_seq", DataType::Int64),
        maybe("routing_epoch", DataType::Int64),
        maybe("content_type", DataType::Utf8),
        maybe("response_topic", DataType::Utf8),
        maybe("correlation_data", DataType::Binary),
        maybe("user_properties", DataType::List(pair_field())),
        maybe("expiry_s", DataType::Int64),
    ]
});

/// The field of one user property inside its list.
pub(crate) fn pair_field() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(pair_fields()), false))
}

/// Key and value of one user property.
pub(crate) fn pair_fields() -> Fields {
    Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Utf8, false),
    ])
}

/// Which columns a reader wants; they come in the order of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns(u32);

impl Columns {
    /// Every column.
    pub const ALL: Self = Self((1 << COLUMN_COUNT) - 1);

    /// The columns with these names.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut chosen = 0;
        for name in names {
            let place = FIELDS.iter().position(|field| field.name() == name);
            chosen |= 1 << place.ok_or_else(|| Error::UnknownColumn { name: name.to_owned() })?;
        }
        Ok(Self(chosen))
    }

    pub(crate) fn has(self, column: Column) -> bool {
        self.0 & (1 << column.id()) != 0
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Column> {
        Column::ALL.into_iter().filter(move |column| self.has(*column))
    }

    /// The schema of batches with these columns.
    pub fn schema(self) -> SchemaRef {
        let fields: Vec<Field> =
            self.iter().map(|column| FIELDS[usize::from(column.id())].clone()).collect();
        Arc::new(Schema::new(fields))
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;
    use crate::Error;

    #[test]
    fn chosen_columns_come_in_the_order_of_the_schema() {
        let columns = Columns::named(["payload", "offset", "topic"]).expect("they exist");
        let schema = columns.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["offset", "topic", "payload"]);
    }

    #[test]
    fn a_name_that_does_not_exist_is_said() {
        let refused = Columns::named(["offset", "colour"]);
        assert!(matches!(refused, Err(Error::UnknownColumn { name }) if name == "colour"));
    }
}
