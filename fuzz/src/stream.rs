//! Invariant: where a stream is cut by the network changes nothing of what is read from it.
//!
//! Input: one byte for the version, one for the number of cuts, that many bytes for where they are,
//! then the stream. Fed whole or in pieces, a receive buffer yields the same packets and stops at
//! the same refusal; a refusal may come earlier in bytes, never later in packets.

use quantumqtt_wire::{Version, decode, frame};

use crate::version_of;

const PACKET_BYTES_MAX: usize = 64 * 1024;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let [choice, cuts, rest @ ..] = bytes else { return };
    let version = version_of(*choice);
    let Some((cuts, stream)) = rest.split_at_checked(usize::from(*cuts % 16)) else { return };
    let mut ends: Vec<usize> =
        cuts.iter().map(|&cut| stream.len() * usize::from(cut) / 255).collect();
    ends.push(stream.len());
    ends.sort_unstable();
    let whole = receive(version, stream, &[stream.len()]);
    assert_eq!(receive(version, stream, &ends), whole, "cut at {ends:?}");
}

/// The packets of a stream (as lengths and texts), and the refusal that ended it.
fn receive(version: Version, stream: &[u8], ends: &[usize]) -> (Vec<String>, Option<String>) {
    let (mut packets, mut used) = (Vec::new(), 0);
    for &end in ends {
        loop {
            let seen = &stream[used..end];
            let frame = match frame::peek(seen, PACKET_BYTES_MAX) {
                Ok(Some(frame)) if seen.len() >= frame.total() => frame,
                Ok(_) => break,
                Err(error) => return (packets, Some(format!("{error:?}"))),
            };
            let body = &seen[frame.header_bytes..frame.total()];
            match decode(version, &frame, body) {
                Ok(packet) => packets.push(format!("{packet:?}")),
                Err(error) => return (packets, Some(format!("{error:?}"))),
            }
            used += frame.total();
        }
    }
    (packets, None)
}
