//! Topic names: what a PUBLISH carries.

use thiserror::Error;

/// The longest topic name or filter MQTT can spell, in bytes [MQTT-4.7.3-3].
pub const NAME_BYTES_MAX: usize = 65_535;

/// Why a text is no topic name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Error)]
pub enum TopicError {
    /// No character at all.
    #[error("a topic name has at least one character [MQTT-4.7.3-1]")]
    Empty,
    /// Longer than its length field can say.
    #[error("a topic name has at most 65535 bytes, this one {bytes} [MQTT-4.7.3-3]")]
    TooLong {
        /// Bytes found.
        bytes: usize,
    },
    /// `+` or `#`, which only filters may hold.
    #[error("a topic name holds no wildcard character [MQTT-4.7.0-1]")]
    Wildcard,
    /// U+0000.
    #[error("a topic name holds no null character [MQTT-4.7.3-2]")]
    NullCharacter,
}

/// Checks that a text may be published to.
pub fn validate_topic(topic: &str) -> Result<(), TopicError> {
    let bytes = topic.as_bytes();
    if bytes.is_empty() {
        return Err(TopicError::Empty);
    }
    if bytes.len() > NAME_BYTES_MAX {
        return Err(TopicError::TooLong { bytes: bytes.len() });
    }
    // Every publish passes here. A fold that never leaves early compiles to vector compares;
    // which of the two rules was broken is asked only after one was.
    let is_forbidden = |byte: &u8| matches!(byte, b'+' | b'#' | b'\0');
    let found_any = bytes.iter().fold(false, |found, byte| found | is_forbidden(byte));
    if !found_any {
        return Ok(());
    }
    if bytes.contains(&b'\0') { Err(TopicError::NullCharacter) } else { Err(TopicError::Wildcard) }
}

/// The levels of a name or filter, first to last. An empty level is a level: `/a` has two.
///
/// Nothing is normalised [MQTT-4.7.3-4].
pub fn levels(name: &str) -> impl Iterator<Item = &str> + Clone {
    name.split('/')
}

/// Whether a topic is out of reach for filters that begin with a wildcard [MQTT-4.7.2-1].
pub fn is_dollar(topic: &str) -> bool {
    topic.starts_with('$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_without_wildcards_is_a_topic() {
        for topic in ["a", "/", "//", "a/b c/", "$SYS/broker", "ünï/çødé", "a\u{feff}b"] {
            assert_eq!(validate_topic(topic), Ok(()), "{topic:?}");
        }
        assert_eq!(validate_topic(&"/".repeat(NAME_BYTES_MAX)), Ok(()));
    }

    #[test]
    fn a_topic_that_breaks_a_clause_is_refused_by_it() {
        let cases = [
            ("", TopicError::Empty),
            ("a/+/b", TopicError::Wildcard),
            ("a+", TopicError::Wildcard),
            ("a/#", TopicError::Wildcard),
            ("a/\0", TopicError::NullCharacter),
            ("+\0", TopicError::NullCharacter),
        ];
        for (topic, error) in cases {
            assert_eq!(validate_topic(topic), Err(error), "{topic:?}");
        }
        let bytes = NAME_BYTES_MAX + 1;
        assert_eq!(validate_topic(&"a".repeat(bytes)), Err(TopicError::TooLong { bytes }));
    }

    // req: SUB-02
    #[test]
    fn empty_levels_are_levels() {
        assert_eq!(levels("/a//").collect::<Vec<_>>(), ["", "a", "", ""]);
        assert_eq!(levels("/").collect::<Vec<_>>(), ["", ""]);
        assert_eq!(levels("a").collect::<Vec<_>>(), ["a"]);
    }
}
