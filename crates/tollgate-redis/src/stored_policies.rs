//! The policies that hold a state of a key, by the names of keys in Redis.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_core::{Key, Policy};

use crate::commit::CallContext;
use crate::error::Error;
use crate::question::{ask, scan};
use crate::store::RedisStore;

/// The policies that hold a state of a key: see [`RedisStore::stored_policies`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredPolicies {
    /// The policies, in the order of their scopes. Each has the largest limit or burst, since names
    /// contain neither: see [`Policy::from_scope`].
    pub policies: Vec<Policy>,
    /// What follows the key in names of another form: those of another version of tollgate, or of
    /// the other [layout](crate::SlidingLogLayout) of logs. It may be any text, and invalid UTF-8
    /// is replaced.
    pub others: Vec<String>,
}

impl RedisStore {
    /// Lists the policies that hold a state of a key, for tools that look at a key or reset it.
    ///
    /// Scans all key names of the server, in steps of 1,000. In a Cluster that is the master that
    /// owns the key's hash slot. While a hash slot moves or a replica takes over, some policies may
    /// be missed.
    ///
    /// ```no_run
    /// use tollgate_core::{Key, Store};
    /// use tollgate_redis::RedisStore;
    ///
    /// # async fn example() -> Result<(), tollgate_redis::Error> {
    /// let store = RedisStore::connect("redis://127.0.0.1/").await?;
    /// let key = Key::from("alice");
    /// let stored = store.stored_policies(&key).await?;
    /// store.reset(&key, &stored.policies.iter().collect::<Vec<_>>()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if Redis does not answer, or if the user has no permission for `SCAN`.
    pub async fn stored_policies(&self, key: &Key) -> Result<StoredPolicies, Error> {
        let context = &self.commit().context;
        let key = context.names.bounded(key);
        let (hash_slot, pattern) = (self.commit().hash_slot(&key), context.names.pattern_of(&key));
        let master = async move |context: Arc<CallContext>| context.link.master_of(hash_slot).await;
        let master = ask(context, master).await?;
        let (mut names, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let (master, pattern) = (master.clone(), pattern.clone());
            let step =
                async move |context: Arc<CallContext>| scan(&context.link, &master, &pattern, cursor).await;
            let (next, found) = ask(context, step).await?;
            names.extend(found);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        let mut stored = StoredPolicies::default();
        for text in names.iter().filter_map(|name| context.names.of_state(&key, name)) {
            match context.names.policy(text) {
                Some(policy) => stored.policies.push(policy),
                None => stored.others.push(String::from_utf8_lossy(text).into_owned()),
            }
        }
        Ok(stored)
    }
}
