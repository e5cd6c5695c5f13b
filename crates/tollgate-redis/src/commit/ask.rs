//! A set of checks as the store asks it.

use std::hash::{BuildHasher, Hasher, RandomState};

use smallvec::SmallVec;
use tollgate_core::{Key, Policy, Times};

/// The keys of a set, in the order of its checks.
pub(crate) type SetKeys = SmallVec<[Key; 1]>;

/// A pair of policy and key, with its cost in a set.
pub(crate) struct Pair<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) key: &'a Key,
    /// More than a `u32` if the set names the pair several times.
    pub(crate) cost: u64,
}

/// A set that names each pair once, and how often to acquire it.
pub(crate) struct Ask<'a> {
    pub(crate) pairs: SmallVec<[Pair<'a>; 4]>,
    pub(crate) times: Times,
}

impl Ask<'_> {
    /// A hash of the keys, which finds callers that ask for the same.
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        let mut hasher = hasher.build_hasher();
        self.pairs.iter().for_each(|pair| hasher.write(pair.key.as_encoded()));
        hasher.finish()
    }

    pub(super) fn keys(&self) -> SetKeys {
        self.pairs.iter().map(|pair| pair.key.clone()).collect()
    }

    pub(super) fn has_keys(&self, keys: &SetKeys) -> bool {
        self.pairs.iter().map(|pair| pair.key).eq(keys)
    }
}
