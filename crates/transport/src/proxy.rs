//! The PROXY protocol, versions 1 and 2: who is at the other end of the proxy.
//!
//! Rules: the header comes first or the connection is over; it is never looked for, guessed or
//! skipped. Which version may come is configured. `LOCAL` and `UNKNOWN` mean that the proxy speaks
//! for itself, so its own address stays. Anything longer than the bounds is refused unread.
//! Who may send a header at all is decided before a byte is read, by the socket's own address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::limits::{PROXY_V1_BYTES_MAX, PROXY_V2_BYTES_MAX};

const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V1_SIGNATURE: &[u8; 6] = b"PROXY ";
const V2_HEAD_BYTES: usize = 16;

/// Which headers a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// The line of text.
    V1,
    /// The binary block.
    V2,
    /// Either.
    Any,
}

/// Who the proxy speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyPeer {
    /// A client at this address.
    Client(SocketAddr),
    /// Itself, or somebody it does not name.
    Itself,
}

/// Not a header this listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no PROXY header that this listener takes")]
pub struct ProxyFault;

/// Read the header at the start of `bytes`: its length and its word; None while it is incomplete.
pub fn read_proxy_header(
    mode: ProxyMode,
    bytes: &[u8],
) -> Result<Option<(usize, ProxyPeer)>, ProxyFault> {
    let may_be = |signature: &[u8]| {
        let known = bytes.len().min(signature.len());
        bytes[..known] == signature[..known]
    };
    if mode != ProxyMode::V1 && may_be(V2_SIGNATURE) {
        return read_v2(bytes);
    }
    if mode != ProxyMode::V2 && may_be(V1_SIGNATURE) {
        return read_v1(bytes);
    }
    Err(ProxyFault)
}

fn read_v1(bytes: &[u8]) -> Result<Option<(usize, ProxyPeer)>, ProxyFault> {
    let window = &bytes[..bytes.len().min(PROXY_V1_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        let is_too_long = bytes.len() >= PROXY_V1_BYTES_MAX;
        return if is_too_long { Err(ProxyFault) } else { Ok(None) };
    };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| ProxyFault)?;
    let mut words = line.split(' ').skip(1);
    let peer = match words.next() {
        Some("UNKNOWN") => return Ok(Some((end + 2, ProxyPeer::Itself))),
        Some("TCP4") => tcp_peer::<Ipv4Addr>(&mut words)?,
        Some("TCP6") => tcp_peer::<Ipv6Addr>(&mut words)?,
        _ => return Err(ProxyFault),
    };
    if words.next().is_some() {
        return Err(ProxyFault);
    }
    Ok(Some((end + 2, ProxyPeer::Client(peer))))
}

/// Source and destination address, source and destination port.
fn tcp_peer<'a, A>(words: &mut impl Iterator<Item = &'a str>) -> Result<SocketAddr, ProxyFault>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut address = || words.next()?.parse::<A>().ok();
    let source = address().ok_or(ProxyFault)?;
    address().ok_or(ProxyFault)?;
    let source_port = port(words.next())?;
    port(words.next())?;
    Ok(SocketAddr::new(source.into(), source_port))
}

/// A decimal port; a sign or a leading zero is somebody's mistake.
fn port(word: Option<&str>) -> Result<u16, ProxyFault> {
    let word = word.ok_or(ProxyFault)?;
    let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || word.len() > 1 && word.starts_with('0') {
        return Err(ProxyFault);
    }
    word.parse().map_err(|_| ProxyFault)
}

fn read_v2(bytes: &[u8]) -> Result<Option<(usize, ProxyPeer)>, ProxyFault> {
    let Some(head) = bytes.first_chunk::<V2_HEAD_BYTES>() else {
        return Ok(None);
    };
    let (version, command) = (head[12] >> 4, head[12] & 0x0F);
    let (family, protocol) = (head[13] >> 4, head[13] & 0x0F);
    let rest_bytes = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if version != 2 || command > 1 || family > 3 || protocol > 2 {
        return Err(ProxyFault);
    }
    if rest_bytes > PROXY_V2_BYTES_MAX {
        return Err(ProxyFault);
    }
    let total = V2_HEAD_BYTES + rest_bytes;
    let Some(rest) = bytes.get(V2_HEAD_BYTES..total) else {
        return Ok(None);
    };
    // What follows the addresses (TLVs) is the proxy's talk and not needed.
    let peer = match (command, family, protocol) {
        (0, _, _) => ProxyPeer::Itself,
        (_, 1, 1) => {
            let fields = rest.first_chunk::<12>().ok_or(ProxyFault)?;
            let source = Ipv4Addr::new(fields[0], fields[1], fields[2], fields[3]);
            client(source.into(), [fields[8], fields[9]])
        }
        (_, 2, 1) => {
            let fields = rest.first_chunk::<36>().ok_or(ProxyFault)?;
            let source = fields.first_chunk::<16>().ok_or(ProxyFault)?;
            client(Ipv6Addr::from(*source).into(), [fields[32], fields[33]])
        }
        // A Unix socket, a datagram, or nothing said: not an address a client could have here.
        _ => ProxyPeer::Itself,
    };
    Ok(Some((total, peer)))
}

fn client(address: IpAddr, port: [u8; 2]) -> ProxyPeer {
    ProxyPeer::Client(SocketAddr::new(address, u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v2(command: u8, kind: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = V2_SIGNATURE.to_vec();
        bytes.extend([0x20 | command, kind]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    fn read(mode: ProxyMode, bytes: &[u8]) -> Result<Option<(usize, ProxyPeer)>, ProxyFault> {
        read_proxy_header(mode, bytes)
    }

    fn seen(text: &str) -> ProxyPeer {
        ProxyPeer::Client(text.parse().unwrap())
    }

    // req: NET-03
    #[test]
    fn both_versions_name_the_client_and_leave_the_rest() {
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n\x10";
        let answer = Ok(Some((line.len() - 1, seen("192.0.2.1:56324"))));
        assert_eq!(read(ProxyMode::V1, line), answer);
        assert_eq!(read(ProxyMode::Any, line), answer);
        let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
        assert_eq!(read(ProxyMode::V1, line), Ok(Some((line.len(), seen("[2001:db8::1]:1")))));
        let block = v2(1, 0x11, &[192, 0, 2, 9, 198, 51, 100, 1, 0x12, 0x34, 1, 187, 3, 0, 1, 7]);
        assert_eq!(read(ProxyMode::V2, &block), Ok(Some((block.len(), seen("192.0.2.9:4660")))));
        let mut six = vec![0; 36];
        (six[15], six[32], six[33]) = (1, 0, 80);
        let block = v2(1, 0x21, &six);
        assert_eq!(read(ProxyMode::Any, &block), Ok(Some((block.len(), seen("[::1]:80")))));
    }

    // req: NET-03
    #[test]
    fn proxy_may_speak_for_itself() {
        let line = b"PROXY UNKNOWN ffff::1 whatever\r\n";
        assert_eq!(read(ProxyMode::V1, line), Ok(Some((line.len(), ProxyPeer::Itself))));
        for block in [v2(0, 0x11, &[]), v2(1, 0x31, &[0; 216]), v2(1, 0x00, &[])] {
            assert_eq!(read(ProxyMode::V2, &block), Ok(Some((block.len(), ProxyPeer::Itself))));
        }
    }

    // req: NET-03
    #[test]
    fn malformed_and_foreign_headers_are_refused() {
        for line in [
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 more\r\n",
            "PROXY TCP4 192.0.2.256 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 ::1 ::1 56324 443\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.1 56324 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 +5 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 05 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
            "PROXY TCP4  192.0.2.1 198.51.100.1 1 443\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.1 1 443\r\n",
            "PROXY \r\n",
            "proxy TCP4 192.0.2.1 198.51.100.1 1 443\r\n",
            "GET / HTTP/1.1\r\n",
        ] {
            assert_eq!(read(ProxyMode::Any, line.as_bytes()), Err(ProxyFault), "{line:?}");
        }
        let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        assert_eq!(read(ProxyMode::V1, &endless), Err(ProxyFault), "107 bytes and no end");
        for block in [
            v2(2, 0x11, &[0; 12]),
            v2(1, 0x41, &[0; 12]),
            v2(1, 0x13, &[0; 12]),
            v2(1, 0x11, &[0; 11]),
            v2(1, 0x21, &[0; 35]),
            v2(1, 0x11, &[0; PROXY_V2_BYTES_MAX + 1]),
        ] {
            assert_eq!(read(ProxyMode::V2, &block), Err(ProxyFault), "{block:02x?}");
        }
        assert_eq!(read(ProxyMode::V2, b"PROXY UNKNOWN\r\n"), Err(ProxyFault));
        assert_eq!(read(ProxyMode::V1, &v2(0, 0, &[])), Err(ProxyFault));
        let connect = [0x10, 12, 0, 4, b'M', b'Q', b'T', b'T'];
        assert_eq!(read(ProxyMode::Any, &connect), Err(ProxyFault), "no header at all");
    }

    proptest! {
        // req: NET-03
        #[test]
        fn header_arrives_in_any_pieces(cut in 0_usize..60, mode in 0..2) {
            let line = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n".to_vec();
            let block = v2(1, 0x11, &[192, 0, 2, 1, 198, 51, 100, 1, 220, 4, 1, 187]);
            let header = if mode == 0 { line } else { block };
            let cut = cut.min(header.len() - 1);
            prop_assert_eq!(read(ProxyMode::Any, &header[..cut]), Ok(None));
            prop_assert_eq!(
                read(ProxyMode::Any, &header),
                Ok(Some((header.len(), seen("192.0.2.1:56324"))))
            );
        }

        #[test]
        fn no_bytes_panic_and_lengths_are_true(bytes in any::<Vec<u8>>(), prefix in 0..3) {
            let mut input = match prefix {
                0 => Vec::new(),
                1 => V1_SIGNATURE.to_vec(),
                _ => V2_SIGNATURE.to_vec(),
            };
            input.extend(bytes);
            if let Ok(Some((used, _))) = read(ProxyMode::Any, &input) {
                prop_assert!(used <= input.len());
            }
        }
    }
}
