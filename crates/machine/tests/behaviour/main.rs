//! What one partition does, seen from outside: commands in, effects out.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in tests but not in their bench")]

mod checkpoint;
mod dedupe;
mod delivery;
mod determinism;
mod entries;
mod expiry;
mod golden;
mod lifetimes;
mod retained;
mod rig;
mod sessions;
mod share;
mod subscriptions;
mod transcript;
mod wills;
