//! The HTTP request that becomes a WebSocket (RFC 6455 §4), and the answers to those that do not.
//!
//! Every refusal names its reason in status and text, since whoever reads it is a person with a
//! proxy that is not quite right. Bounds: 8 KiB, 64 headers, and the time the connection has.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use httparse::{EMPTY_HEADER, Error as HttpError, Request, Status};

use crate::base64;
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX};

const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// What MQTT calls itself there `[MQTT-6.0.0-3]`; 3.1 had a name of its own.
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// Which requests a listener takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeRules {
    /// The path, `/mqtt`.
    pub path: Box<str>,
    /// Origins a browser may come from; empty lets it come from anywhere.
    pub origins: Vec<Box<str>>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "`why` says it in words")]
pub enum Refusal {
    NotHttp,
    TooLarge,
    NotGet,
    NotThisPath,
    NoUpgrade,
    NotThisVersion,
    NoHost,
    BadKey,
    NoSubprotocol,
    ForeignOrigin,
}

impl Refusal {
    /// The status, and the reason in words.
    pub fn why(self) -> (u16, &'static str) {
        match self {
            Self::NotHttp => (400, "this is no HTTP/1.1 request"),
            Self::TooLarge => (431, "the request header is larger than 8 KiB or 64 fields"),
            Self::NotGet => (405, "a WebSocket begins with GET"),
            Self::NotThisPath => (404, "there is no WebSocket at this path"),
            Self::NoUpgrade => {
                (426, "speak WebSocket: Connection: Upgrade and Upgrade: websocket are missing")
            }
            Self::NotThisVersion => (426, "Sec-WebSocket-Version is not 13"),
            Self::NoHost => (400, "the Host field is missing"),
            Self::BadKey => (400, "Sec-WebSocket-Key is not 16 bytes in Base64"),
            Self::NoSubprotocol => (400, "Sec-WebSocket-Protocol offers neither mqtt nor mqttv3.1"),
            Self::ForeignOrigin => (403, "pages of this origin may not connect"),
        }
    }

    /// The whole answer.
    pub fn answer(self) -> Vec<u8> {
        let (status, why) = self.why();
        let phrase = match status {
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            426 => "Upgrade Required",
            431 => "Request Header Fields Too Large",
            _ => "Bad Request",
        };
        let more = match status {
            405 => "Allow: GET\r\n",
            426 => "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
            _ => "",
        };
        // Upgrade is a hop-by-hop field and must be named in Connection (RFC 9110 §7.8).
        let connection = if status == 426 { "Upgrade, close" } else { "close" };
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "HTTP/1.1 {status} {phrase}\r\nConnection: {connection}\r\n{more}Content-Type: \
             text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{why}\n",
            why.len() + 1
        );
        text.into_bytes()
    }
}

/// Read the request at the start of `bytes`: its length and the answer; None while incomplete.
pub fn read_upgrade(
    rules: &UpgradeRules,
    bytes: &[u8],
) -> Result<Option<(usize, Vec<u8>)>, Refusal> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let used = match request.parse(window) {
        Ok(Status::Complete(used)) => used,
        Ok(Status::Partial) if bytes.len() >= HEAD_BYTES_MAX => return Err(Refusal::TooLarge),
        Ok(Status::Partial) => return Ok(None),
        Err(HttpError::TooManyHeaders) => return Err(Refusal::TooLarge),
        Err(_) => return Err(Refusal::NotHttp),
    };
    judge(rules, &request).map(|answer| Some((used, answer)))
}

fn judge(rules: &UpgradeRules, request: &Request<'_, '_>) -> Result<Vec<u8>, Refusal> {
    if request.version != Some(1) {
        return Err(Refusal::NotHttp);
    }
    if request.method != Some("GET") {
        return Err(Refusal::NotGet);
    }
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some(&rules.path) {
        return Err(Refusal::NotThisPath);
    }
    let field = Fields(request.headers);
    if field.one("Host").is_none() {
        return Err(Refusal::NoHost);
    }
    if !field.lists("Connection", "upgrade") || !field.lists("Upgrade", "websocket") {
        return Err(Refusal::NoUpgrade);
    }
    if field.one("Sec-WebSocket-Version") != Some(b"13") {
        return Err(Refusal::NotThisVersion);
    }
    let Some(key) = field.one("Sec-WebSocket-Key").filter(|key| base64::is_key(key)) else {
        return Err(Refusal::BadKey);
    };
    // Only browsers say where their page comes from; others have none and do as they like.
    let is_foreign = |origin: &[u8]| {
        !rules.origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin))
    };
    if !rules.origins.is_empty() && field.all("Origin").any(is_foreign) {
        return Err(Refusal::ForeignOrigin);
    }
    let offered = SUBPROTOCOLS
        .into_iter()
        .find(|known| field.lists("Sec-WebSocket-Protocol", known))
        .ok_or(Refusal::NoSubprotocol)?;
    Ok(accept(key, offered))
}

/// 101, with the proof that we read the key (§4.2.2).
fn accept(key: &[u8], subprotocol: &str) -> Vec<u8> {
    let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, KEY_SUFFIX].concat());
    let proof = base64::encode(proof.as_ref());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {proof}\r\nSec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
    )
    .into_bytes()
}

struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let named = move |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
        self.0.iter().filter(named).map(|field| field.value.trim_ascii())
    }

    /// The value of a field that may stand there once; twice is as good as never.
    fn one(&self, name: &'static str) -> Option<&'a [u8]> {
        let mut all = self.all(name);
        all.next().filter(|_| all.next().is_none())
    }

    /// Whether a field with commas, perhaps written several times, holds a word.
    fn lists(&self, name: &'static str, word: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|&byte| byte == b','))
            .any(|entry| entry.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASKED: &str = "GET /mqtt?x=1 HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
        Upgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\nOrigin: https://a.example\r\n\
        Sec-WebSocket-Protocol: chat, mqtt\r\n\r\n";

    fn rules(origins: &[&str]) -> UpgradeRules {
        UpgradeRules {
            path: "/mqtt".into(),
            origins: origins.iter().map(|&origin| origin.into()).collect(),
        }
    }

    fn answer(text: &str) -> Result<Option<(usize, Vec<u8>)>, Refusal> {
        read_upgrade(&rules(&["https://A.example"]), text.as_bytes())
    }

    // req: NET-13
    #[test]
    fn browser_is_answered_with_the_proof_of_its_key() {
        let (used, answer) = answer(&format!("{ASKED}\x10")).unwrap().unwrap();
        assert_eq!(used, ASKED.len());
        let text = String::from_utf8(answer).unwrap();
        assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
        // The example of RFC 6455 §1.3.
        assert!(text.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
        assert!(text.contains("\r\nSec-WebSocket-Protocol: mqtt\r\n"), "{text}");
    }

    // req: NET-13
    #[test]
    fn refusals_name_their_reason() {
        let changed = |from: &str, to: &str| answer(&ASKED.replace(from, to)).unwrap_err();
        for (from, to, refusal) in [
            ("GET", "POST", Refusal::NotGet),
            ("HTTP/1.1", "HTTP/1.0", Refusal::NotHttp),
            ("/mqtt?", "/mqttx?", Refusal::NotThisPath),
            ("Host: a\r\n", "", Refusal::NoHost),
            ("Host: a\r\n", "Host: a\r\nHost: b\r\n", Refusal::NoHost),
            ("Upgrade: WebSocket\r\n", "", Refusal::NoUpgrade),
            ("keep-alive, Upgrade", "close", Refusal::NoUpgrade),
            ("Version: 13", "Version: 8", Refusal::NotThisVersion),
            ("dGhlIHNhbXBsZSBub25jZQ==", "short", Refusal::BadKey),
            ("chat, mqtt", "chat, mqtts", Refusal::NoSubprotocol),
            ("Sec-WebSocket-Protocol: chat, mqtt\r\n", "", Refusal::NoSubprotocol),
            ("https://a.example", "https://b.example", Refusal::ForeignOrigin),
            ("https://a.example", "null", Refusal::ForeignOrigin),
            ("GET ", "\x16\x03\x01", Refusal::NotHttp),
        ] {
            assert_eq!(changed(from, to), refusal, "{from} → {to}");
            let (status, why) = refusal.why();
            let text = String::from_utf8(refusal.answer()).unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
            assert!(text.ends_with(&format!("\r\n\r\n{why}\n")), "{text}");
        }
        let without = ASKED.replace("Origin: https://a.example\r\n", "");
        assert!(answer(&without).unwrap().is_some(), "programs have no origin");
        let old = ASKED.replace("chat, mqtt", "mqttv3.1");
        let (_, answered) = answer(&old).unwrap().unwrap();
        assert!(String::from_utf8(answered).unwrap().contains("Protocol: mqttv3.1\r\n"));
    }

    // req: NET-15
    // hardening: websocket-handshake
    #[test]
    fn headers_are_bounded_in_size_and_number() {
        let head = "GET /mqtt HTTP/1.1\r\n";
        let endless = format!("{head}X: {}", "y".repeat(HEAD_BYTES_MAX));
        assert_eq!(answer(&endless), Err(Refusal::TooLarge));
        assert_eq!(answer(&endless[..HEAD_BYTES_MAX - 1]), Ok(None));
        let many = format!("{head}{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(answer(&many), Err(Refusal::TooLarge));
        assert_eq!(Refusal::TooLarge.why().0, 431);
    }

    proptest! {
        // req: NET-13
        #[test]
        fn request_arrives_in_any_pieces(cut in 0..ASKED.len()) {
            prop_assert_eq!(answer(&ASKED[..cut]), Ok(None));
        }

        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>(), keep in 0..ASKED.len()) {
            let input = [&ASKED.as_bytes()[..keep], &bytes].concat();
            if let Ok(Some((used, _))) = read_upgrade(&rules(&[]), &input) {
                prop_assert!(used <= input.len());
            }
        }
    }
}
