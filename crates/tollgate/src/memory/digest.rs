//! Keys as 128 bits under a secret: of one size, and not to be collided with by who invents them.

use std::hash::{BuildHasher, RandomState};

use siphasher::{sip, sip128};

/// A hash, and what tells apart keys that have the same: the key itself where it is short, else as much of a hash again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64, u64);

impl Digest {
    /// Bits that choose a shard.
    #[expect(clippy::cast_possible_truncation, reason = "any of its bits do")]
    #[inline]
    pub(super) fn shard(&self) -> usize {
        self.0 as usize
    }

    /// Bits of which the highest choose a place; the shard's are the lowest, or a shard's keys would crowd into a part of it.
    #[inline]
    pub(super) fn home(&self) -> u64 {
        self.0
    }
}

/// A secret of this process: without it nobody can choose keys that meet in one shard, or that collide.
pub(super) struct Secret(u64, u64);

impl Secret {
    pub(super) fn random() -> Secret {
        // The standard library's own source of unpredictable hash keys, which needs no dependency.
        let word = || RandomState::new().hash_one(0_u64);
        Secret(word(), word())
    }

    /// SipHash-1-3 of a key, under the secret of its policy: ours, and the hash of the policy's scope. So a key alone is
    /// hashed for each request, which for an IPv4 address is a single block, and need not be hashed twice.
    #[inline]
    pub(super) fn digest(&self, scope_hash: u64, key: &[u8]) -> Digest {
        let of_policy = self.0 ^ scope_hash;
        if let Some(word) = short(key) {
            return Digest(sip::SipHasher13::new_with_keys(of_policy, self.1).hash(key), word);
        }
        let hash = sip128::SipHasher13::new_with_keys(of_policy, self.1).hash(key);
        Digest(hash.h1, hash.h2)
    }
}

/// A key of 4 to 7 bytes and its length, as a number that no other has.
#[inline]
fn short(key: &[u8]) -> Option<u64> {
    let (first, rest) = key.split_first_chunk()?;
    // Byte by byte: what is read here was written a moment ago, and not always in larger pieces.
    let rest = match *rest {
        [] => 0,
        [a] => u32::from(a),
        [a, b] => u32::from_le_bytes([a, b, 0, 0]),
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
        _ => return None,
    };
    Some((key.len() as u64) << 56 | u64::from(rest) << 32 | u64::from(u32::from_le_bytes(*first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_keys_and_processes_differ() {
        let secret = Secret::random();
        assert_eq!(secret.digest(1, b"a"), secret.digest(1, b"a"));
        assert_ne!(secret.digest(1, b"a"), secret.digest(2, b"a"));
        assert_ne!(secret.digest(1, b"a"), secret.digest(1, b"b"));
        assert_ne!(secret.digest(1, b"a"), Secret::random().digest(1, b"a"));
        assert_ne!(secret.digest(1, b"4abcd"), Secret::random().digest(1, b"4abcd"));
    }

    #[test]
    fn short_keys_are_told_apart_by_themselves_and_spread_by_their_hash() {
        let secret = Secret::random();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for first in [[0; 4], [1, 0, 0, 0], [0, 0, 0, 1], [255; 4]] {
            for rest in
                [&[][..], &[0], &[0, 0], &[0, 0, 0], &[1], &[0, 1], &[0, 0, 1], &[255; 3], &[0; 4], &[0; 5]]
            {
                keys.push([&first, rest].concat());
            }
        }
        keys.extend([vec![], vec![0], vec![0; 3]]);
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[..i] {
                assert!(short(a).is_none() || short(a) != short(b), "{a:?} and {b:?}");
                assert_ne!(secret.digest(1, a).home(), secret.digest(1, b).home(), "{a:?} and {b:?}");
            }
            assert_ne!(secret.digest(1, a).home(), secret.digest(2, a).home(), "{a:?}");
        }
    }
}
