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
//! Between socket and service there may be layers (`quantumqtt-transport`: PROXY header, TLS,
//! WebSocket), which only the owner of a connection touches (`wrapped.rs`).
//!
//! Deliberately absent: any timer finer than the wheel's tick, and any knowledge of what the bytes
//! mean.

#![allow(unsafe_code)] // raw descriptors shared under a lock (outlet.rs), signal mask (thread.rs)

mod addresses;
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
mod stream;
mod sync;
mod thread;
mod wheel;
mod wrapped;

pub use clock::Clock;
pub use connections::{ConnectionId, Connections};
pub use error::Error;
pub use limits::Limits;
pub use listener::{BoundListener, Endpoint, ListenerSpec};
pub use outlet::{Outlet, OutletGuard, Overflow};
pub use quantumqtt_transport::{
    BadNetwork, CertificateUser, Fault, Network, ProxyMode, TlsContext, TlsFiles, TlsRefused,
    TlsVersion, UpgradeRules, WrappingSpec,
};
pub use reactor::{Poster, Reactor, ReactorSpec, SHARDS_MAX, Totals};
pub use ring::{BufferPool, Ring};
pub use service::{Accepted, CloseCause, Consumed, Deadline, Service, Then, Turn, TurnedAway};
pub use stream::Peer;
pub use thread::OnFailure;
