//! Keys as 128 bits under a secret: of one size, and not to be collided with by who invents them.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64, u64);

impl Digest {
    /// Bits that choose a shard.
    #[expect(clippy::cast_possible_truncation, reason = "any of its bits do")]
    pub(super) fn shard(&self) -> usize {
        self.0 as usize
    }

    /// Bits that choose a chain; not those of the shard, or a shard's keys would crowd into some of its chains.
    #[expect(clippy::cast_possible_truncation, reason = "any of its bits do")]
    pub(super) fn bucket(&self) -> usize {
        self.1 as usize
    }
}

/// A secret of this process: without it nobody can choose keys that meet in one shard, or that collide.
pub(super) struct Secret(SipHasher13);

impl Secret {
    pub(super) fn random() -> Secret {
        // The standard library's own source of unpredictable hash keys, which needs no dependency.
        let word = || RandomState::new().hash_one(0_u64);
        Secret(SipHasher13::new_with_keys(word(), word()))
    }

    /// SipHash-1-3 of the scope of a policy and a key.
    pub(super) fn digest(&self, scope: &str, key: &[u8]) -> Digest {
        // One call over one slice costs half of three calls. Longer keys are rare and take those.
        let mut buffer = [0_u8; 128];
        let length = scope.len() + 1 + key.len();
        let hash = if let Some(input) = buffer.get_mut(..length) {
            // A scope is printable ASCII: the zero byte between says where it ends.
            input[..scope.len()].copy_from_slice(scope.as_bytes());
            input[scope.len() + 1..].copy_from_slice(key);
            self.0.hash(input)
        } else {
            let mut hasher = self.0;
            hasher.write(scope.as_bytes());
            hasher.write(&[0]);
            hasher.write(key);
            hasher.finish128()
        };
        Digest(hash.h1, hash.h2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_and_key_cannot_be_confused() {
        let secret = Secret::random();
        assert_eq!(secret.digest("a", b"bc"), secret.digest("a", b"bc"));
        assert_ne!(secret.digest("a", b"bc"), secret.digest("ab", b"c"));
        assert_ne!(secret.digest("a", b"bc"), Secret::random().digest("a", b"bc"));
    }

    #[test]
    fn the_short_way_and_the_long_way_agree() {
        let secret = Secret::random();
        for length in [0, 1, 100, 126, 127, 200] {
            let key = vec![7; length];
            let mut whole = secret.0;
            whole.write(b"s\0");
            whole.write(&key);
            let hash = whole.finish128();
            assert_eq!(secret.digest("s", &key), Digest(hash.h1, hash.h2), "{length}");
        }
    }
}
