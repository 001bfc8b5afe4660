//! One connection: a socket, what is yet to leave, and the beginning of a packet not yet whole.
//!
//! Outgoing bytes go in *rounds*: the publisher's block first, then small packets
//! (acknowledgements, pings). A new block is begun only when the round has left entirely, so
//! packets never interleave; small packets may join the round at any time, since they are its end.
//!
//! Incoming bytes are read into a buffer shared by all connections of a thread. Only an incomplete
//! packet at its end is kept here, and put back in front of the next read.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr};

use mio::net::TcpStream;
use quantumqtt_wire::{AckKind, PacketType};
use socket2::{Domain, Protocol, Socket, Type};

use crate::block::Block;

/// A connection being opened, open, or ending.
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    carry: Vec<u8>,
    small: Vec<u8>,
    small_written: usize,
}

/// What one read brought.
pub(crate) enum Intake {
    /// This many bytes stand in the buffer; `more` when the socket may hold others.
    Bytes { filled: usize, more: bool },
    /// The socket is empty for now.
    Nothing,
    /// The peer has closed its side.
    End,
}

impl Link {
    /// Begins to connect; a writable event says when to look at [`Self::connect_outcome`].
    pub(crate) fn open(address: SocketAddr, source: Option<IpAddr>) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        // Ours and the broker's small writes must not wait for each other's acknowledgements.
        socket.set_tcp_nodelay(true)?;
        if let Some(source) = source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(error) if is_under_way(&error) => {}
            Err(error) => return Err(error),
        }
        let stream = TcpStream::from_std(socket.into());
        Ok(Self { stream, carry: Vec::new(), small: Vec::new(), small_written: 0 })
    }

    /// Whether the connection stands; `None` while that is not known.
    pub(crate) fn connect_outcome(&self) -> Option<io::Result<()>> {
        match self.stream.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return Some(Err(error)),
        }
        match self.stream.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Where small packets are appended.
    pub(crate) fn small(&mut self) -> &mut Vec<u8> {
        &mut self.small
    }

    /// Appends an acknowledgement in the form all versions share.
    #[inline]
    pub(crate) fn acknowledge(&mut self, kind: AckKind, packet_id: u16) {
        let packet_type = kind.packet_type();
        let first = (packet_type as u8) << 4 | packet_type.fixed_flags();
        let [high, low] = packet_id.to_be_bytes();
        self.small.extend_from_slice(&[first, 2, high, low]);
    }

    /// Appends a packet without a body.
    pub(crate) fn say(&mut self, packet_type: PacketType) {
        self.small.extend_from_slice(&[(packet_type as u8) << 4, 0]);
    }

    /// Whether small packets wait to leave.
    #[inline]
    pub(crate) fn has_small(&self) -> bool {
        !self.small.is_empty()
    }

    /// Writes until the round has left (`true`) or the socket takes no more.
    pub(crate) fn flush(
        &mut self,
        mut block: Option<&mut Block>,
        one_packet: bool,
    ) -> io::Result<bool> {
        loop {
            let head = block.as_deref().map_or(&[][..], |block| block.unwritten(one_packet));
            let small = &self.small[self.small_written..];
            let written = if head.is_empty() {
                if small.is_empty() {
                    self.small.clear();
                    self.small_written = 0;
                    return Ok(true);
                }
                self.stream.write(small)
            } else if one_packet || small.is_empty() {
                self.stream.write(head)
            } else {
                self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(small)])
            };
            let written = match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let of_block = written.min(head.len());
            self.small_written += written - of_block;
            if let Some(block) = block.as_deref_mut() {
                block.advance(of_block);
            }
        }
    }

    /// Reads once, behind the bytes kept from the last time.
    pub(crate) fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<Intake> {
        let kept = self.carry.len();
        // A packet that fills half the buffer would be moved again and again.
        if kept * 2 > buffer.len() {
            buffer.resize(kept * 4, 0);
        }
        buffer[..kept].copy_from_slice(&self.carry);
        loop {
            match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => return Ok(Intake::End),
                Ok(read) => {
                    let filled = kept + read;
                    return Ok(Intake::Bytes { filled, more: filled == buffer.len() });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Intake::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps the incomplete packet at the end of what was read.
    #[inline]
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.carry.clear();
        self.carry.extend_from_slice(rest);
    }
}

fn is_under_way(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}
