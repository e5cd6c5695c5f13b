//! What `connect` tries out, so that a configuration that cannot work fails at once.

use std::hash::{BuildHasher, RandomState};

use bb8_redis::redis::cmd;
use tollgate_core::{Check, Key, Policy, Quota, Store, Times};

use crate::error::Error;
use crate::eviction::Eviction;
use crate::link::plain;
use crate::store::RedisStore;

/// Fails only for what a retry cannot fix. Warns of a server that evicts limits in use.
pub(crate) async fn run(store: &RedisStore) -> Result<Option<Eviction>, Error> {
    let tried = commands(store).await;
    // First the mode, since it says more than what a node of another kind answers to a script.
    store.commit().context.link.check_mode().await?;
    match tried {
        Ok(()) => {
            let eviction = Eviction::find(&store.commit().context.link).await;
            Ok(eviction.inspect(Eviction::warn))
        }
        Err(error) if error.is_configuration() => Err(error),
        Err(_) => Ok(None),
    }
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
    store.reset(&key, &[&policy]).await?;
    // The scripts are loaded by now, but a server that restarts forgets them, and then EVAL is
    // needed.
    let commit = store.commit();
    let key = commit.context.names.bounded(&key);
    let name = commit.context.names.of(&key, &policy);
    // With a key: some proxies refuse a script without one.
    let eval = plain(cmd("EVAL").arg("return 1").arg(1).arg(&*name));
    commit.context.link.call(commit.hash_slot(&key), &eval).await.map(drop)
}
