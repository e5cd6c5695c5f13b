//! The command line of `tollgate usage`.

use std::time::Duration;

use clap::{Args, Subcommand};
use humantime::format_duration;
use tollgate::usage::top_keys::TopKeys;
use tollgate_core::UsageError;
use tollgate_redis::RedisStore;

use crate::redis_args::{PREFIX, RedisArgs};
use crate::values::time;

const TOP_AFTER_HELP: &str = "\
A decision counts as one, whatever it costs. The true count lies between \"at least\" and \"at most\".

Only services that count usage are seen: see StoreExt::count_usage of the crate tollgate, with its
feature top-keys. They store their counts every 10 seconds, and Redis keeps them for an hour, by
default.

The Redis is 127.0.0.1, and the prefix of key names is tollgate, unless given.";

const SERIES_AFTER_HELP: &str = "\
A decision counts as one, whatever it costs. A key counts in the minutes in which it was among the
top keys of a process. Up to 60 rows are drawn: for longer times a row covers several minutes.

Only services that count usage are seen: see StoreExt::count_usage of the crate tollgate, with its
feature top-keys. They store their counts every 10 seconds, and Redis keeps them for an hour, by
default.

The Redis is 127.0.0.1, and the prefix of key names is tollgate, unless given.

Examples:
  tollgate usage series --policy api --last 15m
  tollgate usage series --key '@192.0.2.1' --redis redis://10.0.0.5/";

const TOTALS_AFTER_HELP: &str = "\
The last use of a key, and the total of the units that it was granted and did not give back. Both
are exact.

Only policies that track usage are seen: see Policy::track_usage of the crate tollgate. Redis keeps
a key for 30 days after its last use, by default. This scans all key names of the Redis, in small
steps.

The Redis is 127.0.0.1, and the prefix of key names is tollgate, unless given.

Examples:
  tollgate usage oldest --policy api --redis redis://10.0.0.5/
  tollgate usage total --policy api -n 100";

/// The longest time that is read.
const MOST: Duration = Duration::from_secs(7 * 24 * 3_600);

/// `tollgate usage`.
#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(subcommand)]
    pub(super) question: Question,
}

#[derive(Debug, Subcommand)]
pub(super) enum Question {
    /// Lists the keys that were allowed most often
    #[command(next_line_help = true, after_help = TOP_AFTER_HELP)]
    Top(TopArgs),

    /// Lists the keys that were denied most often
    #[command(next_line_help = true, after_help = TOP_AFTER_HELP)]
    Denied(TopArgs),

    /// Lists the keys of a policy that were not used for the longest time
    #[command(next_line_help = true, after_help = TOTALS_AFTER_HELP)]
    Oldest(TotalsArgs),

    /// Lists the keys of a policy that were used last
    #[command(next_line_help = true, after_help = TOTALS_AFTER_HELP)]
    Newest(TotalsArgs),

    /// Lists the keys of a policy that used most in all
    #[command(next_line_help = true, after_help = TOTALS_AFTER_HELP)]
    Total(TotalsArgs),

    /// Draws how often a policy or a key was allowed and denied, minute by minute
    #[command(next_line_help = true, after_help = SERIES_AFTER_HELP)]
    Series(SeriesArgs),
}

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// The most keys to list
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keys: u32,

    #[command(flatten)]
    pub(super) source: UsageSource,
}

#[derive(Debug, Args)]
pub(super) struct TotalsArgs {
    /// The name of the policy, which has to track usage
    #[arg(long, value_name = "NAME")]
    pub(super) policy: String,

    /// The most keys to list
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keys: u32,

    #[command(flatten)]
    pub(super) redis: RedisArgs,
}

#[derive(Debug, Args)]
pub(super) struct SeriesArgs {
    #[command(flatten)]
    pub(super) subject: SeriesSubject,

    #[command(flatten)]
    pub(super) source: UsageSource,
}

/// One of the two.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct SeriesSubject {
    /// All keys of the policy with this name
    #[arg(long, value_name = "NAME")]
    pub(super) policy: Option<String>,

    #[arg(long, value_name = "KEY", help = crate::values::KEY_HELP)]
    pub(super) key: Option<String>,
}

/// Which counts are read.
#[derive(Debug, Args)]
pub(super) struct UsageSource {
    /// The time until now, such as 15m or 24h; at most 7d
    #[arg(long, value_name = "D", default_value = "1h", value_parser = at_most_a_week)]
    pub(super) last: Duration,

    #[command(flatten)]
    pub(super) redis: RedisArgs,
}

fn at_most_a_week(text: &str) -> Result<Duration, String> {
    let last = time(text)?;
    if last > MOST { Err("at most 7d can be read".to_owned()) } else { Ok(last) }
}

impl UsageSource {
    pub(super) async fn usage(&self) -> Result<TopKeys<RedisStore>, String> {
        self.redis.connect(PREFIX).await.map(TopKeys::new)
    }

    pub(super) fn nothing(&self, what: &str) -> String {
        let prefix = self.redis.prefix.as_deref().unwrap_or(PREFIX);
        let last = format_duration(self.last);
        format!("nothing was {what} in the last {last}, under the prefix {prefix}\n")
    }
}

pub(super) fn failed(error: UsageError) -> String {
    format!("--redis: {error}")
}
