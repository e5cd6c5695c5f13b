//! The keys of one outcome with the highest counts.

/// The keys of one outcome with the highest counts, in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyList<K> {
    pub(super) keys: Vec<Listed<K>>,
    /// The most that a key has that is not listed.
    pub(super) floor: u64,
}

/// A key of a policy, and how often it was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed<K> {
    /// The number of its policy in its page.
    pub(super) policy: usize,
    pub(super) key: K,
    pub(super) count: u64,
    /// By how much the count may be too high.
    pub(super) error: u64,
}

impl<K> Default for KeyList<K> {
    fn default() -> KeyList<K> {
        KeyList { keys: Vec::new(), floor: 0 }
    }
}

impl<K> KeyList<K> {
    /// The keys of both lists, which have none in common.
    pub(super) fn with(mut self, other: KeyList<K>) -> KeyList<K> {
        self.keys.extend(other.keys);
        KeyList { floor: self.floor.max(other.floor), ..self }
    }

    /// The same list with other names of keys.
    pub(super) fn named<N>(self, name: impl Fn(K) -> N) -> KeyList<N> {
        let named = |Listed { policy, key, count, error }| Listed { policy, key: name(key), count, error };
        KeyList { keys: self.keys.into_iter().map(named).collect(), floor: self.floor }
    }
}
