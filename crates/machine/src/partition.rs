//! Which partition a client id or a topic belongs to.
//!
//! Both the session partition and the topic partition are `jump_hash(hash64(tenant, key), count)`
//! on the tenant's ring. The two functions are part of the product's contract: every node, every
//! release and every client library must give the same answer, so they are specified here to the
//! bit and pinned by `tests/golden/machine/hash64.txt`.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

/// Names longer than this spill to the heap; MQTT names of everyday length do not.
const INLINE_BYTES: usize = 256;

/// XXH3-64 with seed 0 over `len(tenant) as u32le ‖ tenant ‖ key`.
///
/// The length comes first so that (`ab`, `c`) and (`a`, `bc`) are different inputs. Tenant names
/// are validated to be short long before they get here; a length beyond `u32` cannot occur.
pub fn hash64(tenant: &str, key: &str) -> u64 {
    let mut input = SmallVec::<[u8; INLINE_BYTES]>::new();
    input.extend_from_slice(&(tenant.len() as u32).to_le_bytes());
    input.extend_from_slice(tenant.as_bytes());
    input.extend_from_slice(key.as_bytes());
    xxh3_64(&input)
}

/// The jump-consistent bucket of `key` among `buckets` (0 is treated as 1).
///
/// Growing from n-1 to n buckets moves about 1/n of the keys, and only into the new bucket: the
/// sequence of jumps of a key does not depend on `buckets`, which only says where to stop. The
/// published algorithm divides in double precision; whole numbers are exact and the same on every
/// machine, so the quotient here is the mathematical floor.
pub fn jump_hash(mut key: u64, buckets: u32) -> u32 {
    let mut bucket = 0_u32;
    let mut next = 0_u64;
    while next < u64::from(buckets) {
        bucket = next as u32;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        // At most 2^32 << 31, and the divisor is at most 2^31: no overflow, always a step forward.
        next = ((u64::from(bucket) + 1) << 31) / ((key >> 33) + 1);
    }
    bucket
}

#[cfg(test)]
mod tests {
    use super::{hash64, jump_hash};

    const GOLDEN: &str = include_str!("../../../tests/golden/machine/hash64.txt");

    // req: PRG-02
    // req: PRG-03
    #[test]
    fn golden_vectors_hold() {
        let mut seen = 0;
        for line in GOLDEN.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [tenant, key, hash, of_8, of_512] = fields[..] else {
                panic!("five fields expected: {line}");
            };
            let found = hash64(tenant, key);
            assert_eq!(format!("{found:016x}"), hash, "{line}");
            assert_eq!(jump_hash(found, 8).to_string(), of_8, "{line}");
            assert_eq!(jump_hash(found, 512).to_string(), of_512, "{line}");
            seen += 1;
        }
        assert!(seen >= 10, "the golden file lost its vectors");
    }

    #[test]
    fn tenant_and_key_do_not_run_into_each_other() {
        assert_ne!(hash64("ab", "c"), hash64("a", "bc"));
    }

    #[test]
    fn one_bucket_or_none_takes_everything() {
        assert_eq!(jump_hash(u64::MAX, 1), 0);
        assert_eq!(jump_hash(u64::MAX, 0), 0);
        assert!(jump_hash(0, u32::MAX) < u32::MAX);
    }

    // req: PRG-04
    #[test]
    fn growing_the_ring_moves_one_nth_and_only_to_the_new_slot() {
        const KEYS: u32 = 1_000_000;
        for buckets in [2_u32, 3, 8, 64] {
            let mut moved = 0_u32;
            for number in 0..KEYS {
                let key = xxhash_rust::xxh3::xxh3_64(&number.to_le_bytes());
                let before = jump_hash(key, buckets - 1);
                let after = jump_hash(key, buckets);
                if before != after {
                    assert_eq!(after, buckets - 1, "a key moved between old slots");
                    moved += 1;
                }
            }
            let expected = KEYS / buckets;
            // Six standard deviations; a binomial's variance is below its mean.
            let deviation = u64::from(moved.abs_diff(expected));
            assert!(deviation.pow(2) < 36 * u64::from(expected), "{moved} moved at {buckets}");
        }
    }
}
