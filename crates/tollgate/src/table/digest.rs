//! Keys as 128 bits, hashed with a secret: attackers cannot choose keys that collide.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use siphasher::{sip, sip128};
use tollgate_core::Key;

/// How many bits of a digest choose the shard: the lowest.
pub(super) const SHARD_BITS: u32 = 16;

/// A hash of 64 bits, and either the key itself if it is short, or 64 more bits of the hash. Both
/// are combined with the hash of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Digest(u64, u64);

impl Digest {
    /// The bits that choose a shard: the lowest.
    #[expect(clippy::cast_possible_truncation, reason = "any of its bits do")]
    #[inline]
    pub(crate) fn shard(&self) -> usize {
        self.0 as usize
    }

    /// The bits that choose a place: the highest, so that the keys of a shard spread over all of
    /// it.
    #[inline]
    pub(crate) fn home(&self) -> u64 {
        self.0
    }

    /// Names the key that has this digest: by its text, or by the digest if the text is long. No
    /// text of a key begins with `~`.
    pub(crate) fn name(&self, key: &Key) -> String {
        let mut text = String::new();
        // First the length of the key: this runs under a lock, and each escaped byte is three.
        if key.as_encoded().len() <= Key::MAX_TEXT {
            // Writing to a string does not fail.
            let _ = key.write_text(&mut text);
            if text.len() <= Key::MAX_TEXT {
                return text;
            }
        }
        format!("~{self}")
    }
}

/// In hexadecimal digits, for names of keys.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

/// A random secret of this process.
#[derive(Clone)]
pub(crate) struct Secret(u64, u64);

impl Secret {
    pub(crate) fn random() -> Secret {
        // The random hash keys of the standard library need no dependency.
        let word = || RandomState::new().hash_one(0_u64);
        Secret(word(), word())
    }

    /// SipHash-1-3 of a key. An IPv4 address is one block.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        if let Some(word) = short(key) {
            return KeyHash(sip::SipHasher13::new_with_keys(self.0, self.1).hash(key), word);
        }
        let hash = sip128::SipHasher13::new_with_keys(self.0, self.1).hash(key);
        KeyHash(hash.h1, hash.h2)
    }

    #[inline]
    pub(crate) fn digest(&self, scope_hash: u64, key: &[u8]) -> Digest {
        self.hash(key).under(scope_hash)
    }
}

/// The hash of a key for all policies.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash(u64, u64);

impl KeyHash {
    /// The digest of the key under a policy. The bits that choose the shard are those of the key,
    /// so a set with one key locks one shard. With a hash and a shard for each check, a set of
    /// three costs 1.06 × the instructions and 1.09 × the time (instructions, fields, 3 rules).
    #[inline]
    pub(crate) fn under(self, scope_hash: u64) -> Digest {
        Digest(self.0 ^ (scope_hash << SHARD_BITS), self.1 ^ scope_hash)
    }
}

/// A key of 4 to 7 bytes and its length, as a unique number: a hash of 64 bits is enough then. With
/// 128 bits, a request without fields costs 1.17 × (peers, allowed, hot).
#[inline]
fn short(key: &[u8]) -> Option<u64> {
    let (first, rest) = key.split_first_chunk()?;
    // Byte by byte: a wider read of bytes just written stalls on store forwarding.
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
    fn digests_differ_by_policy_key_and_process() {
        let secret = Secret::random();
        assert_eq!(secret.digest(1, b"a"), secret.digest(1, b"a"));
        assert_ne!(secret.digest(1, b"a"), secret.digest(2, b"a"));
        assert_ne!(secret.digest(1, b"a"), secret.digest(1, b"b"));
        assert_ne!(secret.digest(1, b"a"), Secret::random().digest(1, b"a"));
        assert_ne!(secret.digest(1, b"4abcd"), Secret::random().digest(1, b"4abcd"));
    }

    #[test]
    fn short_keys_have_unique_digests_and_spread_by_their_hash() {
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
