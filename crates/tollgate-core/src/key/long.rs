//! Keys that stores replace by a digest.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// The encoded form of a long key, and its digest once one was needed.
pub(super) struct LongKey {
    bytes: Box<[u8]>,
    /// With the number of its maker.
    digest: OnceLock<(u64, [u8; 16])>,
}

impl LongKey {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<LongKey> {
        Arc::new(LongKey { bytes: bytes.into(), digest: OnceLock::new() })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn digest_by(&self, maker: u64, digest: impl FnOnce(&[u8]) -> [u8; 16]) -> [u8; 16] {
        match self.digest.get() {
            Some((first, kept)) if *first == maker => *kept,
            Some(_) => digest(&self.bytes),
            None => {
                let made = digest(&self.bytes);
                // Another thread may have kept one meanwhile.
                let _ = self.digest.set((maker, made));
                made
            }
        }
    }
}

impl PartialEq for LongKey {
    fn eq(&self, other: &LongKey) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for LongKey {}

impl Hash for LongKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::key::Key;

    #[test]
    fn a_long_key_is_hashed_once_for_its_clones_and_first_maker() {
        let made = Cell::new(0);
        let digest = |key: &Key, maker: u64| {
            key.digest_by(maker, |bytes| {
                made.set(made.get() + 1);
                [bytes.len().to_le_bytes()[0] ^ maker.to_le_bytes()[0]; 16]
            })
        };
        let (long, same) = (Key::from("x".repeat(400)), Key::from("x".repeat(400)));
        assert_eq!((digest(&long, 1), digest(&long.clone(), 1), made.get()), ([144; 16], [144; 16], 1));
        assert_eq!((digest(&long, 2), digest(&long, 1), made.get()), ([147; 16], [144; 16], 2));
        assert_eq!((digest(&same, 1), made.get(), same == long), ([144; 16], 3, true));
        let short = Key::from("x".repeat(Key::MAX_TEXT - 1));
        assert_eq!((digest(&short, 1), digest(&short, 1), made.get()), ([129; 16], [129; 16], 5));
    }
}
