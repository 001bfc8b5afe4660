//! Our framing beside tungstenite's, byte for byte through a pretend wire.

#![allow(clippy::unwrap_used)] // a test may fail where it stands

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use quantumqtt_transport::{FrameReader, Piece, write_frame};
use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Bytes, Error, Message};

/// What one side wrote and the other has not read.
#[derive(Default)]
struct Wire {
    to_client: VecDeque<u8>,
    from_client: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.to_client.read(into)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.from_client.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn client() -> WebSocket<Wire> {
    WebSocket::from_raw_socket(Wire::default(), Role::Client, None)
}

proptest! {
    // Long messages are masked byte by byte in a debug build; a few cases take all three lengths.
    #![proptest_config(ProptestConfig::with_cases(24))]

    // req: NET-13
    // hardening: websocket-framing
    #[test]
    fn what_tungstenite_sends_is_read(
        messages in vec(vec(any::<u8>(), 0..70_000), 1..4),
        step in 1_usize..5_000,
    ) {
        let mut peer = client();
        for message in &messages {
            peer.send(Message::Binary(Bytes::copy_from_slice(message))).unwrap();
            peer.send(Message::Ping(Bytes::from_static(b"there?"))).unwrap();
        }
        peer.close(None).unwrap();
        let (mut reader, mut plain, mut controls) = (FrameReader::default(), Vec::new(), vec![]);
        for mut part in peer.get_ref().from_client.chunks(step) {
            while let Some(piece) = reader.next(&mut part, &mut plain).unwrap() {
                if !matches!(piece, Piece::Data(_)) {
                    controls.push(piece);
                }
            }
        }
        prop_assert_eq!(plain, messages.concat());
        prop_assert_eq!(controls.pop(), Some(Piece::Close(None)));
        prop_assert_eq!(controls, vec![Piece::Ping(b"there?".to_vec()); messages.len()]);
    }

    // req: NET-13
    #[test]
    fn what_we_send_is_read_by_tungstenite(messages in vec(vec(any::<u8>(), 0..70_000), 1..4)) {
        let mut peer = client();
        let mut bytes = Vec::new();
        for message in &messages {
            write_frame(0x82, message, &mut bytes);
        }
        write_frame(0x88, &1000_u16.to_be_bytes(), &mut bytes);
        peer.get_mut().to_client.extend(bytes);
        for message in &messages {
            prop_assert_eq!(peer.read().unwrap(), Message::Binary(Bytes::copy_from_slice(message)));
        }
        let goodbye = peer.read().unwrap();
        let said = matches!(goodbye, Message::Close(Some(frame)) if u16::from(frame.code) == 1000);
        prop_assert!(said);
        prop_assert!(matches!(peer.read(), Err(Error::Io(_) | Error::ConnectionClosed)));
    }
}
