//! The message log of one partition: every committed publish once, in Arrow, by offset and time.
//!
//! The owner ([`RecordLog`]) appends what apply says and plans work; jobs write chunks; readers
//! ([`LogReader`]) serve ranges as Arrow batches and single records by reference; [`ReaderPool`]
//! keeps threads that must not wait for a disk away from it. The files are described in
//! `docs/internals/message-log-format.md`, and at the head of `chunk.rs`, `body.rs` and
//! `manifest.rs`.
//!
//! Knows no sibling crate: not the machine whose records these are, not the journal whose entries
//! rebuild the tail.

#![forbid(unsafe_code)]

mod block;
mod body;
mod builder;
mod cache;
mod chunk;
mod column;
mod disk;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod job;
pub mod limits;
mod log;
mod manifest;
mod pool;
mod reader;
mod record;
mod schema;
mod seal;
mod shared;
mod sim_disk;

pub use block::{Identity, Row};
pub use chunk::{ChunkInfo, ChunkKind};
pub use disk::{Disk, File, FileDisk};
pub use error::{Error, Result};
pub use job::{RewriteJob, Rewritten, SealJob, Sealed, SweepJob};
pub use log::{Appended, Found, Hold, LogStatistics, Options, RecordLog, Retention, SealWhen};
pub use manifest::Manifest;
pub use pool::{Answer, Ask, ReaderPool, Reply};
pub use reader::{
    Batches, Bounds, LogReader, Passage, Range, Rows, Start, Stream, Stretch, TopicChoice,
};
pub use record::{Record, Source};
pub use schema::{COLUMN_COUNT, Columns};
pub use seal::Keys;
pub use sim_disk::SimDisk;
