//! What the fuzz targets reach behind the seals: bodies of records as they come out of them.
//!
//! Not for anybody else; no promise about it.

use bytes::Bytes;

use crate::body::{CheckpointMark, GroupRow, Reader, decode_entries, decode_hard_state, put_entry};
use crate::format::RecordKind;

/// Reads a body of a kind, and checks that what was read is written again as it was.
pub fn read_body(kind: u8, count: u16, body: &[u8]) {
    let Some(kind) = RecordKind::from_byte(kind) else { return };
    match kind {
        RecordKind::Entries => {
            let shared = Bytes::copy_from_slice(body);
            let Ok(entries) = decode_entries(&shared, 1, 1, count) else { return };
            let mut again = body[..8].to_vec();
            for entry in &entries {
                put_entry(&mut again, entry);
            }
            let read = decode_entries(&again.into(), 1, 1, count).expect("our own");
            assert_eq!(read, entries);
        }
        RecordKind::HardState => drop(decode_hard_state(body)),
        RecordKind::Checkpoint => {
            let Ok(mark) = CheckpointMark::decode(body, 9, 3) else { return };
            let mut again = Vec::new();
            mark.encode(&mut again);
            assert_eq!(CheckpointMark::decode(&again, 9, 3).expect("our own"), mark);
        }
        RecordKind::GroupCreate | RecordKind::Table => {
            let mut reader = Reader::new(body);
            while !reader.is_empty() {
                let Ok((group, row)) = GroupRow::decode(&mut reader) else { return };
                let mut again = Vec::new();
                row.encode(group, &mut again);
                let read = GroupRow::decode(&mut Reader::new(&again)).expect("our own");
                assert_eq!(read, (group, row));
            }
        }
        RecordKind::Truncate
        | RecordKind::GroupDestroy
        | RecordKind::Durable
        | RecordKind::Barrier => {}
    }
}
