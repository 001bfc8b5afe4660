//! Invariant: frames of a client mean the same however the socket cuts them.
//!
//! Input: the first byte says how the rest is cut. Reading never panics, holds no more than a
//! control frame, hands on no more payload than came, and one piece or many give the same payload,
//! the same control frames and the same refusal. After a close nothing is handed on.

use quantumqtt_transport::{FrameFault, FrameReader, Piece};

type Read = (Vec<u8>, Vec<Piece>, Option<FrameFault>);

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Some((&step, bytes)) = bytes.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    let pieces = read(bytes, usize::from(step % 16) + 1);
    assert_eq!(whole, pieces);
    assert!(whole.0.len() <= bytes.len());
    let closes = whole.1.iter().filter(|piece| matches!(piece, Piece::Close(_))).count();
    assert!(closes <= 1, "a goodbye is said once");
}

fn read(bytes: &[u8], step: usize) -> Read {
    let (mut reader, mut plain, mut controls) = (FrameReader::default(), Vec::new(), Vec::new());
    for mut part in bytes.chunks(step) {
        loop {
            match reader.next(&mut part, &mut plain) {
                Ok(None) => break,
                Ok(Some(Piece::Data(_))) => {}
                Ok(Some(piece)) => {
                    if let Piece::Ping(payload) = &piece {
                        assert!(payload.len() <= 125);
                    }
                    controls.push(piece);
                }
                Err(fault) => return (plain, controls, Some(fault)),
            }
        }
        assert!(part.is_empty(), "what is not refused is used up");
    }
    (plain, controls, None)
}
