//! `$replay/{from}/{filter}`: where in the log a subscription begins, as people write it.
//!
//! ```text
//! earliest            with the first record there is
//! latest              with what is committed from now on
//! -90s -15m -1h -7d -2w   with the first record that is not older
//! 2026-11-18T10:00Z   the same; seconds, and fractions of them, may follow
//! offset:17           exactly there, or not at all
//! ```
//!
//! Decided here and not in Python because a SUBSCRIBE is read, judged and answered in one turn of
//! its shard; nothing of it can be configured.

use quantumqtt_records::{Bounds, Start};
use quantumqtt_topics::Filter;

use crate::utc::read_utc;

pub(crate) const REPLAY_PREFIX: &str = "$replay/";

/// Text of a client's that is repeated to it, at most.
const QUOTED_CHARS_MAX: usize = 48;

/// Why nothing can be replayed; the client hears these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplayError {
    #[error("write $replay/FROM/FILTER, for example $replay/-1h/sensors/#")]
    FilterMissing,
    #[error(
        "\"{0}\" is no place in the log: write earliest, latest, -1h (or s, m, d, w), offset:17 or \
         2026-11-18T10:00Z"
    )]
    From(String),
    #[error("\"{0}\" lies in the future")]
    Future(String),
    #[error("a replay is neither shared nor inside another one")]
    Nested,
    #[error(
        "offsets {from} to {last} have expired: the log begins at {earliest}",
        last = .earliest - 1
    )]
    Expired { from: u64, earliest: u64 },
    #[error("the log ends at offset {end}, before {from}")]
    Beyond { from: u64, end: u64 },
    #[error("there is no log to replay from: the broker runs with durability memory")]
    NoLog,
    #[error("at most {0} replays at a time")]
    TooMany(usize),
    #[error("subscribe to $replay/... in a packet of its own: this session is stored")]
    Mixed,
}

/// Where a replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Earliest,
    Latest,
    Offset(u64),
    /// Milliseconds before now.
    Ago(u64),
    /// Milliseconds since 1970.
    At(u64),
}

/// Takes a filter that begins with [`REPLAY_PREFIX`] apart: where to begin, and what is wanted.
pub(crate) fn parse_replay(text: &str) -> Result<(From, &str), ReplayError> {
    let rest = text.strip_prefix(REPLAY_PREFIX).unwrap_or(text);
    let (from, pattern) = rest.split_once('/').ok_or(ReplayError::FilterMissing)?;
    if pattern.is_empty() {
        return Err(ReplayError::FilterMissing);
    }
    // The whole filter was valid, so what is left of it is; but it may have got a new beginning.
    let filter = Filter::parse(pattern).map_err(|_| ReplayError::Nested)?;
    if filter.share.is_some() || pattern.starts_with(REPLAY_PREFIX) {
        return Err(ReplayError::Nested);
    }
    let from = parse_from(from).ok_or_else(|| ReplayError::From(quoted(from)))?;
    Ok((from, pattern))
}

fn quoted(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if quoted.len() < text.len() {
        quoted.push('…');
    }
    quoted
}

fn parse_from(text: &str) -> Option<From> {
    match text {
        "earliest" => return Some(From::Earliest),
        "latest" => return Some(From::Latest),
        _ => {}
    }
    if let Some(offset) = text.strip_prefix("offset:") {
        return number(offset).map(From::Offset);
    }
    if let Some(ago) = text.strip_prefix('-') {
        let (count, unit) = ago.split_at_checked(ago.len().checked_sub(1)?)?;
        let unit_ms = match unit {
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return None,
        };
        return number(count)?.checked_mul(unit_ms).map(From::Ago);
    }
    read_utc(text).map(From::At)
}

fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

impl From {
    /// Where that is in a log that has `bounds` for readers and ends at `end` for the machine.
    pub(crate) fn start(self, now_ms: u64, bounds: Bounds, end: u64) -> Result<Start, ReplayError> {
        match self {
            Self::Earliest => Ok(Start::Earliest),
            Self::Latest => Ok(Start::At(end)),
            Self::Ago(ms) => Ok(Start::Since(now_ms.saturating_sub(ms))),
            // Clocks differ; a minute is more than they may and less than anybody means.
            Self::At(ms) if ms > now_ms + 60_000 => {
                Err(ReplayError::Future(crate::utc::write_utc(ms).unwrap_or_default()))
            }
            Self::At(ms) => Ok(Start::Since(ms)),
            Self::Offset(from) if from < bounds.earliest => {
                Err(ReplayError::Expired { from, earliest: bounds.earliest })
            }
            Self::Offset(from) if from > end => Err(ReplayError::Beyond { from, end }),
            Self::Offset(from) => Ok(Start::At(from)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quantumqtt_records::{Bounds, Start};

    use super::{From, REPLAY_PREFIX, ReplayError, parse_replay};

    fn from(text: &str) -> Result<(From, String), ReplayError> {
        parse_replay(&format!("{REPLAY_PREFIX}{text}")).map(|(from, filter)| (from, filter.into()))
    }

    #[test]
    fn every_way_to_say_where_is_understood() {
        for (text, expected) in [
            ("earliest", From::Earliest),
            ("latest", From::Latest),
            ("offset:0", From::Offset(0)),
            ("offset:18446744073709551615", From::Offset(u64::MAX)),
            ("-90s", From::Ago(90_000)),
            ("-15m", From::Ago(900_000)),
            ("-1h", From::Ago(3_600_000)),
            ("-7d", From::Ago(604_800_000)),
            ("-2w", From::Ago(1_209_600_000)),
            ("2026-11-18T10:00Z", From::At(1_794_996_000_000)),
            ("2026-11-18T10:00:00.250Z", From::At(1_794_996_000_250)),
        ] {
            assert_eq!(from(&format!("{text}/a/+/#")), Ok((expected, "a/+/#".into())), "{text}");
        }
        assert_eq!(from("earliest//"), Ok((From::Earliest, "/".into())), "an odd filter is one");
    }

    #[test]
    fn what_is_no_place_is_said_so() {
        for text in [
            "",
            "+",
            "now",
            "Earliest",
            "offset:",
            "offset:-1",
            "offset:+1",
            "offset:1x",
            "offset",
            "offset:18446744073709551616",
            "-",
            "-h",
            "-1",
            "-1y",
            "-1.5h",
            "--1h",
            "-+1h",
            "1h",
            "-1ä",
            "-99999999999999999999s",
            "-18446744073709551615w",
            "2026-11-18",
            "10:00Z",
        ] {
            let error = from(&format!("{text}/a")).expect_err(text);
            assert_eq!(error, ReplayError::From(text.into()));
        }
        assert_eq!(from("earliest"), Err(ReplayError::FilterMissing));
        assert_eq!(from("earliest/"), Err(ReplayError::FilterMissing));
        assert_eq!(from("#"), Err(ReplayError::FilterMissing));
        for nested in ["$share/g/a", "$share/g", "$replay/earliest/a"] {
            assert_eq!(from(&format!("earliest/{nested}")), Err(ReplayError::Nested), "{nested}");
        }
        let long = from(&format!("{}/a", "x".repeat(1_000))).unwrap_err().to_string();
        assert!(long.chars().count() < 200, "{long}");
    }

    #[test]
    fn an_offset_is_there_or_refused() {
        let bounds = Bounds { earliest: 100, end: 180 };
        let start = |from: From| from.start(1_000_000, bounds, 200);
        assert_eq!(start(From::Offset(100)), Ok(Start::At(100)));
        assert_eq!(start(From::Offset(200)), Ok(Start::At(200)), "the next one");
        assert_eq!(start(From::Latest), Ok(Start::At(200)));
        assert_eq!(start(From::Ago(2_000_000)), Ok(Start::Since(0)));
        assert_eq!(start(From::At(999_000)), Ok(Start::Since(999_000)));
        let expired = start(From::Offset(7)).unwrap_err();
        assert_eq!(expired.to_string(), "offsets 7 to 99 have expired: the log begins at 100");
        let beyond = start(From::Offset(201)).unwrap_err();
        assert_eq!(beyond.to_string(), "the log ends at offset 200, before 201");
        let future = start(From::At(2_000_000)).unwrap_err();
        assert_eq!(future.to_string(), "\"1970-01-01T00:33:20.000Z\" lies in the future");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = from(&text);
        }

        #[test]
        fn numbers_mean_themselves(count in 0..1_000_000_000_u64) {
            prop_assert_eq!(from(&format!("offset:{count}/a")).unwrap().0, From::Offset(count));
            prop_assert_eq!(from(&format!("-{count}h/a")).unwrap().0, From::Ago(count * 3_600_000));
        }
    }
}
