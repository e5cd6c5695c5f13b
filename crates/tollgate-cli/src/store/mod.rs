//! `tollgate store check`: whether a server decides as the contract of a store says.

mod noted;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{Args, Subcommand};
use tokio::runtime::Builder;
use tokio::task::block_in_place;
use tollgate_conformance::Suite;
use tollgate_core::{Algorithm, Check, Clock, Key, Policy, Quota, Store, Times};
use tollgate_redis::RedisStore;

use crate::output::{print, printable};
use crate::redis_args::{PREFIX, REDIS_HELP, RedisArgs};

use noted::{Noted, States};

pub(crate) const CHECK_AFTER_HELP: &str = "\
For servers that the tests of tollgate do not know: Dragonfly, KeyDB, Garnet, Kvrocks, or one behind a
proxy. It decides about 20,000 made-up requests by a clock of its own, and compares each answer with
exact arithmetic. That takes up to a minute. All of its keys begin with the prefix, followed by
`:check-` and a random number, and it deletes them.

The exit code is 1 if something does not hold.

Examples:
  tollgate store check redis://10.0.0.5/
  tollgate store check redis-cluster://10.0.0.5,10.0.0.6 --user tollgate";

/// Random sets and histories of each algorithm.
const STEPS: u32 = 100;
const HISTORIES: u32 = 5;

/// `tollgate store`.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Checks whether a server decides as it must, and leaves nothing behind
    #[command(next_line_help = true, after_help = CHECK_AFTER_HELP)]
    Check(CheckArgs),
}

/// `tollgate store check`.
#[derive(Debug, Args)]
struct CheckArgs {
    #[arg(value_name = "REDIS", help = REDIS_HELP, conflicts_with = "redis")]
    url: Option<String>,

    #[command(flatten)]
    redis: RedisArgs,
}

pub(crate) async fn run(args: StoreArgs) -> Result<ExitCode, String> {
    let StoreCommand::Check(CheckArgs { url, mut redis }) = args.command;
    redis.redis = url.or(redis.redis);
    let in_parts = redis.redis.as_deref().is_some_and(|url| url.contains("-cluster://"));
    let prefix =
        format!("{}:check-{:016x}", redis.prefix.as_deref().unwrap_or(PREFIX), rand::random::<u64>());
    let server = Server { redis, prefix };
    server.answers().await?;

    let contract = Suite::new().steps(1).histories(1);
    let contract = if in_parts { contract.without_atomic_sets_across_keys() } else { contract };
    let steps = |algorithm: Algorithm| {
        let suite = Suite::new().steps(STEPS).histories(HISTORIES).only_steps_of(algorithm);
        (algorithm.name(), if in_parts { suite.without_atomic_sets_across_keys() } else { suite })
    };
    let parts = [("contract", contract)].into_iter().chain(Suite::ALGORITHMS.map(steps));
    // A case that fails panics, and what it says is printed below.
    set_hook(Box::new(|_| {}));
    let mut all_hold = true;
    for (name, suite) in parts {
        // In a runtime of its own: the suite is no future that may be sent.
        let line = match block_in_place(|| server.holds(name, suite))? {
            Ok(()) => format!("{name}: holds\n"),
            Err(reason) => {
                all_hold = false;
                format!("{name}: does not hold: {}\n", printable(&reason))
            }
        };
        print(&line)?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The server that is checked.
struct Server {
    redis: RedisArgs,
    prefix: String,
}

impl Server {
    /// Fails unless the server answers.
    async fn answers(&self) -> Result<(), String> {
        let store = self.store(&self.prefix, None).await?;
        let (key, policy) = (Key::global(), Policy::new("check", Quota::per_day(1)));
        let looked = store.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK).wait().await;
        looked.map(drop).map_err(|error| format!("--redis: {error}"))
    }

    async fn store(&self, prefix: &str, clock: Option<Clock>) -> Result<RedisStore, String> {
        let builder = self.redis.builder()?.prefix(prefix);
        let builder = match clock {
            Some(clock) => builder.clock(clock),
            None => builder,
        };
        builder.connect().await.map_err(|error| format!("--redis: {error}"))
    }

    /// Runs a part of the contract, and deletes what it has written. The inner error is what the
    /// case says that fails.
    fn holds(&self, part: &str, suite: Suite) -> Result<Result<(), String>, String> {
        // Each case has a prefix of its own, and so has each part.
        let cases = Mutex::new(Vec::new());
        let next = || {
            let mut cases = cases.lock().unwrap_or_else(PoisonError::into_inner);
            let case = (format!("{}:{part}:{}", self.prefix, cases.len()), States::default());
            cases.push(case.clone());
            case
        };
        let make = async |clock| {
            let (prefix, states) = next();
            let store = self.store(&prefix, Some(clock)).await;
            Noted::new(store.unwrap_or_else(|error| panic!("{error}")), states)
        };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(suite.run(make))));
        let cases = cases.into_inner().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(async {
            for (prefix, states) in cases {
                let deleted = states.delete(&self.store(&prefix, None).await?).await;
                deleted.map_err(|error| format!("its keys stay: {error}"))?;
            }
            Ok(ran.map_err(reason))
        })
    }
}

/// The text of a panic.
fn reason(panic: Box<dyn Any + Send>) -> String {
    panic.downcast::<String>().map_or_else(|_| "a case panicked".to_owned(), |text| *text)
}
