//! One WebSocket connection of a client: the upgrade, then frames.

use std::sync::Arc;

use crate::fault::Fault;
use crate::frames::{BINARY, CLOSE, FrameReader, PONG, Piece, write_frame};
use crate::limits::ANSWER_BYTES_MAX;
use crate::upgrade::{UpgradeRules, read_upgrade};

#[derive(Debug)]
pub(crate) struct Websocket {
    rules: Arc<UpgradeRules>,
    /// The beginning of the request; empty, and unallocated, after it.
    head: Vec<u8>,
    reader: FrameReader,
    is_upgraded: bool,
    /// A close frame has left: nothing may follow it (§5.5.1).
    has_said_goodbye: bool,
}

impl Websocket {
    pub(crate) fn new(rules: Arc<UpgradeRules>) -> Self {
        Self {
            rules,
            head: Vec::new(),
            reader: FrameReader::default(),
            is_upgraded: false,
            has_said_goodbye: false,
        }
    }

    pub(crate) fn is_upgraded(&self) -> bool {
        self.is_upgraded
    }

    /// Read all of `bytes`; true when the peer has said goodbye. `unheard` bytes wait for it.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        plain: &mut Vec<u8>,
        answers: &mut Vec<u8>,
        unheard: usize,
    ) -> Result<bool, Fault> {
        if self.is_upgraded {
            return self.read_frames(bytes, plain, answers, unheard);
        }
        self.head.extend_from_slice(bytes);
        match read_upgrade(&self.rules, &self.head) {
            Ok(None) => Ok(false),
            Ok(Some((used, answer))) => {
                answers.extend(answer);
                self.is_upgraded = true;
                let head = std::mem::take(&mut self.head);
                self.read_frames(&head[used..], plain, answers, unheard)
            }
            Err(refusal) => {
                answers.extend(refusal.answer());
                Err(Fault::UpgradeRefused)
            }
        }
    }

    fn read_frames(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
        answers: &mut Vec<u8>,
        unheard: usize,
    ) -> Result<bool, Fault> {
        loop {
            match self.reader.next(&mut bytes, plain) {
                Ok(None) => return Ok(false),
                Ok(Some(Piece::Data(_) | Piece::Pong)) => {}
                Ok(Some(Piece::Ping(payload))) => {
                    // A peer that pings and does not read gets no memory for it.
                    let waits = unheard + answers.len();
                    if waits < ANSWER_BYTES_MAX && !self.has_said_goodbye {
                        write_frame(PONG, &payload, answers);
                    }
                }
                Ok(Some(Piece::Close(code))) => {
                    self.say_goodbye(code, answers);
                    return Ok(true);
                }
                Err(fault) => {
                    self.say_goodbye(Some(fault.0), answers);
                    return Err(Fault::WebsocketProtocol);
                }
            }
        }
    }

    /// One frame with all of `plain`.
    pub(crate) fn wrap(&self, plain: &[u8], out: &mut Vec<u8>) {
        if !self.has_said_goodbye {
            write_frame(BINARY, plain, out);
        }
    }

    pub(crate) fn say_goodbye(&mut self, code: Option<u16>, out: &mut Vec<u8>) {
        if self.is_upgraded && !std::mem::replace(&mut self.has_said_goodbye, true) {
            let code = code.map(u16::to_be_bytes);
            write_frame(CLOSE, code.as_ref().map_or(&[], <[u8; 2]>::as_slice), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // hardening: websocket-handshake
    #[test]
    fn pings_of_a_peer_that_does_not_read_cost_no_memory() {
        let rules = UpgradeRules { path: "/mqtt".into(), origins: Vec::new() };
        let mut websocket = Websocket::new(Arc::new(rules));
        websocket.is_upgraded = true;
        let mut ping = vec![0x89, 0xFD, 0, 0, 0, 0];
        ping.extend([b'x'; 125]);
        let (mut plain, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..10_000 {
            websocket.receive(&ping, &mut plain, &mut answers, 0).unwrap();
        }
        assert!(answers.len() < ANSWER_BYTES_MAX + 200, "{} bytes", answers.len());
        let before = answers.len();
        websocket.receive(&ping, &mut plain, &mut answers, ANSWER_BYTES_MAX).unwrap();
        assert_eq!(answers.len(), before, "what waits elsewhere counts too");
    }
}
