//! Keys as 128 bits under a secret: of one size, and not to be collided with by who invents them.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip128::SipHasher13;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64, u64);

impl Digest {
    /// Bits that choose a shard.
    #[expect(clippy::cast_possible_truncation, reason = "any of its bits do")]
    #[inline]
    pub(super) fn shard(&self) -> usize {
        self.0 as usize
    }

    /// Bits that choose a place; not those of the shard, or a shard's keys would crowd into a part of it.
    #[inline]
    pub(super) fn home(&self) -> u64 {
        self.1
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
    /// hashed for each request, which for an address is a single block.
    #[inline]
    pub(super) fn digest(&self, scope_hash: u64, key: &[u8]) -> Digest {
        let hash = SipHasher13::new_with_keys(self.0 ^ scope_hash, self.1).hash(key);
        Digest(hash.h1, hash.h2)
    }
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
    }
}
