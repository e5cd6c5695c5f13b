//! Questions about the last use and the total of each key.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::{Key, KeyTotal, UsageError, UsageTotals};

/// Asks a store for the keys of policies that [track usage](crate::Policy::track_usage): the
/// oldest, the newest, and those with the highest totals. See [the
/// module](super#totals).
///
/// Each question reads the usage of all keys of the policy. It holds no more than the rows that it
/// returns.
#[derive(Clone, Debug)]
pub struct Totals<S>(S);

impl<S: UsageTotals> Totals<S> {
    /// Asks this store: a [`MemoryStore`](crate::MemoryStore) or a store in Redis. Pass a clone of
    /// the store itself, without its wrappers.
    pub fn new(store: S) -> Totals<S> {
        Totals(store)
    }

    /// Returns the last use and the total of one key under the policy with this name. `None` if it
    /// was not used, or is forgotten.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer.
    pub async fn of(&self, policy: &str, key: &Key) -> Result<Option<KeyTotal>, UsageError> {
        self.0.total_of(policy, key).await
    }

    /// Returns the `n` keys that were not used for the longest time, with the oldest first.
    ///
    /// For the next page, pass the last row of the page before it as `after`.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer.
    pub async fn oldest(
        &self,
        policy: &str,
        n: usize,
        after: Option<&KeyTotal>,
    ) -> Result<Vec<KeyTotal>, UsageError> {
        self.first(policy, n, after, |total| total.last_use.as_micros()).await
    }

    /// [`Totals::oldest`] for the keys that were used last, with the newest first.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer.
    pub async fn newest(
        &self,
        policy: &str,
        n: usize,
        after: Option<&KeyTotal>,
    ) -> Result<Vec<KeyTotal>, UsageError> {
        self.first(policy, n, after, |total| !total.last_use.as_micros()).await
    }

    /// [`Totals::oldest`] for the keys with the highest totals, with the highest first.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer.
    pub async fn by_total(
        &self,
        policy: &str,
        n: usize,
        after: Option<&KeyTotal>,
    ) -> Result<Vec<KeyTotal>, UsageError> {
        self.first(policy, n, after, |total| !total.total).await
    }

    /// The `n` rows with the least rank. Rows of the same rank are in the order of their keys.
    async fn first(
        &self,
        policy: &str,
        n: usize,
        after: Option<&KeyTotal>,
        rank: fn(&KeyTotal) -> u64,
    ) -> Result<Vec<KeyTotal>, UsageError> {
        let place = |total: &KeyTotal| (rank(total), total.key.clone());
        let after = after.map(&place);
        let mut rows = BTreeMap::new();
        let mut ranks: HashMap<String, u64> = HashMap::new();
        let keep = |total: KeyTotal| {
            // A scan may pass a key again, with newer values.
            if let Some(rank) = ranks.remove(&total.key) {
                rows.remove(&(rank, total.key.clone()));
            }
            let at = place(&total);
            if after.as_ref().is_some_and(|after| at <= *after) {
                return;
            }
            ranks.insert(total.key.clone(), at.0);
            rows.insert(at, total);
            if rows.len() > n
                && let Some(((_, key), _)) = rows.pop_last()
            {
                ranks.remove(&key);
            }
        };
        self.0.scan_totals(policy, keep).await?;
        Ok(rows.into_values().collect())
    }
}
