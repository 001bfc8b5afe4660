//! Sockets and shard threads: bytes in, bytes out.
//!
//! A *shard* is one thread that owns its connections: it accepts, reads, hands bytes to a
//! [`Service`], and writes what the service put into [`Outlet`]s. This crate knows nothing of MQTT;
//! the service (in `quantumqtt-node`) knows nothing of sockets.
//!
//! Rules that everything here keeps:
//! - A connection belongs to one shard for life. Other shards reach it only through its [`Outlet`].
//! - A shard never blocks: not on a lock held across a system call of another connection, not on a
//!   disk, not on Python.
//! - One write per dirty socket and turn. An idle connection holds no buffer.
//! - Everything is bounded: see `limits.rs`.
//!
//! Deliberately absent: TLS and WebSocket (they will sit between socket and service), any timer
//! finer than the wheel's tick, and any knowledge of what the bytes mean.

#![allow(unsafe_code)] // raw descriptors shared under a lock (outlet.rs), signal mask (thread.rs)

mod clock;
mod connections;
mod error;
mod limits;
mod listener;
mod mailbox;
mod outlet;
#[cfg(all(test, feature = "loom"))]
mod races;
mod reactor;
mod ring;
mod service;
mod shard;
mod sync;
mod thread;
mod wheel;

pub use clock::Clock;
pub use connections::{ConnectionId, Connections};
pub use error::Error;
pub use limits::Limits;
pub use listener::{BoundListener, ListenerSpec};
pub use outlet::{Outlet, OutletGuard, Overflow};
pub use reactor::{Poster, Reactor, ReactorSpec, SHARDS_MAX, Totals};
pub use ring::{BufferPool, Ring};
pub use service::{Accepted, CloseCause, Consumed, Deadline, Service, Then, Turn};
pub use thread::OnFailure;
