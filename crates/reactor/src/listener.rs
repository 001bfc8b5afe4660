//! Listening sockets: binding them, and taking what knocks.
//!
//! A Unix socket is a file. One that a broker left behind when it was killed answers nobody and is
//! replaced; one that answers belongs to somebody and is left alone, as is anything that is no
//! socket. Our own file goes when the reactor goes, if it is still ours.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use quantumqtt_transport::{Network, WrappingSpec};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::error::Error;
use crate::limits::{ACCEPTS_PER_TURN, BACKLOG};
use crate::stream::{Peer, Stream};

/// The place of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A port of this machine.
    Tcp {
        /// An address or a name that resolves to one.
        host: String,
        /// 0 lets the kernel choose.
        port: u16,
    },
    /// A socket in the file system.
    Unix {
        /// Where.
        path: PathBuf,
        /// Who may connect, as permission bits.
        mode: u32,
    },
}

/// Where to listen, and what lies between the sockets and the service.
#[derive(Debug, Clone)]
pub struct ListenerSpec {
    /// The place.
    pub endpoint: Endpoint,
    /// The layers.
    pub wrapping: WrappingSpec,
    /// Whom a PROXY header is believed; Unix sockets always are.
    pub proxies: Vec<Network>,
    /// Connections through this listener; more are closed right after accept.
    pub connections_max: usize,
}

impl ListenerSpec {
    /// Bare TCP without bounds of its own.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self {
            endpoint: Endpoint::Tcp { host: host.into(), port },
            wrapping: WrappingSpec::default(),
            proxies: Vec::new(),
            connections_max: usize::MAX,
        }
    }
}

/// Where a listener really listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundListener {
    /// The address with the real port.
    Tcp(SocketAddr),
    /// The file.
    Unix(PathBuf),
}

impl BoundListener {
    /// The address, unless it is a file.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
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

/// A bound socket that takes newcomers.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// A newcomer, and who it is: the kernel says both in one call.
    fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                Ok((Stream::Tcp(stream), Peer::Address(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                let peer = Peer::process(&stream);
                Ok((Stream::Unix(stream), peer))
            }
        }
    }

    pub(crate) fn register(&mut self, to: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => to.register(listener, token, Interest::READABLE),
            Self::Unix(listener) => to.register(listener, token, Interest::READABLE),
        }
    }
}

/// Our file in the file system; dropping it removes it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // Whoever removed it meanwhile has done our work.
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(crate) type Bound = (Listener, BoundListener, Option<SocketFile>);

pub(crate) fn bind(spec: &ListenerSpec) -> Result<Bound, Error> {
    match &spec.endpoint {
        Endpoint::Tcp { host, port } => {
            let resolve = |source| Error::Resolve { host: host.clone(), port: *port, source };
            let address = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(resolve)?
                .next()
                .ok_or_else(|| resolve(io::Error::other("the name has no address")))?;
            listen_tcp(address)
                .map_err(|source| Error::Bind { address: address.to_string(), source })
        }
        Endpoint::Unix { path, mode } => {
            make_way(path)?;
            listen_unix(path, *mode)
                .map_err(|source| Error::Bind { address: path.display().to_string(), source })
        }
    }
}

fn listen_tcp(address: SocketAddr) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart waits a minute for the old connections' TIME_WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` are two listeners; neither should take the other's port.
        socket.set_only_v6(true)?;
    }
    // Small acknowledgements must not wait for more to say. Linux hands the option down to every
    // socket it accepts, so it costs a newcomer nothing.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from_std(socket.into());
    let address = listener.local_addr()?;
    Ok((Listener::Tcp(listener), BoundListener::Tcp(address), None))
}

/// Remove a socket that nobody answers any more.
fn make_way(path: &Path) -> Result<(), Error> {
    let refuse = |why| Error::SocketFile { path: path.display().to_string(), why };
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(refuse("something that is no socket stands there"));
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|_| refuse("a dead socket there cannot be removed"))
        }
        _ => Err(refuse("another program listens there")),
    }
}

fn listen_unix(path: &Path, mode: u32) -> io::Result<Bound> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let found = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() };
    // Before it listens: nobody comes in by the permissions the process happens to have.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    let listener = UnixListener::from_std(socket.into());
    Ok((Listener::Unix(listener), BoundListener::Unix(path.to_owned()), Some(file)))
}

/// Accept a bounded number of sockets and hand each to `place`.
pub(crate) fn accept_some(listener: &Listener, mut place: impl FnMut(Stream, Peer)) -> AcceptRound {
    for _ in 0..ACCEPTS_PER_TURN {
        match listener.accept() {
            Ok((stream, peer)) => place(stream, peer),
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

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use std::net::TcpStream;

    use super::*;

    // req: DP-28
    #[test]
    fn a_newcomer_inherits_its_options_and_brings_its_address() {
        let (listener, bound, _) = listen_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let ours = TcpStream::connect(bound.address().unwrap()).unwrap();
        let accepted = loop {
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                accepted => break accepted.unwrap(),
            }
        };
        let (Stream::Tcp(stream), peer) = accepted else { panic!("it is TCP") };
        assert!(stream.nodelay().unwrap(), "without a call for it");
        assert_eq!(peer, Peer::Address(ours.local_addr().unwrap()));
    }
}
