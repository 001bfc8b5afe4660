//! UTF-8 strings and binary data with a two-byte length (§1.5.4, §1.5.6).
//!
//! The rules for text are two: well-formed UTF-8, and no U+0000. Topic names add a third: no `+`
//! and no `#`. The forbidden bytes are all ASCII, so they are looked for in raw bytes, eight at a
//! time.

use crate::error::{DecodeError, EncodeError};

/// The longest string or binary value a two-byte length can announce.
pub const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// Accepts well-formed UTF-8 without U+0000.
#[inline]
pub fn check_text(bytes: &[u8]) -> Result<&str, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8)?;
    refuse_nul(text)?;
    Ok(text)
}

/// Accepts text that may stand as a topic name: as [`check_text`], and without wildcards.
///
/// The empty name passes: in MQTT 5 it is legal beside a topic alias, which only the caller sees.
#[inline]
pub fn check_topic_name(bytes: &[u8]) -> Result<&str, DecodeError> {
    let topic = std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidUtf8)?;
    refuse_nul_and_wildcards(topic)?;
    Ok(topic)
}

#[inline]
pub(crate) fn refuse_nul(text: &str) -> Result<(), DecodeError> {
    if any_word(text.as_bytes(), has_zero_byte, |byte| byte == 0) {
        return Err(DecodeError::NulCharacter);
    }
    Ok(())
}

#[inline]
pub(crate) fn refuse_nul_and_wildcards(topic: &str) -> Result<(), DecodeError> {
    if any_word(topic.as_bytes(), has_forbidden_byte, is_forbidden_byte) {
        return Err(if topic.contains('\0') {
            DecodeError::NulCharacter
        } else {
            DecodeError::TopicWildcard
        });
    }
    Ok(())
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = ONES << 7;
/// `+` is 0x2B and `#` is 0x23: without this bit both read 0x23, and one test finds either.
const WILDCARD_DIFFERENCE: u8 = b'+' ^ b'#';

#[inline]
const fn has_zero_byte(word: u64) -> bool {
    word.wrapping_sub(ONES) & !word & HIGH_BITS != 0
}

#[inline]
const fn has_forbidden_byte(word: u64) -> bool {
    let folded = word & !(ONES * WILDCARD_DIFFERENCE as u64);
    has_zero_byte(word) | has_zero_byte(folded ^ (ONES * b'#' as u64))
}

#[inline]
const fn is_forbidden_byte(byte: u8) -> bool {
    byte == 0 || byte & !WILDCARD_DIFFERENCE == b'#'
}

/// Whether any byte is hit. Words cover the text; the last one overlaps rather than leave a tail.
#[inline]
fn any_word(bytes: &[u8], word_hits: fn(u64) -> bool, byte_hits: fn(u8) -> bool) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else {
        return bytes.iter().any(|&byte| byte_hits(byte));
    };
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().any(|word| word_hits(u64::from_le_bytes(*word)))
        || word_hits(u64::from_le_bytes(*last))
}

/// Appends `text` with its length; refuses U+0000 and what two length bytes cannot announce.
pub(crate) fn put_text(
    field: &'static str,
    text: &str,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    refuse_nul(text)?;
    put_binary(field, text.as_bytes(), out)
}

/// Appends `bytes` with their length.
pub(crate) fn put_binary(
    field: &'static str,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let length = u16::try_from(bytes.len())
        .map_err(|_| EncodeError::TooLong { field, bytes: bytes.len() })?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // req: WIRE-10
    #[test]
    fn each_forbidden_character_is_found_at_every_place() {
        for length in 1..40 {
            for place in 0..length {
                for (byte, error) in [
                    (b'+', DecodeError::TopicWildcard),
                    (b'#', DecodeError::TopicWildcard),
                    (0, DecodeError::NulCharacter),
                    (0xFF, DecodeError::InvalidUtf8),
                ] {
                    let mut name = vec![b'a'; length];
                    name[place] = byte;
                    assert_eq!(check_topic_name(&name), Err(error), "{byte:#x} at {place}");
                }
            }
        }
    }

    // hardening: bad-text
    // req: WIRE-10
    #[test]
    fn ill_formed_utf8_is_refused() {
        // Overlong slash, lone continuation, surrogate U+D800, above U+10FFFF, cut-off sequence.
        let ill_formed: [&[u8]; 5] =
            [&[0xC0, 0xAF], &[0x80], &[0xED, 0xA0, 0x80], &[0xF4, 0x90, 0x80, 0x80], &[0xE2, 0x82]];
        for bytes in ill_formed {
            assert_eq!(check_text(bytes), Err(DecodeError::InvalidUtf8));
            assert_eq!(check_topic_name(bytes), Err(DecodeError::InvalidUtf8));
        }
    }

    #[test]
    fn wildcards_are_ordinary_text_outside_topic_names() {
        assert_eq!(check_text(b"a/+/#"), Ok("a/+/#"));
    }

    proptest! {
        // req: WIRE-10
        #[test]
        fn the_word_scan_agrees_with_a_naive_one(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x20_u8..0x30], 0..40),
        ) {
            let naive = match std::str::from_utf8(&bytes) {
                Err(_) => Err(DecodeError::InvalidUtf8),
                Ok(text) if text.contains('\0') => Err(DecodeError::NulCharacter),
                Ok(text) if text.contains(['+', '#']) => Err(DecodeError::TopicWildcard),
                Ok(text) => Ok(text),
            };
            prop_assert_eq!(check_topic_name(&bytes), naive);
        }
    }
}
