//! The arguments of `tollgate load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::{HeaderName, Method};

use crate::redis_args::RedisArgs;
use crate::values;

const URL_HELP: &str = "\
The server to load

http://HOST[:PORT]/PATH      HTTP; https with TLS
grpc://HOST[:PORT]/PACKAGE.SERVICE/METHOD
                             a unary method of gRPC; grpcs with TLS

{key} in the URL is the number of the key";

pub(crate) const AFTER_HELP: &str = "\
A response with status 429, or grpc-status 8, is denied.
One with a status below 400, or with grpc-status 0, is allowed.

A request to a Redis is charged to all policies or to none. The prefix of key names is tollgate-load.

Exit codes: 0 if the load has run, 1 if a window exceeded the threshold, 2 for bad arguments and
for servers that cannot be reached

Examples:
  tollgate load http://127.0.0.1:3000/ -c 50 -n 10000 --keys 100 -H 'x-user: {key}'
  tollgate load grpc://127.0.0.1:3000/helloworld.Greeter/SayHello --duration 10s --threshold 20
  tollgate load --redis 127.0.0.1:6379 --policy 'api=100/10s,algorithm=sliding-log' -n 10000";

pub(crate) const USAGE: &str = "\
tollgate load [OPTIONS] <URL>
       tollgate load [OPTIONS] --redis <REDIS> --policy <POLICY>...";

/// The longest window, as that of a quota.
const MOST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// `tollgate load`.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[arg(value_name = "URL", required_unless_present = "redis", conflicts_with_all = ["redis", "policies", "user", "prefix"], help = URL_HELP)]
    pub(crate) url: Option<String>,

    /// Requests in flight at once
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) concurrency: u32,

    /// Requests in all [default: 1000, or no limit with --duration]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) iterations: Option<u64>,

    /// Ends the load after this time, such as 10s or 5m
    #[arg(long, value_name = "D", value_parser = values::time)]
    pub(crate) duration: Option<Duration>,

    /// The number of keys
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,

    /// How the requests are divided among the keys
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub(crate) distribution: Distribution,

    /// A header of each request; {key} in its value is the number of the key, from 1; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) headers: Vec<(HeaderName, String)>,

    /// The method of requests [default: GET, or POST with --body]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<Method>,

    /// The body of each request, or the message of a gRPC call; @FILE reads it from a file
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,

    /// Speak HTTP/2 from the first byte; with TLS the server chooses the version
    #[arg(long)]
    pub(crate) http2: bool,

    /// The most requests of one key that may be admitted in a window; more end with exit code 1
    #[arg(long, value_name = "N")]
    pub(crate) threshold: Option<u64>,

    /// The length of a window; at most 366d
    #[arg(long, value_name = "D", default_value = "1s", value_parser = window)]
    pub(crate) window: Duration,

    /// Which windows are counted
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub(crate) windows: Windows,

    /// Draw what was admitted in each window
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) redis: RedisArgs,

    #[arg(long = "policy", value_name = "POLICY", requires = "redis", help = values::POLICY_HELP)]
    pub(crate) policies: Vec<String>,
}

/// `--distribution`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// All keys get the same
    #[default]
    Uniform,
    /// By Zipf's law: the n-th key gets 1/n of what the first one gets
    Zipf,
    /// The first key gets nine of ten requests
    Hot,
}

/// `--windows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Windows {
    /// Every window, wherever it begins
    #[default]
    Sliding,
    /// Windows that begin at multiples of their length since 1970 (UTC)
    Aligned,
}

fn window(text: &str) -> Result<Duration, String> {
    let window = values::time(text)?;
    if window <= MOST { Ok(window) } else { Err("expected at most 366d".to_owned()) }
}

fn header(text: &str) -> Result<(HeaderName, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is not the name of a header"))?;
    Ok((name, value.trim().to_owned()))
}
