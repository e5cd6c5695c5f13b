//! `tollgate usage`: what the processes of a fleet counted, and what policies tracked.

mod args;
mod series;
mod totals;

use std::process::ExitCode;

use humantime::format_duration;
use tollgate::usage::{KeyUsage, Usage, UsageOf};
use tollgate_core::{Key, UsageError};
use tollgate_redis::RedisStore;

pub(crate) use self::args::UsageArgs;
use self::args::{Question, SeriesArgs, Source, TopArgs};
use self::totals::Order;
use crate::chart::human;
use crate::redis_args::{PREFIX, TIMEOUT};
use crate::table::table;
use crate::{key_spec, print};

/// Prints the answer. Errors are one line.
pub(crate) async fn run(args: UsageArgs) -> Result<ExitCode, String> {
    let text = match &args.question {
        Question::Top(args) => top(args, "allowed").await?,
        Question::Denied(args) => top(args, "denied").await?,
        Question::Oldest(args) => totals::table(args, Order::Oldest).await?,
        Question::Newest(args) => totals::table(args, Order::Newest).await?,
        Question::Total(args) => totals::table(args, Order::Total).await?,
        Question::Series(args) => series(args).await?,
    };
    print(&text);
    Ok(ExitCode::SUCCESS)
}

async fn top(args: &TopArgs, outcome: &str) -> Result<String, String> {
    let (usage, last) = (args.source.usage().await?, args.source.last);
    let keys = usize::try_from(args.keys).unwrap_or(usize::MAX);
    let top = if outcome == "denied" {
        usage.top_denied(keys, last).await
    } else {
        usage.top_allowed(keys, last).await
    };
    let top = top.map_err(failed)?;
    if top.is_empty() {
        return Ok(args.source.nothing(outcome));
    }
    let row = |of: &KeyUsage| {
        let [count, at_least, at_most] = [of.count, of.at_least, of.at_most].map(human);
        [printable(&of.key), printable(&of.policy), count, at_least, at_most]
    };
    let rows: Vec<_> = top.iter().map(row).collect();
    Ok(table(&["key", "policy", outcome, "at least", "at most"], &rows))
}

async fn series(args: &SeriesArgs) -> Result<String, String> {
    let key = args.subject.key.as_deref().map(key).transpose()?;
    let policy = args.subject.policy.as_deref().unwrap_or_default();
    let (of, name) = match &key {
        Some((key, text)) => (UsageOf::Key(key), format!("key {text}")),
        None => (UsageOf::Policy(policy), format!("policy {policy}")),
    };
    let minutes = args.source.usage().await?.series(of, args.source.last).await.map_err(failed)?;
    if minutes.iter().all(|minute| minute.allowed == 0 && minute.denied == 0) {
        return Ok(args.source.nothing(&format!("counted of {}", printable(&name))));
    }
    Ok(format!("{}{}", printable(&name), series::chart(&minutes)))
}

/// Parses a key, and returns it with its text.
fn key(text: &str) -> Result<(Key, String), String> {
    if text.starts_with('~') {
        return Err(format!("{text} is a digest: give the key itself, and the --secret if there is one"));
    }
    let key = key_spec::parse(text)?;
    let text = key_spec::text(&key);
    Ok((key, text))
}

impl Source {
    async fn usage(&self) -> Result<Usage<RedisStore>, String> {
        self.redis.connect(PREFIX, TIMEOUT).await.map(Usage::new)
    }

    fn nothing(&self, what: &str) -> String {
        let prefix = self.redis.prefix.as_deref().unwrap_or(PREFIX);
        let last = format_duration(self.last);
        format!("nothing was {what} in the last {last}, under the prefix {prefix}\n")
    }
}

fn failed(error: UsageError) -> String {
    format!("--redis: {error}")
}

/// Replaces control characters, which a page in Redis or an argument may contain.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
