//! What `connect` tries out, so that a configuration that cannot work fails at once.

use std::hash::{BuildHasher, RandomState};

use bb8_redis::redis::Cmd;
use tollgate_core::{Check, Key, Policy, Quota, Store, Times};

use crate::error::Error;
use crate::link::Text;
use crate::store::RedisStore;

/// Fails only for what a retry cannot fix.
pub(crate) async fn run(store: &RedisStore) -> Result<(), Error> {
    let tried = commands(store).await;
    // First the mode, since it says more than what a node of another kind answers to a script.
    store.commit().target.link.check_mode().await?;
    match tried {
        Err(error) if error.is_configuration() => Err(error),
        _ => Ok(()),
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
    store.reset(&key, &[&policy]).wait().await?;
    // The scripts are loaded by now, but a server that restarts forgets them, and then EVAL is
    // needed.
    let commit = store.commit();
    let text = commit.target.names.text(&key);
    let name = commit.target.names.of(&text, &policy);
    let eval = |_: Text| {
        let mut cmd = Cmd::new();
        // With a key: some proxies refuse a script without one.
        cmd.arg("EVAL").arg("return 1").arg(1).arg(&*name);
        Some(cmd)
    };
    commit.target.link.call(commit.slot(&text), &eval).await.map(drop)
}
