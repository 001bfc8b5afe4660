//! Times as people write them: ISO 8601 in UTC, from and to milliseconds since 1970.

/// Days of the months before each month of a year that is no leap year.
const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const DAYS_OF: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const DAY_MS: u64 = 86_400_000;
const YEAR_10000_MS: u64 = 253_402_300_800_000;
const YEARS: std::ops::RangeInclusive<u64> = 1970..=9999;

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Days from 1970 to the first of January of `year`.
fn days_before_year(year: u64) -> u64 {
    let leaps_before = |year: u64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    (year - 1970) * 365 + leaps_before(year) - leaps_before(1970)
}

/// `2026-11-18T10:00Z`, with seconds if they are there, and up to three digits of a second.
pub(crate) fn read_utc(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-');
    let (year, month, day) = (digits(date.next()?, 4)?, digits(date.next()?, 2)?, date.next()?);
    let day = digits(day, 2)?;
    let at = usize::try_from(month.checked_sub(1)?).ok().filter(|at| *at < 12)?;
    let leap_day = u64::from(is_leap(year));
    let days_of_month = DAYS_OF[at] + if month == 2 { leap_day } else { 0 };
    if date.next().is_some() || !YEARS.contains(&year) || day == 0 || day > days_of_month {
        return None;
    }
    let (time, fraction) = time.split_once('.').map_or((time, None), |(a, b)| (a, Some(b)));
    let mut time = time.split(':');
    let (hour, minute) = (digits(time.next()?, 2)?, digits(time.next()?, 2)?);
    let second = time.next().map(|second| digits(second, 2));
    let ms = match (second, fraction) {
        (_, None) => 0,
        (Some(_), Some(fraction)) if (1..=3).contains(&fraction.len()) => {
            digits(fraction, fraction.len())? * 10_u64.pow(3 - fraction.len() as u32)
        }
        _ => return None,
    };
    let second = second.unwrap_or(Some(0))?;
    if time.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let leap_day = if month > 2 { leap_day } else { 0 };
    let days = days_before_year(year) + DAYS_BEFORE[at] + leap_day + day - 1;
    Some(days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + ms)
}

fn digits(text: &str, count: usize) -> Option<u64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// The same as [`read_utc`] reads, always with milliseconds; `None` beyond the year 9999.
pub(crate) fn write_utc(ms: u64) -> Option<String> {
    if ms >= YEAR_10000_MS {
        return None;
    }
    let days = ms / DAY_MS;
    // Never too late by more than a year, since no year has more than 366 days.
    let mut year = 1970 + days / 366;
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    let day_of_year = days - days_before_year(year);
    let leap_day = |month: usize| if month >= 2 { u64::from(is_leap(year)) } else { 0 };
    let begins = |month: usize| DAYS_BEFORE[month] + leap_day(month);
    let month = (0..12).rev().find(|month| begins(*month) <= day_of_year)?;
    let day = day_of_year - begins(month) + 1;
    let in_day = ms % DAY_MS;
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, ms) = (in_day / 1000 % 60, in_day % 1000);
    let month = month + 1;
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{DAY_MS, read_utc, write_utc};

    // What `date -u -d TEXT +%s` says.
    #[test]
    fn times_are_what_the_calendar_says() {
        for (text, seconds) in [
            ("1970-01-01T00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2000-03-01T00:00Z", 951_868_800),
            ("2026-11-18T10:00Z", 1_794_996_000),
            ("2100-02-28T12:00Z", 4_107_499_200),
            ("2100-03-01T00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(read_utc(text), Some(seconds * 1000), "{text}");
        }
        assert_eq!(read_utc("1970-01-01T00:00:00.5Z"), Some(500));
        assert_eq!(read_utc("1970-01-01T00:00:00.075Z"), Some(75));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "Z",
            "T",
            "2026-11-18",
            "2026-11-18T10:00",
            "2026-11-18T10Z",
            "2026-11-18 10:00Z",
            "2026-11-18T10:00+01:00",
            "1969-12-31T23:59Z",
            "10000-01-01T00:00Z",
            "2026-00-01T00:00Z",
            "2026-13-01T00:00Z",
            "2026-11-31T00:00Z",
            "2026-02-29T00:00Z",
            "2100-02-29T00:00Z",
            "2026-11-00T00:00Z",
            "2026-11-18T24:00Z",
            "2026-11-18T10:60Z",
            "2026-11-18T10:00:60Z",
            "2026-11-18T10:00.5Z",
            "2026-11-18T10:00:00.Z",
            "2026-11-18T10:00:00.1234Z",
            "2026-11-18T10:00:00:00Z",
            "2026-11-18-01T10:00Z",
            "+026-11-18T10:00Z",
            "2026-11-18T1٠:00Z",
        ] {
            assert_eq!(read_utc(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(ms in 0..253_402_300_800_000_u64) {
            let text = write_utc(ms).unwrap();
            prop_assert_eq!(read_utc(&text), Some(ms), "{}", text);
            let next_day = write_utc(ms + DAY_MS);
            prop_assert!(next_day.is_none_or(|next_day| text < next_day));
        }
    }

    #[test]
    fn years_of_five_digits_are_not_written() {
        assert_eq!(write_utc(253_402_300_800_000), None);
        assert_eq!(write_utc(u64::MAX / 2), None);
    }
}
