//! The replicated log of a node: Raft groups on one write-ahead log.
//!
//! The journal knows none of our other crates; it replicates bytes. A walk:
//!
//! 1. [`Journal::open`] locks the data directory, reads and checks every record, and starts the
//!    one writer of the node. It returns the groups the log knows.
//! 2. A shard makes a [`Group`] of each ([`Group::start`]), or of a new one
//!    ([`Journal::create_group`]). A lone voter leads at once.
//! 3. Each turn: [`Group::propose`] what the turn wants committed, then [`Group::stage`]. Staging
//!    copies the payload once, into the writer's buffer.
//! 4. The writer makes everything staged by all shards durable with one write and one sync, and
//!    calls `wake` once per shard that waits.
//! 5. The woken shard calls [`Group::advance`] for its groups, then [`Group::take_committed`]:
//!    these entries are durable here and on a quorum. It applies them, says so
//!    ([`Group::applied`]), and only now acknowledges.
//!    Much at once comes in pieces: while [`Group::has_work`], the shard does this again.
//!
//! Now and then the shard writes a [`CheckpointWriter`] full of its machine's state, and cuts the
//! log behind it with [`Group::compact`]. At the next start [`RecoveredGroup::checkpoint`] is the
//! newest one that checks out; the machine is restored from it, and `take_committed` goes on behind
//! it.
//!
//! An error of write or sync ends the journal: [`Journal::failure`] tells why, everything later is
//! refused, and nothing staged since the last good sync counts. A full disk is met only between
//! segments; it refuses staging ([`Refusal::Full`]) and ends by itself.
//!
//! Files: `docs/internals/wal-format.md`.

#![forbid(unsafe_code)]

mod body;
mod boot;
mod checkpoint;
mod crypto;
mod disk;
mod error;
mod file_disk;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod inspect;
mod journal;
mod json;
mod keys;
pub mod limits;
mod manifest;
mod members;
mod options;
#[cfg(all(test, feature = "oracle"))]
mod oracle;
mod reader;
mod recovery;
#[cfg(test)]
mod round_trips;
mod scrub;
mod segment;
mod shared;
mod shelf;
mod sim_disk;
mod statistics;
mod storage;
mod thread;
mod writer;

pub use boot::BOOT_RECORD_PATH;
pub use checkpoint::{Checkpoint, CheckpointWriter, Compaction, Floors};
pub use disk::{Disk, File};
pub use error::{Damage, JournalError, Refusal};
pub use file_disk::FileDisk;
pub use format::{RecordKind, WAL_FORMAT};
pub use group::{Committed, Group, GroupOptions, GroupStatus, PeerMessage, Position};
pub use inspect::{
    CheckpointReport, DumpedRecord, GroupReport, Progress, Replayable, Report, SegmentReport, dump,
    hold, inspect, replayable,
};
pub use journal::{GroupSpec, Journal, RecoveredGroup};
pub use keys::{Entropy, FixedKeys, KeyError, KeyProvider, LocalKeyFile, Secret, SystemEntropy};
pub use manifest::{Chunk, MANIFEST_FORMAT};
pub use members::Members;
pub use options::{Clock, Drive, Durability, JournalOptions, NoClock};
pub use recovery::RecoverySummary;
pub use scrub::{Scrub, ScrubStep};
pub use shared::{Lsn, Wake, WakeToken};
pub use sim_disk::{Crash, Fault, SimClock, SimDisk, SimEntropy};
pub use statistics::Statistics;
pub use thread::SystemClock;
