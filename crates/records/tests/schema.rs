//! The schema is a promise, and what we call Arrow is Arrow to others too.

mod support;

use std::io::Cursor;
use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use proptest::prelude::*;
use quantumqtt_records::{Columns, Disk, Manifest, Range, SimDisk};
use support::{any_record, append, open, shown};

const GOLDEN: &str = include_str!("../../../tests/golden/records/schema.txt");

#[test]
fn the_schema_is_the_one_that_was_promised() {
    let schema = Columns::ALL.schema();
    let line = |field: &Arc<arrow_schema::Field>| {
        let never_null = if field.is_nullable() { "" } else { " !" };
        format!("{} {}{never_null}", field.name(), field.data_type())
    };
    let lines: Vec<String> = schema.fields().iter().map(line).collect();
    let promised: Vec<&str> = GOLDEN.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, promised, "columns are only ever appended, and then here too");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn batches_pass_through_another_readers_checks(
        records in proptest::collection::vec(any_record(), 1..60),
    ) {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let mut log = open(&disk, &Manifest::default()).expect("a new log");
        append(&mut log, 0, &records).expect("dense");
        let stream = log.reader().stream(Range::from(0));
        let schema = Columns::ALL.schema();
        let mut writer = StreamWriter::try_new(Vec::new(), &schema).expect("a vector");
        for batch in stream {
            writer.write(&batch.expect("readable")).expect("a vector");
        }
        let bytes = writer.into_inner().expect("a vector");
        // The IPC reader validates offsets, nulls and text of every array it makes.
        let reader = StreamReader::try_new(Cursor::new(bytes), None).expect("a stream");
        let found: Vec<_> = reader
            .flat_map(|batch| support::records_of(&batch.expect("a batch")))
            .collect();
        prop_assert_eq!(found, shown(0, &records));
    }
}
