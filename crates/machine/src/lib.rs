//! The deterministic state of one partition: apply(entry) gives effects.
//!
//! Commands go into an [`EntryBuilder`]; the log replicates the bytes; [`Entry::parse`] checks them
//! and [`Machine::apply`] changes the state and returns [`Effect`]s. Nothing here opens, waits,
//! reads a clock or rolls dice, so the same log gives the same state on every replica, in every
//! build, for ever (DET-01). `clippy.toml` refuses the usual ways to break that.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic, clippy::iter_over_hash_type)]

mod backlog;
mod checkpoint;
mod codec;
mod command;
mod dedupe;
mod digest;
mod effect;
mod entry;
mod expiry;
mod fields;
mod invariants;
mod limits;
mod machine;
mod message;
mod partition;
mod publish;
mod registry;
mod replay;
mod retained;
mod session;
mod statistics;
mod subscribe;
mod subscription_index;
mod subscription_set;
mod view;
mod will;
mod window;

pub use checkpoint::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNK_FORMAT, ChunkHeader, RestoreError, RestoreFault,
    Restored, Restorer,
};
pub use command::{
    AckKind, ClientAck, Command, ConnectionLost, DedupeKey, EXPIRY_NEVER_S, LeaveWill, OpenSession,
    Origin, PubRel, Publish, RetainHandling, Source, Subscribe, SubscribeFilter,
    SubscriptionOptions, Unsubscribe, Will,
};
pub use dedupe::{DEDUPE_HORIZON_MS, DEDUPE_KEY_BYTES_MAX, DEDUPE_KEYS_MAX};
pub use effect::{
    Deliver, Effect, EndReason, Record, SessionEnded, SessionOpened, Subscribed, Subscription,
    SubscriptionIds, Unsubscribed,
};
pub use entry::{
    APPLY_VERSION, Commands, ENTRY_BYTES_CLOSE, ENTRY_COMMANDS_MAX, Entry, EntryBuilder,
    EntryError, EntryHeader,
};
pub use fields::FieldError;
pub use limits::{Limits, Overflow};
pub use machine::{ApplyError, Machine};
pub use message::Message;
pub use partition::{hash64, jump_hash};
pub use session::is_guest;
pub use statistics::{Counters, Statistics};
pub use view::{ExchangeStage, SessionView, WaitingWill, WillView};
