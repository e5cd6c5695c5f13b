//! The most frequent keys of a stream, in bounded memory.
//!
//! Space-Saving: A. Metwally, D. Agrawal, A. El Abbadi, "Efficient Computation of Frequent and
//! Top-k Elements in Data Streams", ICDT 2005. It counts K keys. A new key takes the place of the
//! key with the least count, and inherits that count as its possible error.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::mem;

use tollgate_core::Key;

use super::key_list::{KeyList, Listed};

/// Counts the keys of policies, with K places and a total of N. No count is too low, and none is
/// more than N / K too high. Every key that came more often than N / K has a place.
#[derive(Debug)]
pub(super) struct SpaceSaving {
    places: usize,
    hasher: RandomState,
    counted: Vec<Listed<Kept>>,
    /// The digest of each of them.
    digests: Vec<u64>,
    /// The place of each key, by a digest under a random secret.
    by_digest: HashMap<u64, usize>,
    /// Each place with a count that it had. Hits do not update it, so counts are compared when the
    /// least is needed.
    least: BinaryHeap<Reverse<(u64, usize)>>,
}

/// What is kept of a key.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Key(Key),
    /// The name of a long key.
    Name(Box<str>),
}

impl SpaceSaving {
    pub(super) fn new(places: usize) -> SpaceSaving {
        SpaceSaving {
            places: places.max(1),
            hasher: RandomState::new(),
            counted: Vec::new(),
            digests: Vec::new(),
            by_digest: HashMap::new(),
            least: BinaryHeap::new(),
        }
    }

    /// Counts a key `weight` times. Of a long key this takes the name, and ignores the rest.
    pub(super) fn add(&mut self, policy: usize, key: &Key, name: Option<&str>, weight: u64) {
        let digest = match name {
            Some(name) => self.hasher.hash_one((policy, name)),
            None => self.hasher.hash_one((policy, key.as_encoded())),
        };
        let entry = match self.by_digest.entry(digest) {
            Entry::Occupied(at) => {
                self.counted[*at.get()].count += weight;
                return;
            }
            Entry::Vacant(entry) => entry,
        };
        let key = name.map_or_else(|| Kept::Key(key.clone()), |name| Kept::Name(name.into()));
        let new = Listed { policy, key, count: weight, error: 0 };
        if self.counted.len() < self.places {
            let at = self.counted.len();
            entry.insert(at);
            self.least.push(Reverse((weight, at)));
            self.counted.push(new);
            self.digests.push(digest);
            return;
        }
        let Some(at) = pop_least(&mut self.least, &self.counted) else { return };
        entry.insert(at);
        let old = &mut self.counted[at];
        self.by_digest.remove(&mem::replace(&mut self.digests[at], digest));
        *old = Listed { count: old.count + weight, error: old.count, ..new };
        self.least.push(Reverse((old.count, at)));
    }

    /// The `n` keys with the highest counts.
    pub(super) fn top(&self, n: usize) -> KeyList<Kept> {
        let mut order: Vec<usize> = (0..self.counted.len()).collect();
        order.sort_unstable_by_key(|at| Reverse(self.counted[*at].count));
        let floor = match order.get(n) {
            Some(at) => self.counted[*at].count,
            // A key without a place has at most the least count. While there is room, it has none.
            None if order.len() < self.places => 0,
            None => order.last().map_or(0, |at| self.counted[*at].count),
        };
        KeyList { keys: order.iter().take(n).map(|at| self.counted[*at].clone()).collect(), floor }
    }
}

/// Takes the place with the least count.
fn pop_least(least: &mut BinaryHeap<Reverse<(u64, usize)>>, counted: &[Listed<Kept>]) -> Option<usize> {
    loop {
        let Reverse((count, at)) = least.pop()?;
        if counted[at].count == count {
            return Some(at);
        }
        least.push(Reverse((counted[at].count, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(stream: &SpaceSaving, n: usize) -> Vec<(u64, u64)> {
        stream.top(n).keys.iter().map(|counted| (counted.count, counted.error)).collect()
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut stream = SpaceSaving::new(3);
        for (key, times) in [("a", 5), ("b", 2), ("c", 9)] {
            (0..times).for_each(|_| stream.add(0, &Key::from(key), None, 1));
        }
        assert_eq!(counts(&stream, 3), [(9, 0), (5, 0), (2, 0)]);
        assert_eq!(stream.top(3).floor, 2, "a further key would replace the least");
        assert_eq!(stream.top(2).floor, 2, "the third");
        assert_eq!(SpaceSaving::new(3).top(3).floor, 0);
    }

    #[test]
    fn a_new_key_replaces_the_least_and_inherits_its_count() {
        let mut stream = SpaceSaving::new(2);
        for key in ["a", "a", "a", "b", "c"] {
            stream.add(0, &Key::from(key), None, 10);
        }
        assert_eq!(counts(&stream, 2), [(30, 0), (20, 10)]);
        stream.add(1, &Key::from("a"), None, 10);
        assert_eq!(counts(&stream, 2), [(30, 0), (30, 20)], "policies have keys of their own");
        assert_eq!(stream.by_digest.len(), 2);
    }
}
