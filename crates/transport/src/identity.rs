//! The name in a client's certificate that becomes its user name.
//!
//! The certificate was checked before: signed by our authority, in its time, not revoked. Here it
//! is only read, with as much of DER as its names need. A name that could not stand in a rule or a
//! log line (empty, with control characters, too long, not text) is no name: the connection is
//! refused rather than let in as somebody else or as nobody.

use crate::limits::USER_BYTES_MAX;

/// Which part of a certificate is the user name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateUser {
    /// The first common name of the subject.
    CommonName,
    /// The first DNS name, mail address or URI among the subject's alternative names.
    AlternativeName,
    /// The whole subject, written as in RFC 4514.
    Subject,
    /// None: user name and password are asked for as ever.
    Off,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;
/// `[0]` of the version and `[3]` of the extensions.
const VERSION: u8 = 0xA0;
const EXTENSIONS: u8 = 0xA3;
/// `[1]` mail address, `[2]` DNS name, `[6]` URI in a general name.
const GENERAL_NAMES: [u8; 3] = [0x81, 0x82, 0x86];
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1D, 0x11];
/// The attributes RFC 4514 §3 has short names for.
const SHORT_NAMES: [(&[u8], &str); 9] = [
    (COMMON_NAME, "CN"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 1], "UID"),
];

/// The user a certificate names; None when it names none.
pub fn user_of(certificate: &[u8], from: CertificateUser) -> Option<Box<str>> {
    let fields = Fields::read(certificate)?;
    let name = match from {
        CertificateUser::CommonName => common_name(fields.subject)?,
        CertificateUser::AlternativeName => alternative_name(fields.extensions?)?,
        CertificateUser::Subject => subject_name(fields.subject)?,
        CertificateUser::Off => return None,
    };
    let is_name =
        !name.is_empty() && name.len() <= USER_BYTES_MAX && !name.chars().any(char::is_control);
    is_name.then(|| name.into())
}

/// Until when a certificate is good, in Unix seconds.
pub fn not_after_s(certificate: &[u8]) -> Option<i64> {
    let validity = Fields::read(certificate)?.validity;
    let mut rest = validity;
    take(&mut rest)?;
    let (tag, text) = take(&mut rest)?;
    unix_seconds(tag, std::str::from_utf8(text).ok()?)
}

/// One element: tag and content; `rest` moves on.
fn take<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, after) = rest.split_first()?;
    let (&first, after) = after.split_first()?;
    let (length, after) = match first {
        0..=0x7F => (usize::from(first), after),
        0x81..=0x84 => {
            let (digits, after) = after.split_at_checked(usize::from(first & 0x7F))?;
            (digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit)), after)
        }
        _ => return None,
    };
    let (content, after) = after.split_at_checked(length)?;
    *rest = after;
    Some((tag, content))
}

fn take_as<'a>(rest: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    take(rest).filter(|&(tag, _)| tag == wanted).map(|(_, content)| content)
}

/// What of a certificate is read (RFC 5280 §4.1).
struct Fields<'a> {
    validity: &'a [u8],
    subject: &'a [u8],
    extensions: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    fn read(mut certificate: &'a [u8]) -> Option<Self> {
        let mut outer = take_as(&mut certificate, SEQUENCE)?;
        let mut rest = take_as(&mut outer, SEQUENCE)?;
        if rest.first() == Some(&VERSION) {
            take(&mut rest)?;
        }
        take(&mut rest)?; // serial number
        take(&mut rest)?; // signature algorithm
        take(&mut rest)?; // issuer
        let validity = take_as(&mut rest, SEQUENCE)?;
        let subject = take_as(&mut rest, SEQUENCE)?;
        take(&mut rest)?; // public key
        let mut extensions = None;
        while let Some((tag, mut content)) = take(&mut rest) {
            if tag == EXTENSIONS {
                extensions = take_as(&mut content, SEQUENCE);
            }
        }
        Some(Self { validity, subject, extensions })
    }
}

/// The attributes of a name, in order: object identifier, tag of the text, text.
fn attributes(mut name: &[u8]) -> impl Iterator<Item = (&[u8], u8, &[u8])> {
    let mut set: &[u8] = &[];
    std::iter::from_fn(move || {
        while set.is_empty() {
            set = take_as(&mut name, SET)?;
        }
        let mut attribute = take_as(&mut set, SEQUENCE)?;
        let oid = take_as(&mut attribute, OID)?;
        let (tag, text) = take(&mut attribute)?;
        Some((oid, tag, text))
    })
}

fn common_name(subject: &[u8]) -> Option<String> {
    let (_, tag, text) = attributes(subject).find(|&(oid, ..)| oid == COMMON_NAME)?;
    text_of(tag, text)
}

fn alternative_name(mut extensions: &[u8]) -> Option<String> {
    while let Some(mut extension) = take_as(&mut extensions, SEQUENCE) {
        if take_as(&mut extension, OID)? != ALTERNATIVE_NAME {
            continue;
        }
        // A flag may stand between: whether the extension is critical.
        let mut value = std::iter::from_fn(|| take(&mut extension));
        let (_, mut value) = value.find(|&(tag, _)| tag == OCTETS)?;
        let mut names = take_as(&mut value, SEQUENCE)?;
        while let Some((tag, text)) = take(&mut names) {
            if GENERAL_NAMES.contains(&tag) {
                return text.is_ascii().then(|| String::from_utf8(text.to_vec()).ok())?;
            }
        }
    }
    None
}

/// RFC 4514: the last part first, special characters escaped.
fn subject_name(subject: &[u8]) -> Option<String> {
    let parts: Option<Vec<String>> = attributes(subject)
        .map(|(oid, tag, text)| {
            let short = SHORT_NAMES.iter().find(|(known, _)| *known == oid);
            let kind = short.map_or_else(|| dotted(oid), |(_, name)| (*name).to_owned());
            Some(format!("{kind}={}", escaped(&text_of(tag, text)?)))
        })
        .collect();
    let mut parts = parts?;
    parts.reverse();
    Some(parts.join(","))
}

fn dotted(oid: &[u8]) -> String {
    let mut words = Vec::new();
    let mut word = 0_u64;
    for &byte in oid {
        word = word << 7 | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            if words.is_empty() {
                let first = (word / 40).min(2);
                words.push(first.to_string());
                word -= first * 40;
            }
            words.push(word.to_string());
            word = 0;
        }
    }
    words.join(".")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (at, letter) in text.chars().enumerate() {
        let is_edge = letter == ' ' && (at == 0 || at == last) || letter == '#' && at == 0;
        if is_edge || matches!(letter, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// The string types that occur; the ASCII kinds are taken as the UTF-8 they are.
fn text_of(tag: u8, text: &[u8]) -> Option<String> {
    match tag {
        0x0C | 0x12 | 0x13 | 0x16 => String::from_utf8(text.to_vec()).ok(),
        0x1E => {
            let units = text.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            let is_whole = text.len().is_multiple_of(2);
            is_whole.then(|| char::decode_utf16(units).collect::<Result<_, _>>().ok())?
        }
        _ => None,
    }
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the forms RFC 5280 allows.
fn unix_seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z')?;
    let year_digits = match (tag, digits.len()) {
        (UTC_TIME, 12) => 2,
        (GENERAL_TIME, 14) => 4,
        _ => return None,
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = digits.split_at(year_digits);
    let mut year: i64 = year.parse().ok()?;
    if year_digits == 2 {
        year += if year < 50 { 2000 } else { 1900 };
    }
    let field = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Days since 1970 of the proleptic Gregorian calendar, years counted from March.
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let year = if month > 2 { year } else { year - 1 };
    let of_era = year.rem_euclid(400);
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let days = year.div_euclid(400) * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year
        - 719_468;
    Some(days * 86_400 + field(4)? * 3_600 + field(6)? * 60 + field(8)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let mut bytes = vec![tag];
        match content.len() {
            short @ 0..=0x7F => bytes.push(short as u8),
            long => bytes.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        bytes.extend(content);
        bytes
    }

    fn attribute(oid: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        let pair = element(SEQUENCE, &[&element(OID, &[oid]), &element(tag, &[text])]);
        element(SET, &[&pair])
    }

    fn certificate(subject: &[Vec<u8>], names: &[&[u8]]) -> Vec<u8> {
        let parts: Vec<&[u8]> = subject.iter().map(Vec::as_slice).collect();
        let value = element(OCTETS, &[&element(SEQUENCE, names)]);
        let other =
            element(SEQUENCE, &[&element(OID, &[&[0x55, 0x1D, 0x0F]]), &element(4, &[b"x"])]);
        let critical = element(1, &[&[0xFF]]);
        let names = element(SEQUENCE, &[&element(OID, &[ALTERNATIVE_NAME]), &critical, &value]);
        let extensions = element(EXTENSIONS, &[&element(SEQUENCE, &[&other, &names])]);
        let times =
            [element(UTC_TIME, &[b"260101000000Z"]), element(GENERAL_TIME, &[b"20500301120000Z"])];
        let body = element(
            SEQUENCE,
            &[
                &element(VERSION, &[&element(2, &[&[2]])]),
                &element(2, &[&[7]]),
                &element(SEQUENCE, &[]),
                &element(SEQUENCE, &[]),
                &element(SEQUENCE, &[&times[0], &times[1]]),
                &element(SEQUENCE, &parts),
                &element(SEQUENCE, &[]),
                &extensions,
            ],
        );
        element(SEQUENCE, &[&body, &element(SEQUENCE, &[]), &element(3, &[&[0]])])
    }

    #[test]
    fn user_is_read_from_the_place_that_was_chosen() {
        let mail = element(0x81, &[b"pump@plant.example"]);
        let address = element(0x87, &[&[10, 0, 0, 1]]);
        let made = certificate(
            &[
                attribute(&[0x55, 4, 6], 0x13, b"AT"),
                attribute(&[0x55, 4, 10], 0x0C, b"Plant, Ltd"),
                attribute(COMMON_NAME, 0x0C, "pümp-1".as_bytes()),
                attribute(COMMON_NAME, 0x0C, b"second"),
            ],
            &[&address, &mail],
        );
        let user = |from| user_of(&made, from).map(String::from);
        assert_eq!(user(CertificateUser::CommonName).as_deref(), Some("pümp-1"));
        assert_eq!(user(CertificateUser::AlternativeName).as_deref(), Some("pump@plant.example"));
        let subject = "CN=second,CN=pümp-1,O=Plant\\, Ltd,C=AT";
        assert_eq!(user(CertificateUser::Subject).as_deref(), Some(subject));
        assert_eq!(user(CertificateUser::Off), None);
        // 2050-03-01 12:00:00 UTC.
        assert_eq!(not_after_s(&made), Some(2_529_748_800));
    }

    #[test]
    fn names_that_are_none_are_none() {
        let named = |tag, text: &[u8]| {
            let made = certificate(&[attribute(COMMON_NAME, tag, text)], &[]);
            user_of(&made, CertificateUser::CommonName).map(String::from)
        };
        assert_eq!(named(0x1E, b"\0p\x001").as_deref(), Some("p1"), "UTF-16");
        for (tag, text) in [
            (0x0C, &b""[..]),
            (0x0C, b"pump\0admin"),
            (0x0C, b"pump\nadmin"),
            (0x0C, b"\xFF\xFE"),
            (0x14, b"teletext"),
            (0x1E, b"odd"),
            (0x0C, &[b'x'; USER_BYTES_MAX + 1]),
        ] {
            assert_eq!(named(tag, text), None, "{text:?}");
        }
        let empty = certificate(&[], &[]);
        assert_eq!(user_of(&empty, CertificateUser::CommonName), None);
        assert_eq!(user_of(&empty, CertificateUser::AlternativeName), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>(), at in 0_usize..200) {
            let mut made = certificate(&[attribute(COMMON_NAME, 0x0C, b"pump")], &[]);
            let at = at.min(made.len());
            made.splice(at..(at + bytes.len()).min(made.len()), bytes);
            user_of(&made, CertificateUser::Subject);
            user_of(&made, CertificateUser::AlternativeName);
            not_after_s(&made);
        }
    }
}
