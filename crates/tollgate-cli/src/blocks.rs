//! `tollgate block`, `unblock` and `blocked`: keys that a policy blocks for a time.

use std::process::ExitCode;

use clap::Args;
use tollgate_core::{Check, Key, Policy, Quota, Store, TextError, TimeSpan, Times, Wait};
use tollgate_redis::RedisStore;

use crate::output::print;
use crate::redis_args::{PREFIX, RedisArgs};
use crate::table::table;
use crate::{keys, values};

pub(crate) const BLOCK_AFTER_HELP: &str = "\
A block that goes on ends when it would have. Services refuse the key until the block ends, if their
policy of that name blocks keys (Policy::block_after), for whatever time.

Example:
  tollgate block alice --policy log-ins --for 15m --redis redis://10.0.0.5/";

pub(crate) const FOUND_AFTER_HELP: &str = "\
Without --policy, this is for the blocks of all policies. It scans all key names of the server, in
small steps.

Examples:
  tollgate blocked alice --redis redis://10.0.0.5/
  tollgate unblock alice --policy log-ins";

/// `tollgate block`.
#[derive(Debug, Args)]
pub(crate) struct BlockArgs {
    #[arg(value_name = "KEY", help = values::KEY_HELP)]
    key: String,

    #[command(flatten)]
    redis: RedisArgs,

    /// The name of the policy
    #[arg(long, value_name = "NAME")]
    policy: String,

    /// For how long the key is blocked, such as 15m
    #[arg(long = "for", value_name = "TIME")]
    time: String,
}

/// `tollgate unblock` and `tollgate blocked`.
#[derive(Debug, Args)]
pub(crate) struct FoundArgs {
    #[arg(value_name = "KEY", help = values::KEY_HELP)]
    key: String,

    #[command(flatten)]
    redis: RedisArgs,

    /// Only the policy of this name
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

/// Blocks the key now.
pub(crate) async fn block(args: &BlockArgs) -> Result<ExitCode, String> {
    let key = values::key(&args.key)?;
    let block = parse(&args.policy, &args.time)?;
    let store = args.redis.connect(PREFIX).await?;
    store.block(&block, &key, None).await.map_err(|error| format!("--redis: {error}"))?;
    show(&store, &key, &[block]).await
}

/// Lifts blocks of the key. What it has used stays.
pub(crate) async fn unblock(args: &FoundArgs) -> Result<ExitCode, String> {
    let (store, key, blocks) = found(args).await?;
    let all: Vec<&Policy> = blocks.iter().collect();
    store.reset(&key, &all).await.map_err(|error| format!("--redis: {error}"))?;
    let lines = blocks.iter().map(|block| format!("unblocked by {}\n", block.name()));
    let lines: String = if blocks.is_empty() { NONE.to_owned() } else { lines.collect() };
    print(&format!("key {}\n{lines}", key.to_readable())).map(|()| ExitCode::SUCCESS)
}

/// Prints which policies block the key, and for how much longer.
pub(crate) async fn blocked(args: &FoundArgs) -> Result<ExitCode, String> {
    let (store, key, blocks) = found(args).await?;
    show(&store, &key, &blocks).await
}

const NONE: &str = "no policy blocks it\n";

fn parse(name: &str, time: &str) -> Result<Policy, String> {
    let of = |error: &dyn ToString| format!("--policy {name:?} --for {time:?}: {}", error.to_string());
    let TimeSpan(time) = time.parse().map_err(|error: TextError| of(&error))?;
    let policy = Policy::try_new(name, Quota::per_second(1)).map_err(|error| of(&error))?;
    let policy = policy.try_block_after(1, time).map_err(|error| of(&error))?;
    policy.numbers().block().ok_or_else(|| of(&"no block"))
}

/// The blocks that a Redis holds of the key.
async fn found(args: &FoundArgs) -> Result<(RedisStore, Key, Vec<Policy>), String> {
    let key = values::key(&args.key)?;
    let store = args.redis.connect(PREFIX).await?;
    let mut stored = store.stored_policies(&key).await.map_err(|error| format!("--redis: {error}"))?.policies;
    stored.retain(|policy| {
        policy.numbers().is_block() && args.policy.as_ref().is_none_or(|name| policy.name() == name)
    });
    Ok((store, key, stored))
}

async fn show(store: &RedisStore, key: &Key, blocks: &[Policy]) -> Result<ExitCode, String> {
    let mut rows = Vec::new();
    for block in blocks {
        let look = store.acquire(&[Check::new(block, key, 1)], Times::LOOK).wait().await;
        if let Wait::For(wait) = look.map_err(|error| format!("--redis: {error}"))?.wait() {
            rows.push([block.name().to_owned(), keys::span(wait)]);
        }
    }
    let shown = if rows.is_empty() { NONE.to_owned() } else { table(&["policy", "blocked for"], &rows) };
    print(&format!("key {}\n{shown}", key.to_readable())).map(|()| ExitCode::SUCCESS)
}
