//! A set of checks as the store asks it.

use std::hash::{BuildHasher, Hasher, RandomState};

use smallvec::SmallVec;
use tollgate_core::{Policy, Times};

use crate::wire::names::BoundedKey;

/// The keys of a set, in the order of its checks.
pub(crate) type SetKeys = SmallVec<[BoundedKey; 1]>;

/// A policy, and its cost for one key of a set.
pub(crate) struct Pair<'a> {
    pub(crate) policy: &'a Policy,
    /// The sum, if the set names the pair several times.
    pub(crate) cost: u64,
}

/// A set that names each pair of policy and key once, and how often to acquire it.
pub(crate) struct AcquireRequest<'a> {
    pub(crate) pairs: &'a [Pair<'a>],
    /// The key of each pair.
    pub(crate) keys: SetKeys,
    pub(crate) times: Times,
    /// Whether a slot is part of the set, also if it is in another part of a Cluster.
    pub(crate) is_claim: bool,
}

impl AcquireRequest<'_> {
    /// A hash of the keys, which finds callers that ask for the same.
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        let mut hasher = hasher.build_hasher();
        self.keys.iter().for_each(|key| hasher.write(key.as_bytes()));
        hasher.finish()
    }
}
