//! Invariant: the body of a block is refused, or every row of it can be read, shown and written.
//!
//! Input: a body as it would come out of its seal; the first byte 0xFF makes it a manifest instead.
//! Opening never panics and allocates no more than a block may unfold to; rows and Arrow agree on
//! how many there are; rows written again are the same rows.

use quantumqtt_records::Manifest;
use quantumqtt_records::fuzzing::{open_body, write_body};

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    if let Some((0xFF, manifest)) = bytes.split_first() {
        if let Ok(manifest) = Manifest::decode(manifest) {
            assert_eq!(Manifest::decode(&manifest.encode()).expect("our own"), manifest);
        }
        return;
    }
    let Some((batch, rows)) = open_body(bytes) else { return };
    assert_eq!(batch.num_rows(), rows.len());
    assert!(rows.is_sorted_by_key(quantumqtt_records::Row::offset));
    let (_, again) = open_body(&write_body(&rows)).expect("what we write we can read");
    assert_eq!(again, rows);
}
