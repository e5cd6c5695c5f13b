//! The command line for clap. `config.rs` interprets the values.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use tollgate::Fields;

const RULE_HELP: &str = "\
A rule; repeat the option for several rules: a request is charged to all of them or to none

NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]

  WINDOW     s, m, h, d, or a whole number with ms, s, m, h, d: 10s
  burst      the most units at once, for gcra (default: the limit) and leaky-bucket (default: 1)
  algorithm  gcra (default), leaky-bucket, fixed-window, fixed-window-aligned, sliding-window, sliding-buckets,
             sliding-log
  key        requests with the same key count together: ip (default), bearer (the token of Authorization),
             basic-user (the user id in it), header:NAME, cookie:NAME, global, path;
             a+b counts by both together, a|b by the first that the request has, and + binds tighter;
             a caller can invent tokens, users, headers and cookies: add a rule by ip
  max-wait   how long leaky-bucket may delay a request (default: the window)

Two names have a meaning of their own, and any algorithm but leaky-bucket:
  tokens     POST /chat/ESTIMATE/USED and POST /stream/ESTIMATE/CHUNKS reserve the estimate, and settle it to what was
             used; other routes charge it like any rule; requests that it applies to get no lease
  login      counts failures of POST /login, whose form field password must be 'open sesame'; it applies to no other
             route; log-ins with one form field user are checked one at a time, so that right ones at once all pass

Default: api=10/10s, unless --in-flight is given
Examples: api=10/10s   burst=20/s,burst=50   'user=1000/d,algorithm=sliding-window,key=header:x-api-key'";

const IN_FLIGHT_HELP: &str = "\
A limit of requests in flight, decided together with the rules; repeatable

NAME=N[,key=K][,ttl=D][,max-wait=D]

  N          how many requests at once; each holds a slot until the body of its response ends
  key        as for --rule
  ttl        with Redis, how long the slots of a killed server stay taken (default: 15s); in memory it has no effect
  max-wait   how long a request may wait for a slot (default: not at all)

Try GET /slow/MS and GET /drip/MS, which take that many milliseconds.
Examples: exports=2   'exports=2,key=header:x-api-key,max-wait=5s'";

const FILE_HELP: &str = "\
Rules from a file in TOML, or in JSON if its name ends in .json, instead of the options for rules

When the file changes, its rules hold. A file with a mistake changes nothing: /dashboard and the log show it, and
tollgate_rules_error of --metrics is 1. The fields of a rule are those of the module tollgate::config, which can name these:

  transfer   for cost: the amount of POST /transfer/AMOUNT, and 1 for other requests
  estimate   for reserve: the estimate of POST /chat and /stream, in a rule with the name tokens
  one        for reserve: 1
  failed     for count-if: log-ins with a wrong password
  not-login  for exempt: all requests but POST /login
  x-class    for tiers and leaving: the value of the header x-class
  of-header  for quota-by: the header x-limit, such as 100/min, unlimited, none or own

No rule can have the name login-turn.

Example:

  [[rule]]
  name = \"api\"
  quota = \"10/10s burst 20\"
  by = \"ip\"
  cost = \"transfer\"";

const STORE_HELP: &str = "\
Where the usage is stored

memory                                the default: each server counts separately
redis://[USER:PW@]HOST[:PORT][/DB]    a Redis or Valkey: all servers that use it count together
redis-sentinel://HOST,.../MASTER      the master that these Sentinels name
redis-cluster://HOST,...              a Cluster";

/// A server to try tollgate with. Its page /dashboard shows live what is limited, and sends
/// requests.
#[derive(Debug, Parser)]
#[command(name = "playground", after_help = "Try: playground --rule burst=3/s --rule daily=100/d")]
pub(crate) struct Cli {
    /// Address to listen on; port 0 selects a free port. Everyone who reaches it can open
    /// /dashboard, which shows keys
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    pub(crate) listen: String,

    /// A name or an address under which browsers open /dashboard, in addition to localhost and the
    /// address to listen on; repeat it for several
    #[arg(long = "host", value_name = "NAME")]
    pub(crate) hosts: Vec<String>,

    /// Address on which to serve /metrics for Prometheus; port 0 selects a free port. Needs cargo's
    /// `--features metrics` [default: none]
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,

    #[arg(long, value_name = "STORE", default_value = "memory", hide_default_value = true, help = STORE_HELP)]
    pub(crate) store: String,

    /// How many keys the memory holds at most [default: 1000000]
    #[arg(long, value_name = "KEYS")]
    pub(crate) max_keys: Option<usize>,

    /// The prefix of key names in Redis: services with different prefixes count separately
    /// [default: tollgate]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<String>,

    /// Stores keys in Redis as digests under this secret, so that Redis holds no address and no API
    /// key; servers that count together need the same secret
    #[arg(long, value_name = "SECRET")]
    pub(crate) secret: Option<String>,

    /// A file with the password for Redis, read before each connection: for passwords that change
    /// while the server runs. The user is that of the URL
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// What happens to requests while Redis fails [default: closed]
    #[arg(long, value_name = "POLICY", value_enum)]
    pub(crate) on_failure: Option<FailurePolicy>,

    /// The share of every quota that this server grants by itself with --on-failure fallback: 1/N
    /// on each of N servers [default: 1/1]
    #[arg(long, value_name = "1/N")]
    pub(crate) share: Option<String>,

    /// How long Redis may take to answer, such as 50ms; after that the call fails [default: 1s]
    #[arg(long, value_name = "D")]
    pub(crate) timeout: Option<String>,

    /// Keeps at most N refunds, releases and charges that Redis has not executed while it fails,
    /// and sends them once it answers [default: none]
    #[arg(long, value_name = "N")]
    pub(crate) keep_corrections: Option<usize>,

    /// A circuit breaker: after N failures in a row, send nothing to Redis for D, then one probe:
    /// 5/500ms. The timeout should not exceed D [default: none]
    #[arg(long, value_name = "N/D")]
    pub(crate) breaker: Option<String>,

    /// Leases: fetch up to N units of a busy key ahead of demand, for the time D: 64/250ms
    /// [default: none]
    #[arg(long, value_name = "N/D")]
    pub(crate) lease: Option<String>,

    /// Remember denials of up to this many keys, without asking Redis again [default: none]
    #[arg(long, value_name = "KEYS")]
    pub(crate) deny_cache: Option<usize>,

    /// Append a line of JSON for each decision to this file, for `tollgate replay`; keys are
    /// digests
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,

    #[arg(long = "rule", value_name = "RULE", help = RULE_HELP)]
    pub(crate) rules: Vec<String>,

    #[arg(long = "rules", value_name = "FILE", help = FILE_HELP)]
    #[arg(conflicts_with_all = ["rules", "in_flight", "block", "leaving", "missing_key"])]
    pub(crate) rules_file: Option<PathBuf>,

    #[arg(long, value_name = "LIMIT", help = IN_FLIGHT_HELP)]
    pub(crate) in_flight: Vec<String>,

    /// Limits jobs of each key, on the store of the server:
    /// NAME=N[,key=path][,ttl=D][,linger=D]. POST and DELETE /jobs/KEY/ID take and end one, GET
    /// /jobs/KEY lists them. ttl is how long one is held (default: 1h), linger how long it counts
    /// after its end (default: 0s) [default: none]
    #[arg(long, value_name = "JOBS")]
    pub(crate) jobs: Option<String>,

    /// Blocks a key for a time after so many denials by a rule: login=20/15m; repeat it for several
    /// rules
    #[arg(long, value_name = "RULE=DENIALS/TIME")]
    pub(crate) block: Vec<String>,

    /// Makes requests with the header 'x-class: batch' leave so many units of a rule to others:
    /// api=200; repeat it for several rules
    #[arg(long, value_name = "RULE=UNITS")]
    pub(crate) leaving: Vec<String>,

    /// Network of proxies to trust for client addresses, such as 10.0.0.0/8; repeat it for several
    #[arg(long, value_name = "CIDR")]
    pub(crate) trust: Vec<String>,

    /// Header in which those proxies write the client's address, such as x-forwarded-for
    #[arg(long, value_name = "NAME")]
    pub(crate) client_ip_header: Option<String>,

    /// Response fields that show clients their quota
    #[arg(long, value_name = "STYLE", value_enum, default_value_t)]
    pub(crate) headers: Style,

    /// What happens to a request that lacks the header or cookie it is counted by
    #[arg(long, value_name = "ACTION", value_enum, default_value_t)]
    pub(crate) missing_key: Action,
}

/// `--on-failure`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailurePolicy {
    /// They pass without limit and without RateLimit fields: a caller who can make Redis late
    /// switches the limits off
    Open,
    /// They are refused with 503
    #[default]
    Closed,
    /// This server grants a share of every quota by itself: recommended for a fleet, with --share
    Fallback,
}

/// `--headers`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Style {
    /// RateLimit and RateLimit-Policy
    #[default]
    Ietf,
    /// X-RateLimit-*, the reset as a time since 1970
    XEpoch,
    /// X-RateLimit-*, the reset in seconds from now
    XDelta,
    /// Those of ietf and x-epoch
    #[value(name = "ietf+x-epoch")]
    IetfAndXEpoch,
    /// Those of ietf and x-delta
    #[value(name = "ietf+x-delta")]
    IetfAndXDelta,
    /// RateLimit-Limit, -Remaining and -Reset, of the draft's versions up to 06
    #[value(name = "draft-06")]
    Draft06,
    /// RateLimit: limit=, remaining=, reset=, of the draft's version 07
    #[value(name = "draft-07")]
    Draft07,
    /// Only Retry-After, on refusals
    None,
}

impl From<Style> for Fields {
    fn from(style: Style) -> Fields {
        match style {
            Style::Ietf => Fields::Ietf,
            Style::XEpoch => Fields::XEpoch,
            Style::XDelta => Fields::XDelta,
            Style::IetfAndXEpoch => Fields::IetfAndXEpoch,
            Style::IetfAndXDelta => Fields::IetfAndXDelta,
            Style::Draft06 => Fields::Draft06,
            Style::Draft07 => Fields::Draft07,
            Style::None => Fields::None,
        }
    }
}

/// `--missing-key`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Action {
    /// It is refused
    #[default]
    Refuse,
    /// The rule does not apply to it
    Skip,
    /// All such requests are counted together
    Share,
}
