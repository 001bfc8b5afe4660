//! An address and how much of it counts: whom a listener believes a PROXY header.

use std::net::IpAddr;
use std::str::FromStr;

/// `10.0.0.0/8`, `::1`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address, or an address/prefix")]
pub struct BadNetwork;

impl Network {
    /// Whether `address` is inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let cut = 32 - u32::from(self.prefix);
                (u64::from(ours.to_bits()) >> cut) == (u64::from(theirs.to_bits()) >> cut)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let cut = 128 - u32::from(self.prefix);
                let shifted = |bits: u128| bits.checked_shr(cut).unwrap_or(0);
                shifted(ours.to_bits()) == shifted(theirs.to_bits())
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| BadNetwork)?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| BadNetwork)?,
            None => whole,
        };
        if prefix > whole {
            return Err(BadNetwork);
        }
        Ok(Self { address, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_decide_and_families_never_mix() {
        let inside = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(inside("10.0.0.0/8", "10.255.1.2") && !inside("10.0.0.0/8", "11.0.0.0"));
        assert!(inside("0.0.0.0/0", "203.0.113.9") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("::/0", "2001:db8::1") && !inside("::/0", "127.0.0.1"));
        assert!(inside("fd00::/8", "fdff::1") && !inside("fd00::/8", "fe00::1"));
        assert!(inside("127.0.0.1", "127.0.0.1") && !inside("127.0.0.1", "127.0.0.2"));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "a.b/8", "10.0.0.0/-1", "1.2.3.4/"] {
            assert_eq!(bad.parse::<Network>(), Err(BadNetwork), "{bad}");
        }
    }
}
