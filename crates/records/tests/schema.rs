//! The schema is a promise, and what we call Arrow is Arrow to others too.

mod support;

use std::fmt::Write as _;
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
    let mut lines = String::new();
    for field in Columns::ALL.schema().fields() {
        let never_null = if field.is_nullable() { "" } else { " !" };
        writeln!(lines, "{} {}{never_null}", field.name(), field.data_type()).expect("a string");
    }
    let promised: String = GOLDEN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
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
        let mut writer = StreamWriter::try_new(Vec::new(), &Columns::ALL.schema()).expect("a vector");
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
