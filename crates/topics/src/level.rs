//! The text of one topic level, stored compactly, and its hash.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Chosen so that a `Level` takes 24 bytes: nearly all levels met in practice fit inline, and a
/// trie node with its subscriber fits one cache line.
const INLINE_BYTES: usize = 22;

/// One level's text. Short ones live inline, without an allocation.
#[derive(Debug)]
pub(crate) enum Level {
    Short { length: u8, bytes: [u8; INLINE_BYTES] },
    Long(Box<[u8]>),
}

impl Level {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..text.len()) {
            Some(inline) => {
                inline.copy_from_slice(text);
                Self::Short { length: text.len() as u8, bytes }
            }
            None => Self::Long(text.into()),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long(bytes) => bytes.len(),
        }
    }
}

/// Hashes a level or a topic.
///
/// The standard library's hasher takes a new key in every process; this one takes the key it is
/// given, so that a replica can be rebuilt to the bit.
pub(crate) fn hash_text(seed: u64, text: &[u8]) -> u64 {
    xxh3_64_with_seed(text, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_stored_whole() {
        for length in 0..64 {
            let text = "x".repeat(length);
            let level = Level::new(text.as_bytes());
            assert_eq!(level.as_bytes(), text.as_bytes());
            assert_eq!(level.heap_bytes() == 0, length <= INLINE_BYTES);
        }
        assert_eq!(size_of::<Level>(), 24);
    }
}
