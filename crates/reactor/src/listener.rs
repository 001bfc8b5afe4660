//! Listening sockets: binding them, and taking what knocks.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;
use crate::limits::{ACCEPTS_PER_TURN, BACKLOG};

/// Where to listen.
#[derive(Debug, Clone)]
pub struct ListenerSpec {
    /// An address or a name that resolves to one.
    pub host: String,
    /// 0 lets the kernel choose.
    pub port: u16,
}

/// Where a listener really listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundListener {
    /// The address with the real port.
    pub address: SocketAddr,
}

/// How a round of accepting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptRound {
    /// Nobody knocks any more.
    Drained,
    /// The turn's share is used up; there may be more.
    More,
    /// The kernel has no descriptor or memory for us: try again a little later.
    Starved,
}

pub(crate) fn bind(spec: &ListenerSpec) -> Result<(TcpListener, BoundListener), Error> {
    let resolve = |source| Error::Resolve { host: spec.host.clone(), port: spec.port, source };
    let address = (spec.host.as_str(), spec.port)
        .to_socket_addrs()
        .map_err(resolve)?
        .next()
        .ok_or_else(|| resolve(io::Error::other("the name has no address")))?;
    listen(address).map_err(|source| Error::Bind { address: address.to_string(), source })
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, BoundListener)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart waits a minute for the old connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` are two listeners; neither should take the other's port.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into());
    let address = listener.local_addr()?;
    Ok((listener, BoundListener { address }))
}

/// Accept a bounded number of sockets and hand each to `place`.
pub(crate) fn accept_some(listener: &TcpListener, mut place: impl FnMut(TcpStream)) -> AcceptRound {
    for _ in 0..ACCEPTS_PER_TURN {
        match listener.accept() {
            Ok((stream, _)) => place(stream),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return AcceptRound::Drained,
                // The peer gave up before we looked, or a signal came: the next may be fine.
                io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted => {}
                _ => return AcceptRound::Starved,
            },
        }
    }
    AcceptRound::More
}
