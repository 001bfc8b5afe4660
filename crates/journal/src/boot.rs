//! The boot record: what the last start found, for people and tools.
//!
//! It influences nothing (GEN-04): nobody here reads it, and a record that could not be written is
//! not worth refusing to start.

use std::io::{self, IoSlice};

use crate::disk::write_whole;
use crate::format::WAL_FORMAT;
use crate::journal::Journal;
use crate::json::Json;

/// Where the record is, in the data directory.
pub const BOOT_RECORD_PATH: &str = "boot_record.json";
const HALF_PATH: &str = "boot_record.json.new";

pub(crate) fn write_record(journal: &Journal) {
    let summary = journal.recovery();
    let damage = |found: &Option<crate::error::Damage>| {
        Json::Text(found.as_ref().map_or_else(String::new, ToString::to_string))
    };
    let quarantined: Vec<u64> = summary.quarantined.iter().copied().collect();
    let refused = summary.checkpoints_refused.iter().map(Json::text).collect();
    let record = Json::object([
        ("bytes", Json::text(summary.bytes)),
        ("checkpoints_refused", Json::List(refused)),
        ("clean", Json::Bool(summary.clean)),
        ("cut", damage(&summary.cut)),
        ("format", Json::Number(WAL_FORMAT)),
        ("io_writer_mode", Json::text("Blocking")),
        ("last_lsn", Json::text(summary.last_lsn)),
        ("node", Json::text(journal.options().node_id)),
        ("quarantined", Json::texts(&quarantined)),
        ("records", Json::text(summary.records)),
        ("segments", Json::text(summary.segments)),
    ]);
    // Whatever goes wrong here has no say in whether the node starts.
    let _ = put(journal, &record.encode());
}

fn put(journal: &Journal, text: &str) -> io::Result<()> {
    let disk = journal.disk();
    match disk.remove(HALF_PATH) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let file = disk.create(HALF_PATH)?;
    write_whole(&*file, 0, &[IoSlice::new(text.as_bytes())])?;
    disk.rename(HALF_PATH, BOOT_RECORD_PATH)
}
