//! A connected socket of either kind, and who is at its other end.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt::socket_peercred;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// An address on the network; behind a trusted proxy the client's own.
    Address(SocketAddr),
    /// A process of this machine that came by a Unix socket.
    Process {
        /// Its number when it connected; 0 when the kernel does not say.
        pid: u32,
        /// Its user.
        uid: u32,
    },
}

impl Peer {
    /// The process behind a Unix socket.
    pub(crate) fn process(stream: &UnixStream) -> Self {
        let who = socket_peercred(stream).ok();
        let pid = who.map_or(0, |who| who.pid.as_raw_nonzero().get().unsigned_abs());
        Self::Process { pid, uid: who.map_or(u32::MAX, |who| who.uid.as_raw()) }
    }

    /// What is counted as one address: IPv6 clients have a network of 64 bits to choose from.
    pub(crate) fn counted_as(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(match address.ip() {
                IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
                ip @ IpAddr::V4(_) => ip,
            }),
            Self::Process { .. } => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Process { pid, uid } => write!(f, "unix:pid={pid},uid={uid}"),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }

    /// For its whole life, edge-triggered both ways; closing the descriptor is what ends it.
    pub(crate) fn register(&mut self, to: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => to.register(stream, token, interest),
            Self::Unix(stream) => to.register(stream, token, interest),
        }
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
