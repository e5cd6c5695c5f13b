//! Counts by the names of policies.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many there are of each policy.
#[derive(Debug, Default)]
pub(crate) struct NameCounts(Mutex<BTreeMap<Box<str>, u64>>);

impl NameCounts {
    pub(crate) fn add(&self, policy: &str) {
        // Without the feature, `all` is not there to ask.
        if !cfg!(feature = "config") {
            return;
        }
        let mut counts = self.counts();
        match counts.get_mut(policy) {
            Some(count) => *count += 1,
            None => drop(counts.insert(policy.into(), 1)),
        }
    }

    /// Takes back one that was added.
    pub(crate) fn remove(&self, policy: &str) {
        if !cfg!(feature = "config") {
            return;
        }
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(policy) {
            *count -= 1;
            if *count == 0 {
                counts.remove(policy);
            }
        }
    }

    #[cfg(feature = "config")]
    pub(crate) fn all(&self) -> BTreeMap<Box<str>, u64> {
        self.counts().clone()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Box<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
