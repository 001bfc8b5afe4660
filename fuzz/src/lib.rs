//! What must hold for any bytes whatever, one module per decoder.
//!
//! Each module opens with its invariant and has one function, `check`, which panics when the
//! invariant is broken. The programs under `targets/` let an engine search for such bytes; the test
//! `corpus.rs` runs everything the engine ever found worth keeping, without any engine.

#![forbid(unsafe_code)]

pub mod block;
pub mod checkpoint;
pub mod connection;
pub mod entry;
pub mod packet;
pub mod properties;
pub mod proxy;
pub mod segment;
pub mod stream;
pub mod topics;
pub mod upgrade;
pub mod websocket;

use quantumqtt_wire::Version;

/// A target: its name, and its invariant as a function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 12] = [
    ("packet", packet::check),
    ("stream", stream::check),
    ("properties", properties::check),
    ("topics", topics::check),
    ("entry", entry::check),
    ("checkpoint", checkpoint::check),
    ("connection", connection::check),
    ("websocket", websocket::check),
    ("upgrade", upgrade::check),
    ("proxy", proxy::check),
    ("block", block::check),
    ("segment", segment::check),
];

/// The first byte of many inputs chooses the version.
fn version_of(byte: u8) -> Version {
    Version::ALL[usize::from(byte) % Version::ALL.len()]
}
