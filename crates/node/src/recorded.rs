//! What the machine says was committed, as the message log has it.

use quantumqtt_machine::{Record, Source};
use quantumqtt_records::{Error, Record as LogRecord, RecordLog, Source as LogSource};
use quantumqtt_wire::Properties;

use crate::effects::stored_properties;
use crate::limits::RECORDS_PER_APPEND;

/// The user properties of one record, in order.
type Pairs<'r> = Vec<(&'r str, &'r str)>;

/// Appends records in the order in which they were committed. Those that are there already are
/// compared and skipped.
pub(crate) fn append(
    log: &mut RecordLog,
    routing_epoch: u64,
    records: &[Record],
) -> Result<(), Error> {
    // Readers wait while some are appended.
    for some in records.chunks(RECORDS_PER_APPEND) {
        let parsed: Vec<(Properties<'_>, Pairs<'_>)> = some.iter().map(properties_of).collect();
        let converted = some.iter().zip(&parsed).map(|(record, (properties, pairs))| {
            convert(record, *properties, pairs, routing_epoch)
        });
        log.append(converted)?;
    }
    Ok(())
}

fn properties_of(record: &Record) -> (Properties<'_>, Pairs<'_>) {
    if record.message.properties.is_empty() {
        return (Properties::EMPTY, Vec::new());
    }
    let properties = stored_properties(&record.message.properties);
    (properties, properties.user_properties().collect())
}

fn convert<'r>(
    record: &'r Record,
    properties: Properties<'r>,
    user_properties: &'r [(&'r str, &'r str)],
    routing_epoch: u64,
) -> LogRecord<'r> {
    let message = &*record.message;
    // Zero is no session: a transient publisher, whose name is all there is of it.
    let number = |number: u64| Some(number).filter(|number| *number != 0);
    LogRecord {
        offset: record.offset,
        now_ms: record.ts_ms,
        topic: &message.topic,
        payload: &message.payload,
        qos: message.qos as u8,
        retain: record.retain,
        source: source_of(record.source),
        client_id: Some(&*record.client_id).filter(|client_id| !client_id.is_empty()),
        incarnation: number(record.incarnation),
        session_epoch: number(record.session_epoch),
        publish_seq: Some(record.publish_seq),
        forward_seq: None,
        routing_epoch: Some(routing_epoch),
        content_type: properties.content_type(),
        response_topic: properties.response_topic(),
        correlation_data: properties.correlation_data(),
        user_properties,
        expiry_s: message.expiry_s,
        payload_format: properties.payload_is_utf8().map(u8::from),
    }
}

fn source_of(source: Source) -> LogSource {
    match source {
        Source::Mqtt => LogSource::Mqtt,
        Source::Queue => LogSource::Queue,
        Source::Sqs => LogSource::Sqs,
        Source::Will => LogSource::Will,
        Source::Sink => LogSource::Sink,
        Source::System => LogSource::System,
    }
}
