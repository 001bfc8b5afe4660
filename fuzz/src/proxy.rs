//! Invariant: a PROXY header is read, refused or incomplete, and what it is does not change.
//!
//! Input: the first byte chooses the versions a listener takes. Reading never panics; a header ends
//! inside the bytes, is incomplete at every shorter length, and does not depend on what follows;
//! what one version takes, `Any` takes as the same.

use quantumqtt_transport::{ProxyMode, read_proxy_header};

const HEADER_BYTES_MAX: usize = 16 + 2 * 1024;

/// See the head of this file.
pub fn check(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let mode = [ProxyMode::V1, ProxyMode::V2, ProxyMode::Any][usize::from(choice) % 3];
    let verdict = read_proxy_header(mode, bytes);
    match verdict {
        Ok(Some((used, peer))) => {
            assert!(used <= bytes.len() && used <= HEADER_BYTES_MAX);
            assert_eq!(read_proxy_header(mode, &bytes[..used]), Ok(Some((used, peer))));
            assert_eq!(read_proxy_header(ProxyMode::Any, bytes), Ok(Some((used, peer))));
            for shorter in [0, used / 2, used - 1] {
                assert_eq!(read_proxy_header(mode, &bytes[..shorter]), Ok(None));
            }
        }
        Ok(None) => assert!(bytes.len() < HEADER_BYTES_MAX),
        Err(fault) => {
            let longer = [bytes, b"\r\n"].concat();
            assert_eq!(read_proxy_header(mode, &longer), Err(fault));
        }
    }
}
