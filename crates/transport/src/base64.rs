//! As much of Base64 as the WebSocket handshake needs.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of `bytes`, padded.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        let word = word << (8 * (3 - group.len()));
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// Whether `text` is what a client may send as its key: 16 bytes, 24 letters.
pub(crate) fn is_key(text: &[u8]) -> bool {
    text.len() == 24
        && text.ends_with(b"==")
        && text[..22].iter().all(|letter| LETTERS.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_the_standard() {
        // RFC 4648 §10.
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(plain.as_bytes()), text);
        }
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(!is_key(b"dGhlIHNhbXBsZSBub25jZQ=") && !is_key(b"dGhlIHNhbXBs\x00SBub25jZQ=="));
    }
}
