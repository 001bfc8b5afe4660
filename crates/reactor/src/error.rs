//! What can go wrong before a shard runs; afterwards errors end one connection, never the crate.

use std::io;

/// Starting the reactor failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host of a listener is not an address of this machine, or no address at all.
    #[error("cannot resolve listen address {host}:{port}")]
    Resolve {
        /// As configured.
        host: String,
        /// As configured.
        port: u16,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// The address is taken, forbidden, or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// The resolved address.
        address: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A Unix socket stands at the path and somebody answers it, or something else is there.
    #[error("cannot listen on {path}: {why}")]
    SocketFile {
        /// The path.
        path: String,
        /// What is there.
        why: &'static str,
    },
    /// The kernel refused an epoll instance, a waker or a thread.
    #[error("cannot set up shard {shard}")]
    Setup {
        /// Which shard.
        shard: u16,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
