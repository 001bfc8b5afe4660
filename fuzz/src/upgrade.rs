//! Invariant: an HTTP request is granted, refused with its reason, or incomplete; never more.
//!
//! Input: a request. Reading never panics; a granted one ends inside the bytes and is granted at no
//! shorter length; whatever is refused stays refused when more comes; 8 KiB are always a verdict.

use quantumqtt_transport::{UpgradeRules, read_upgrade};

const HEAD_BYTES_MAX: usize = 8 * 1024;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let rules = UpgradeRules { path: "/mqtt".into(), origins: vec!["https://a.example".into()] };
    let verdict = read_upgrade(&rules, bytes);
    match &verdict {
        Ok(Some((used, answer))) => {
            assert!(*used <= bytes.len());
            assert!(answer.starts_with(b"HTTP/1.1 101 ") && answer.ends_with(b"\r\n\r\n"));
            let lines = answer.split(|&byte| byte == b'\n').count();
            assert_eq!(lines, 7, "nothing of the request breaks out of its line");
            assert_eq!(read_upgrade(&rules, &bytes[..used - 1]), Ok(None));
        }
        Ok(None) => assert!(bytes.len() < HEAD_BYTES_MAX),
        Err(refusal) => {
            let longer = [bytes, b"\r\n\r\n"].concat();
            assert!(read_upgrade(&rules, &longer).is_err(), "{refusal:?} stays");
            assert!(refusal.answer().starts_with(b"HTTP/1.1 4"));
        }
    }
}
