//! What `connect` tries out, so that a configuration that cannot work fails at once.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bb8_redis::redis::cmd;
use tollgate_core::{Check, Key, Policy, Quota, Store, Times};

use crate::error::Error;
use crate::link::{Link, plain};
use crate::store::RedisStore;

/// Fails only for what a retry cannot fix. Returns the `maxmemory-policy` of a server that evicts
/// limits before usage.
pub(crate) async fn run(store: &RedisStore) -> Result<Option<Arc<str>>, Error> {
    let tried = commands(store).await;
    // First the mode, since it says more than what a node of another kind answers to a script.
    store.commit().context.link.check_mode().await?;
    match tried {
        Ok(()) => Ok(eviction(&store.commit().context.link).await),
        Err(error) if error.is_configuration() => Err(error),
        Err(_) => Ok(None),
    }
}

/// The `maxmemory-policy` of a master that evicts limits before usage. `None` if there is none, or
/// if the servers do not say.
async fn eviction(link: &Link) -> Option<Arc<str>> {
    for master in link.masters().await.ok()? {
        let Some(text) = link.info(&master, "memory").await else { continue };
        if let Some(policy) = unfit_eviction(&text) {
            return Some(policy.into());
        }
    }
    None
}

/// The `maxmemory-policy` in an answer to `INFO memory`, unless usage fits it: usage is idle for
/// longer than limits are, so `volatile-lru` evicts it first. Without evictions charges fail.
fn unfit_eviction(info: &str) -> Option<&str> {
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let policy = field("maxmemory_policy")?;
    (field("maxmemory") != Some("0") && !matches!(policy, "volatile-lru" | "noeviction")).then_some(policy)
}

/// Has the server run every command that buckets need.
async fn commands(store: &RedisStore) -> Result<(), Error> {
    // A policy of its own, so that processes that connect at the same time do not disturb one
    // another.
    let name = format!("connect {:x}", RandomState::new().hash_one(0));
    let (key, policy) = (Key::from("connect"), Policy::new(&name, Quota::per_hour(1_000)));
    // Written; charged again, and its life prolonged; denied; deleted.
    for cost in [1, 1, 1_000] {
        store.acquire(&[Check::new(&policy, &key, cost)], Times::ONCE).wait().await?;
    }
    store.reset(&key, &[&policy]).wait().await?;
    // The scripts are loaded by now, but a server that restarts forgets them, and then EVAL is
    // needed.
    let commit = store.commit();
    let key = commit.context.names.bounded(&key);
    let name = commit.context.names.of(&key, &policy);
    // With a key: some proxies refuse a script without one.
    let eval = plain(cmd("EVAL").arg("return 1").arg(1).arg(&*name));
    commit.context.link.call(commit.slot(&key), &eval).await.map(drop)
}
