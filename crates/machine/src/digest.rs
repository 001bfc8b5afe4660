//! The digest: one number that two replicas have in common exactly when their states are equal.
//!
//! It is the XXH3-128 over the items of a checkpoint (`checkpoint/stream.rs`), which hold all that
//! apply can read: counters and limits; sessions by client id, in each its subscriptions by filter,
//! its window in order of repetition, its backlog in order of commitment, its received ids
//! ascending, its replays; share groups by filter with members in their order and the cursor;
//! retained messages by topic; de-duplication keys in order of commitment. The order of arrival
//! shows only where it is itself state (DET-05).
//! Not in it: the trie and the deadlines, which say again what sessions and retained messages say,
//! and the counters of `statistics.rs`, which nothing reads.

use crate::checkpoint::digest_of;
use crate::machine::Machine;

impl Machine {
    /// The digest of the whole state. Walks all of it: for comparisons, not for every entry. A
    /// checkpoint makes the same number on its way.
    pub fn digest(&self) -> u128 {
        digest_of(self)
    }
}
