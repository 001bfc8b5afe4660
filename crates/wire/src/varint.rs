//! Variable byte integers: seven bits per byte, lowest first, the high bit says "more" (§1.5.5).

use crate::error::{DecodeError, EncodeError};

/// The largest value four bytes can carry.
pub const VARINT_MAX: u32 = 268_435_455;

/// The longest legal encoding.
pub const VARINT_BYTES_MAX: usize = 4;

/// Reads an integer at the start of `bytes`; returns it with the bytes it took.
///
/// `None` means that all bytes so far are legal and more are needed. A fourth byte that asks for a
/// fifth is an error at once, so a peer cannot keep us waiting for the rest of a bad number.
#[inline]
pub fn read(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    match bytes.first() {
        None => Ok(None),
        Some(&only) if only < 0x80 => Ok(Some((u32::from(only), 1))),
        Some(_) => read_long(bytes),
    }
}

fn read_long(bytes: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0_u32;
    for (index, &byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            // A last byte of zero adds nothing: a shorter encoding existed [MQTT-1.5.5-1].
            return match byte {
                0 if index > 0 => Err(DecodeError::VarintNotMinimal),
                _ => Ok(Some((value, index + 1))),
            };
        }
    }
    if bytes.len() >= VARINT_BYTES_MAX { Err(DecodeError::VarintTooLong) } else { Ok(None) }
}

/// How many bytes `value` takes; values above [`VARINT_MAX`] have no encoding and count as five.
#[inline]
pub const fn encoded_bytes(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        0x20_0000..=0x0FFF_FFFF => 4,
        _ => 5,
    }
}

/// The shortest form of `value` and how many of the four bytes it takes.
#[inline]
pub(crate) fn to_bytes(value: usize) -> Result<([u8; VARINT_BYTES_MAX], usize), EncodeError> {
    if value > VARINT_MAX as usize {
        return Err(EncodeError::PacketTooLarge { body_bytes: value });
    }
    let taken = encoded_bytes(value);
    let mut bytes = [0; VARINT_BYTES_MAX];
    for (index, byte) in bytes[..taken].iter_mut().enumerate() {
        let more = if index + 1 < taken { 0x80 } else { 0 };
        *byte = (value >> (7 * index) & 0x7F) as u8 | more;
    }
    Ok((bytes, taken))
}

/// Appends `value` in its shortest form.
#[inline]
pub fn put(value: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if value < 0x80 {
        out.push(value as u8);
        return Ok(());
    }
    let (bytes, taken) = to_bytes(value)?;
    out.extend_from_slice(&bytes[..taken]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // req: WIRE-06
    #[test]
    fn borders_of_every_length_round_trip() {
        let borders = [0, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, VARINT_MAX];
        for (value, bytes) in borders.into_iter().zip([1, 1, 2, 2, 3, 3, 4, 4]) {
            let mut out = Vec::new();
            put(value as usize, &mut out).unwrap();
            assert_eq!(out.len(), bytes);
            assert_eq!(encoded_bytes(value as usize), bytes);
            assert_eq!(read(&out), Ok(Some((value, bytes))));
        }
    }

    // req: WIRE-06
    #[test]
    fn a_value_above_the_ceiling_is_not_written() {
        let mut out = vec![7];
        let value = VARINT_MAX as usize + 1;
        assert_eq!(put(value, &mut out), Err(EncodeError::PacketTooLarge { body_bytes: value }));
        assert_eq!(out, [7]);
    }

    // hardening: five-byte-integer
    // req: WIRE-06
    #[test]
    fn a_fifth_byte_is_refused_before_it_arrives() {
        assert_eq!(read(&[0x80, 0x80, 0x80]), Ok(None));
        assert_eq!(read(&[0x80, 0x80, 0x80, 0x80]), Err(DecodeError::VarintTooLong));
        assert_eq!(read(&[0xFF, 0xFF, 0xFF, 0xFF, 0x01]), Err(DecodeError::VarintTooLong));
    }

    // req: WIRE-06
    #[test]
    fn padded_encodings_are_refused() {
        for padded in
            [&[0x80, 0x00][..], &[0xFF, 0x00], &[0x80, 0x80, 0x00], &[0x81, 0x80, 0x80, 0]]
        {
            assert_eq!(read(padded), Err(DecodeError::VarintNotMinimal));
        }
    }

    proptest! {
        // req: WIRE-06
        #[test]
        fn every_value_round_trips_and_its_prefixes_wait(value in 0..=VARINT_MAX) {
            let mut out = Vec::new();
            put(value as usize, &mut out).unwrap();
            for cut in 0..out.len() {
                prop_assert_eq!(read(&out[..cut]), Ok(None));
            }
            prop_assert_eq!(read(&out), Ok(Some((value, out.len()))));
        }

        // req: WIRE-06
        #[test]
        fn what_is_read_is_the_only_encoding_of_its_value(bytes in any::<[u8; 4]>()) {
            if let Ok(Some((value, taken))) = read(&bytes) {
                let mut out = Vec::new();
                put(value as usize, &mut out).unwrap();
                prop_assert_eq!(&out[..], &bytes[..taken]);
            }
        }
    }
}
