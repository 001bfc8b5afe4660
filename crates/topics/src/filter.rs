//! Topic filters: what a SUBSCRIBE carries, with `$share` taken apart.

use thiserror::Error;

use crate::name::{NAME_BYTES_MAX, is_dollar, levels};

const SHARE_PREFIX: &str = "$share/";

/// Why a text is no topic filter.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Error)]
pub enum FilterError {
    /// No character at all.
    #[error("a topic filter has at least one character [MQTT-4.7.3-1]")]
    Empty,
    /// Longer than its length field can say.
    #[error("a topic filter has at most 65535 bytes, this one {bytes} [MQTT-4.7.3-3]")]
    TooLong {
        /// Bytes found.
        bytes: usize,
    },
    /// U+0000.
    #[error("a topic filter holds no null character [MQTT-4.7.3-2]")]
    NullCharacter,
    /// `#` inside a level, or not in the last one.
    #[error("`#` stands alone in the last level of a topic filter [MQTT-4.7.1-1]")]
    MultiLevelWildcard,
    /// `+` beside other characters.
    #[error("`+` stands alone in its level of a topic filter [MQTT-4.7.1-2]")]
    SingleLevelWildcard,
    /// `$share//…`.
    #[error("a share name has at least one character [MQTT-4.8.2-1]")]
    ShareNameEmpty,
    /// `$share/a+b/…`.
    #[error("a share name holds neither `+` nor `#` [MQTT-4.8.2-2]")]
    ShareNameWildcard,
    /// `$share/group` or `$share/group/`.
    #[error("a share name is followed by `/` and a topic filter [MQTT-4.8.2-2]")]
    ShareFilterMissing,
}

/// A valid topic filter, borrowed from the text it was parsed from.
///
/// Only [`Filter::parse`] makes one, so whoever holds one need not check it again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct Filter<'a> {
    /// The group of a shared subscription, `None` for a plain one.
    pub share: Option<&'a str>,
    /// What topics are matched against: the filter without `$share/{group}/`.
    pub pattern: &'a str,
}

impl<'a> Filter<'a> {
    /// Reads a filter and checks every clause of sections 4.7 and 4.8.2.
    pub fn parse(text: &'a str) -> Result<Self, FilterError> {
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(FilterError::TooLong { bytes: text.len() });
        }
        if text.as_bytes().contains(&b'\0') {
            return Err(FilterError::NullCharacter);
        }
        let (share, pattern) = match text.strip_prefix(SHARE_PREFIX) {
            None => (None, text),
            Some(rest) => {
                let (group, pattern) = split_share(rest)?;
                (Some(group), pattern)
            }
        };
        check_wildcards(pattern)?;
        Ok(Self { share, pattern })
    }

    /// Whether the filter can match more than the one topic that is spelled like it.
    pub fn has_wildcard(&self) -> bool {
        // `+` and `#` occur in a valid pattern only as wildcards.
        self.pattern.bytes().any(|byte| matches!(byte, b'+' | b'#'))
    }

    /// The naive matcher: the standard's rules read aloud, one level after the other.
    ///
    /// The trie, the retained index and their caches are tested against it.
    pub fn matches(&self, topic: &str) -> bool {
        if is_dollar(topic) && self.pattern.starts_with(['+', '#']) {
            return false;
        }
        let mut topic_levels = levels(topic);
        for level in levels(self.pattern) {
            match (level, topic_levels.next()) {
                // Also when the topic has ended: `a/#` includes its parent `a`.
                ("#", _) => return true,
                ("+", Some(_)) => {}
                (literal, Some(topic_level)) if literal == topic_level => {}
                _ => return false,
            }
        }
        topic_levels.next().is_none()
    }
}

fn split_share(rest: &str) -> Result<(&str, &str), FilterError> {
    let (group, pattern) = rest.split_once('/').unwrap_or((rest, ""));
    if group.is_empty() {
        return Err(FilterError::ShareNameEmpty);
    }
    if group.contains(['+', '#']) {
        return Err(FilterError::ShareNameWildcard);
    }
    if pattern.is_empty() {
        return Err(FilterError::ShareFilterMissing);
    }
    Ok((group, pattern))
}

fn check_wildcards(pattern: &str) -> Result<(), FilterError> {
    let mut rest = levels(pattern).peekable();
    while let Some(level) = rest.next() {
        if level.contains('#') && (level != "#" || rest.peek().is_some()) {
            return Err(FilterError::MultiLevelWildcard);
        }
        if level.contains('+') && level != "+" {
            return Err(FilterError::SingleLevelWildcard);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str, topic: &str) -> bool {
        Filter::parse(filter).unwrap().matches(topic)
    }

    // req: SUB-02
    #[test]
    fn wildcards_stand_alone_and_hash_stands_last() {
        for text in ["#", "+", "/", "a/#", "+/+/#", "/+", "a//b", "$SYS/#", "$share", "$shared/+"] {
            let filter = Filter::parse(text).unwrap();
            assert_eq!((filter.share, filter.pattern), (None, text));
        }
        for text in ["a#", "#a", "#/a", "a/#/b", "a/b#", "##", "#/#"] {
            assert_eq!(Filter::parse(text), Err(FilterError::MultiLevelWildcard), "{text}");
        }
        for text in ["a+", "+a", "a/b+/c", "++", "a/+b"] {
            assert_eq!(Filter::parse(text), Err(FilterError::SingleLevelWildcard), "{text}");
        }
    }

    #[test]
    fn texts_no_name_may_have_are_refused() {
        assert_eq!(Filter::parse(""), Err(FilterError::Empty));
        assert_eq!(Filter::parse("a/\0"), Err(FilterError::NullCharacter));
        assert_eq!(Filter::parse("$share/\0/a"), Err(FilterError::NullCharacter));
        let bytes = NAME_BYTES_MAX + 1;
        let text = "/".repeat(bytes);
        assert_eq!(Filter::parse(&text), Err(FilterError::TooLong { bytes }));
        assert!(Filter::parse(&text[1..]).is_ok());
    }

    // req: SUB-11
    #[test]
    fn shared_filters_name_a_group_and_a_pattern() {
        let filter = Filter::parse("$share/workers/$SYS/+/#").unwrap();
        assert_eq!((filter.share, filter.pattern), (Some("workers"), "$SYS/+/#"));
        let slash = Filter::parse("$share/g//").unwrap();
        assert_eq!((slash.share, slash.pattern), (Some("g"), "/"));
        let cases = [
            ("$share/", FilterError::ShareNameEmpty),
            ("$share//a", FilterError::ShareNameEmpty),
            ("$share/g", FilterError::ShareFilterMissing),
            ("$share/g/", FilterError::ShareFilterMissing),
            ("$share/g+/a", FilterError::ShareNameWildcard),
            ("$share/#/a", FilterError::ShareNameWildcard),
            ("$share/g/a#", FilterError::MultiLevelWildcard),
            ("$share/g/a+/b", FilterError::SingleLevelWildcard),
        ];
        for (text, error) in cases {
            assert_eq!(Filter::parse(text), Err(error), "{text}");
        }
    }

    // req: SUB-02
    #[test]
    fn plus_is_one_whole_level_and_hash_includes_the_parent() {
        assert!(matches("a/+/c", "a/b/c") && matches("a/+/c", "a//c"));
        assert!(!matches("a/+", "a") && !matches("a/+", "a/b/c"));
        assert!(matches("+", "a") && !matches("+", "/a") && matches("+/+", "/a"));
        assert!(matches("a/#", "a") && matches("a/#", "a/") && matches("a/#", "a/b/c"));
        assert!(!matches("a/#", "ab") && !matches("a/b/#", "a"));
        assert!(matches("#", "/") && matches("+/#", "a") && matches("/#", "/"));
        assert!(!matches("a", "a/") && !matches("a/", "a") && !matches("A", "a"));
    }

    // req: SUB-03
    //
    #[test]
    fn a_leading_wildcard_never_reaches_dollar_topics() {
        assert!(!matches("#", "$SYS/x") && !matches("+/x", "$SYS/x") && !matches("+", "$SYS"));
        assert!(!matches("$share/g/#", "$SYS/x"));
        assert!(matches("$SYS/#", "$SYS") && matches("$SYS/+", "$SYS/x"));
        assert!(matches("$share/g/$SYS/#", "$SYS/x"));
        // Only the first level counts.
        assert!(matches("#", "a/$SYS") && matches("a/+", "a/$SYS"));
    }

    #[test]
    fn only_filters_with_a_wildcard_say_they_have_one() {
        assert!(!Filter::parse("$share/g/a/b").unwrap().has_wildcard());
        assert!(Filter::parse("a/+/b").unwrap().has_wildcard());
        assert!(Filter::parse("a/#").unwrap().has_wildcard());
    }
}
