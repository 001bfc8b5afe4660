//! WebSocket frames from a client (RFC 6455 §5), read as they trickle in.
//!
//! Theory of operation. A frame's header is at most 14 bytes and is gathered; its payload is not:
//! whatever part of it has arrived is unmasked and handed on. So a frame of any announced length
//! costs nothing, and frames may be split and merged anyhow. Control frames are at most 125 bytes
//! and are gathered whole, also in the middle of a fragmented message.
//!
//! Only binary messages carry MQTT `[MQTT-6.0.0-1]`. A client must mask (§5.1), lengths are written
//! the shortest way (§5.2), no extension was agreed upon. Whoever breaks this is told a close code.
//!
//! Deliberately absent: permessage-deflate (nothing a peer sends can grow here), and any buffer for
//! messages: MQTT frames itself, and a packet may span frames `[MQTT-6.0.0-2]`.

/// What breaks the framing; the number is the close code the peer hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("close code {0}")]
pub struct FrameFault(pub u16);

const PROTOCOL_ERROR: FrameFault = FrameFault(1002);
const NOT_BINARY: FrameFault = FrameFault(1003);
const NOT_UTF8: FrameFault = FrameFault(1007);

/// A control frame may carry so much (§5.5).
const CONTROL_BYTES_MAX: usize = 125;
const HEADER_BYTES_MAX: usize = 14;

/// What was found in the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// This many bytes of payload were unmasked and appended.
    Data(usize),
    /// A ping, to be answered with the same bytes.
    Ping(Vec<u8>),
    /// An answer to a ping we never sent, which is allowed.
    Pong,
    /// The peer says goodbye, with this code or without one.
    Close(Option<u16>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opcode {
    Continuation,
    Binary,
    Close,
    Ping,
    Pong,
}

/// The state between two reads.
#[derive(Debug)]
pub struct FrameReader {
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    opcode: Opcode,
    /// Payload of the frame at hand that has not come yet.
    remaining: u64,
    is_in_payload: bool,
    mask: [u8; 4],
    mask_at: u8,
    /// A message has begun and its last frame has not come.
    is_in_message: bool,
    control: Vec<u8>,
    is_closed: bool,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self {
            header: [0; HEADER_BYTES_MAX],
            header_len: 0,
            opcode: Opcode::Binary,
            remaining: 0,
            is_in_payload: false,
            mask: [0; 4],
            mask_at: 0,
            is_in_message: false,
            control: Vec::new(),
            is_closed: false,
        }
    }
}

impl FrameReader {
    /// Take the next piece from the front of `bytes`, which is moved on; None when all is used up.
    ///
    /// After a close nothing is read any more.
    pub fn next(
        &mut self,
        bytes: &mut &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<Option<Piece>, FrameFault> {
        while !self.is_closed {
            if !self.is_in_payload && !self.gather_header(bytes)? {
                return Ok(None);
            }
            let piece = match self.opcode {
                Opcode::Binary | Opcode::Continuation => self.take_data(bytes, plain),
                Opcode::Close | Opcode::Ping | Opcode::Pong => self.take_control(bytes)?,
            };
            if piece.is_some() {
                return Ok(piece);
            }
            if self.is_in_payload {
                return Ok(None);
            }
        }
        *bytes = &[];
        Ok(None)
    }

    /// True when the header is whole and judged.
    fn gather_header(&mut self, bytes: &mut &[u8]) -> Result<bool, FrameFault> {
        loop {
            let have = usize::from(self.header_len);
            let wanted = match have {
                0 | 1 => 2,
                _ => header_bytes(self.header[1]),
            };
            if have == wanted {
                break;
            }
            let taken = bytes.len().min(wanted - have);
            if taken == 0 {
                return Ok(false);
            }
            self.header[have..have + taken].copy_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            self.header_len += taken as u8;
            if self.header_len == 2 {
                self.judge_start()?;
            }
        }
        self.header_len = 0;
        self.begin_payload()?;
        Ok(true)
    }

    /// The first two bytes: flags, opcode, mask bit, short length.
    fn judge_start(&mut self) -> Result<(), FrameFault> {
        let [first, second, ..] = self.header;
        let (is_final, has_extension) = (first & 0x80 != 0, first & 0x70 != 0);
        let is_masked = second & 0x80 != 0;
        if has_extension || !is_masked {
            return Err(PROTOCOL_ERROR);
        }
        self.opcode = match first & 0x0F {
            0 => Opcode::Continuation,
            1 => return Err(NOT_BINARY),
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return Err(PROTOCOL_ERROR),
        };
        match self.opcode {
            Opcode::Continuation if !self.is_in_message => Err(PROTOCOL_ERROR),
            Opcode::Binary if self.is_in_message => Err(PROTOCOL_ERROR),
            Opcode::Continuation | Opcode::Binary => {
                self.is_in_message = !is_final;
                Ok(())
            }
            _ if !is_final || usize::from(second & 0x7F) > CONTROL_BYTES_MAX => Err(PROTOCOL_ERROR),
            _ => Ok(()),
        }
    }

    fn begin_payload(&mut self) -> Result<(), FrameFault> {
        let header = &self.header;
        let (length, mask_from) = match header[1] & 0x7F {
            126 => (u64::from(u16::from_be_bytes([header[2], header[3]])), 4),
            127 => {
                let mut long = [0; 8];
                long.copy_from_slice(&header[2..10]);
                (u64::from_be_bytes(long), 10)
            }
            short => (u64::from(short), 2),
        };
        let is_shortest = match header[1] & 0x7F {
            126 => length >= 126,
            127 => length > u64::from(u16::MAX) && length >> 63 == 0,
            _ => true,
        };
        if !is_shortest {
            return Err(PROTOCOL_ERROR);
        }
        self.mask.copy_from_slice(&header[mask_from..mask_from + 4]);
        self.mask_at = 0;
        self.remaining = length;
        self.is_in_payload = true;
        Ok(())
    }

    /// None when nothing of the payload is there, or when there is none.
    fn take_data(&mut self, bytes: &mut &[u8], plain: &mut Vec<u8>) -> Option<Piece> {
        let count = self.unmask(bytes, plain);
        (count > 0).then_some(Piece::Data(count))
    }

    fn take_control(&mut self, bytes: &mut &[u8]) -> Result<Option<Piece>, FrameFault> {
        let mut gathered = std::mem::take(&mut self.control);
        self.unmask(bytes, &mut gathered);
        if self.is_in_payload {
            self.control = gathered;
            return Ok(None);
        }
        Ok(Some(match self.opcode {
            Opcode::Ping => Piece::Ping(gathered),
            Opcode::Close => {
                self.is_closed = true;
                Piece::Close(close_code(&gathered)?)
            }
            _ => Piece::Pong,
        }))
    }

    /// Append what has arrived of the frame at hand; notes when the frame is over.
    fn unmask(&mut self, bytes: &mut &[u8], into: &mut Vec<u8>) -> usize {
        let count = bytes.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let (masked, rest) = bytes.split_at(count);
        *bytes = rest;
        let from = into.len();
        into.extend_from_slice(masked);
        let mut mask = self.mask;
        mask.rotate_left(usize::from(self.mask_at));
        let fresh = &mut into[from..];
        let word = u32::from_ne_bytes(mask);
        let mut words = fresh.chunks_exact_mut(4);
        for four in &mut words {
            let bare = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]) ^ word;
            four.copy_from_slice(&bare.to_ne_bytes());
        }
        for (byte, mask) in words.into_remainder().iter_mut().zip(mask) {
            *byte ^= mask;
        }
        self.mask_at = (usize::from(self.mask_at) + count) as u8 % 4;
        self.remaining -= count as u64;
        self.is_in_payload = self.remaining > 0;
        count
    }
}

/// How long a header is, by its second byte; always with a mask.
fn header_bytes(second: u8) -> usize {
    match second & 0x7F {
        126 => 2 + 2 + 4,
        127 => 2 + 8 + 4,
        _ => 2 + 4,
    }
}

/// §7.4: which codes may be said, and the reason is text.
fn close_code(payload: &[u8]) -> Result<Option<u16>, FrameFault> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() { Ok(None) } else { Err(PROTOCOL_ERROR) };
    };
    let code = u16::from_be_bytes(*code);
    let may_be_said = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    if !may_be_said {
        return Err(PROTOCOL_ERROR);
    }
    if std::str::from_utf8(reason).is_err() {
        return Err(NOT_UTF8);
    }
    Ok(Some(code))
}

/// The kinds of frames a server sends.
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PONG: u8 = 0x8A;

/// Append one whole, unmasked frame, as servers send them; `first` is its first byte.
pub fn write_frame(first: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    match payload.len() {
        short @ 0..=125 => out.push(short as u8),
        middle @ 126..=0xFFFF => {
            out.push(126);
            out.extend((middle as u16).to_be_bytes());
        }
        long => {
            out.push(127);
            out.extend((long as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client writes it.
    fn frame(first: u8, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(first, payload, &mut bytes);
        let masked = bytes.split_off(bytes.len() - payload.len());
        bytes[1] |= 0x80;
        bytes.extend(mask);
        bytes.extend(masked.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// Everything found when `bytes` come in pieces of at most `step`.
    fn read(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<Piece>), FrameFault> {
        let (mut reader, mut plain, mut controls) = (FrameReader::default(), Vec::new(), vec![]);
        for mut part in bytes.chunks(step.max(1)) {
            while let Some(piece) = reader.next(&mut part, &mut plain)? {
                if !matches!(piece, Piece::Data(_)) {
                    controls.push(piece);
                }
            }
            assert!(part.is_empty());
        }
        Ok((plain, controls))
    }

    const MASK: [u8; 4] = [0xDE, 0xAD, 0xBE, 0xEF];

    // req: NET-13
    // hardening: websocket-framing
    #[test]
    fn control_frames_come_between_fragments() {
        let bytes = [
            frame(0x02, MASK, b"one "),
            frame(0x89, MASK, b"there?"),
            frame(0x00, MASK, b""),
            frame(0x80, MASK, b"message"),
            frame(0x8A, MASK, b""),
            frame(0x88, MASK, &[3, 232]),
            frame(0x82, MASK, b"after the end"),
        ]
        .concat();
        for step in 1..bytes.len() {
            let (plain, controls) = read(&bytes, step).unwrap();
            assert_eq!(plain, b"one message");
            let close = Piece::Close(Some(1000));
            assert_eq!(controls, [Piece::Ping(b"there?".to_vec()), Piece::Pong, close]);
        }
    }

    // req: NET-13
    // hardening: websocket-framing
    #[test]
    fn lies_about_frames_close_with_the_code_for_them() {
        let masked = |head: &[u8]| [head, &MASK, &[0; 300]].concat();
        let cases: [(u16, Vec<u8>); 16] = [
            (1002, vec![0x82, 0x01, b'x']),
            (1003, frame(0x81, MASK, b"text")),
            (1002, frame(0xC2, MASK, b"compressed")),
            (1002, frame(0x83, MASK, b"reserved")),
            (1002, frame(0x8B, MASK, b"reserved")),
            (1002, frame(0x80, MASK, b"continues nothing")),
            (1002, [frame(0x02, MASK, b"a"), frame(0x82, MASK, b"b")].concat()),
            (1002, frame(0x09, MASK, b"fragmented ping")),
            (1002, masked(&[0x89, 0xFE, 0, 126])),
            (1002, masked(&[0x82, 0xFE, 0, 125])),
            (1002, masked(&[0x82, 0xFF, 0, 0, 0, 0, 0, 0, 1, 0])),
            (1002, masked(&[0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0])),
            (1002, frame(0x88, MASK, &[3])),
            (1002, frame(0x88, MASK, &[3, 237])),
            (1002, frame(0x88, MASK, &[0, 0])),
            (1007, frame(0x88, MASK, &[3, 232, 0xFF])),
        ];
        for (code, bytes) in cases {
            assert_eq!(read(&bytes, 7), Err(FrameFault(code)), "{:02x?}", &bytes[..2]);
        }
    }

    // hardening: websocket-framing
    #[test]
    fn announced_length_costs_nothing() {
        let mut reader = FrameReader::default();
        let mut plain = Vec::new();
        let head = [0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 2, 3, 4, 0x11];
        let piece = reader.next(&mut &head[..], &mut plain);
        assert_eq!((piece, &plain[..]), (Ok(Some(Piece::Data(1))), &[0x10][..]));
        assert!(plain.capacity() < 64);
    }

    proptest! {
        // req: NET-13
        // hardening: websocket-framing
        #[test]
        fn payload_survives_any_split_into_frames_and_reads(
            parts in vec((vec(any::<u8>(), 0..400), any::<[u8; 4]>(), any::<bool>()), 1..12),
            step in 1_usize..700,
        ) {
            let (mut bytes, mut payload, mut continues) = (Vec::new(), Vec::new(), false);
            for (part, mask, is_last) in parts {
                let opcode = if continues { 0x00 } else { 0x02 };
                bytes.extend(frame(opcode | u8::from(is_last) << 7, mask, &part));
                payload.extend(part);
                continues = !is_last;
            }
            prop_assert_eq!(read(&bytes, step).unwrap().0, payload);
        }

        #[test]
        fn no_bytes_panic_or_grow(bytes in vec(any::<u8>(), 0..600), step in 1_usize..50) {
            if let Ok((plain, controls)) = read(&bytes, step) {
                prop_assert!(plain.len() + controls.len() <= bytes.len());
            }
        }
    }
}
