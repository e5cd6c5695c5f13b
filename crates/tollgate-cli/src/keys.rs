//! `tollgate look`, `tollgate reset` and `tollgate credit`: the state of one key.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use humantime::format_duration;
use tollgate_core::{Algorithm, Check, Key, Policy, Status, Store, TimeSpan, Times, Wait};
use tollgate_redis::{RedisStore, StoredPolicies};

use crate::chart::human;
use crate::output::{print, printable};
use crate::redis_args::{PREFIX, RedisArgs};
use crate::table::table;
use crate::values;

pub(crate) const LOOK_AFTER_HELP: &str = "\
Without --policy, this finds the policies that hold a state of the key. It scans all key names of
the server, in small steps. A Redis stores no limits, so it cannot show what is left.
Nothing is charged.

The Redis is 127.0.0.1, and the prefix of key names is tollgate, unless given.

Examples:
  tollgate look '@192.0.2.1' --redis redis://10.0.0.5/
  tollgate look alice --policy 'api=100/m' --policy 'daily=5000/d,algorithm=sliding-log'";

pub(crate) const RESET_AFTER_HELP: &str = "\
Without --policy, this resets all policies that hold a state of the key. It scans all key names of
the server, in small steps. The limit of a --policy has no effect.

The Redis is 127.0.0.1, and the prefix of key names is tollgate, unless given.

Examples:
  tollgate reset '@192.0.2.1' --redis redis://10.0.0.5/
  tollgate reset alice --policy 'api=100/m'";

pub(crate) const CREDIT_AFTER_HELP: &str = "\
Debt is paid first, then the newest units come back, and never more than were used. What is tracked
of the key stays. Nothing is sent again: look before you repeat it.

The Redis is 127.0.0.1, and the prefix of key names is tollgate, unless given.

Example:
  tollgate credit alice 500 --policy 'tokens=1000/d' --redis redis://10.0.0.5/";

const HEAD: [&str; 8] =
    ["policy", "algorithm", "window", "limit", "used", "left", "next request in", "full again in"];

/// `tollgate look` and `tollgate reset`.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    #[arg(value_name = "KEY", help = values::KEY_HELP)]
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) redis: RedisArgs,

    #[arg(long = "policy", value_name = "POLICY", help = values::POLICY_HELP)]
    pub(crate) policies: Vec<String>,
}

/// `tollgate credit`.
#[derive(Debug, Args)]
pub(crate) struct CreditArgs {
    #[arg(value_name = "KEY", help = values::KEY_HELP)]
    key: String,

    /// How many units
    #[arg(value_name = "UNITS")]
    units: u64,

    #[command(flatten)]
    redis: RedisArgs,

    #[arg(long, value_name = "POLICY", help = values::POLICY_HELP)]
    policy: String,
}

/// Gives units back, and prints how the key stands then.
pub(crate) async fn credit(args: CreditArgs) -> Result<ExitCode, String> {
    let CreditArgs { key, units, redis, policy } = args;
    let args = KeyArgs { key, redis, policies: vec![policy] };
    let Subject { store, key, policies, .. } = Subject::open(&args).await?;
    for policy in &policies {
        if policy.numbers().with_debt().is_none() {
            return Err(format!("--policy: units of {} cannot be given back", policy.algorithm().name()));
        }
        let credited = tollgate_core::credit(&store, policy, &key, units).await;
        credited.map_err(|error| format!("--redis: {error}"))?;
    }
    look(&args).await
}

/// What is known of a key.
struct Subject {
    store: RedisStore,
    key: Key,
    policies: Vec<Policy>,
    /// Whether the policies were found by their names, which do not show the limits.
    found: bool,
    /// Names of states of another form.
    others: Vec<String>,
}

/// Prints how the key stands in each policy.
pub(crate) async fn look(args: &KeyArgs) -> Result<ExitCode, String> {
    let subject = Subject::open(args).await?;
    let checks: Vec<_> = subject.policies.iter().map(|policy| Check::new(policy, &subject.key, 1)).collect();
    let looked = subject.store.acquire(&checks, Times::LOOK).wait().await;
    let verdict = looked.map_err(|error| format!("--redis: {error}"))?;
    let row =
        |(policy, status)| if subject.found { found_row(policy, status) } else { given_row(policy, status) };
    let rows: Vec<_> = subject.policies.iter().zip(verdict.each()).map(row).collect();
    let table =
        if rows.is_empty() { "no policy holds a state of it\n".to_owned() } else { table(&HEAD, &rows) };
    let shown = format!("key {}\n{table}{}", subject.key.to_readable(), subject.not_read());
    print(&shown).map(|()| ExitCode::SUCCESS)
}

/// Forgets what the key has used of each policy.
pub(crate) async fn reset(args: &KeyArgs) -> Result<ExitCode, String> {
    let subject = Subject::open(args).await?;
    let policies: Vec<_> = subject.policies.iter().collect();
    let reset = subject.store.reset(&subject.key, &policies).await;
    reset.map_err(|error| format!("--redis: {error}"))?;
    let mut report = format!("key {}\n", subject.key.to_readable());
    if policies.is_empty() {
        report.push_str("no policy holds a state of it\n");
    }
    for policy in policies {
        report.push_str(&format!("reset {} ({})\n", policy.name(), policy.algorithm().name()));
    }
    print(&(report + &subject.not_read())).map(|()| ExitCode::SUCCESS)
}

impl Subject {
    async fn open(args: &KeyArgs) -> Result<Subject, String> {
        let key = values::key(&args.key)?;
        let given = values::policies(&args.policies)?;
        let store = args.redis.connect(PREFIX).await?;
        if !given.is_empty() {
            return Ok(Subject { store, key, policies: given, found: false, others: Vec::new() });
        }
        let stored = store.stored_policies(&key).await.map_err(|error| format!("--redis: {error}"))?;
        let StoredPolicies { policies, others, .. } = stored;
        Ok(Subject { store, key, policies, found: true, others })
    }

    fn not_read(&self) -> String {
        let line = |name: &String| format!("not read, since it has another form: {}\n", printable(name));
        self.others.iter().map(line).collect()
    }
}

fn given_row(policy: &Policy, status: &Status) -> [String; 8] {
    let used = policy.capacity().saturating_sub(status.remaining());
    let limit = match policy.quota() {
        quota if quota.limit() == policy.capacity() => count(quota.limit()),
        quota => format!("{} burst {}", count(quota.limit()), count(policy.capacity())),
    };
    let next = match status.wait() {
        Wait::None => "now".to_owned(),
        Wait::For(wait) => span(wait),
        Wait::Never => "never".to_owned(),
    };
    row(policy, limit, count(used), count(status.remaining()), next, status)
}

/// A bucket stores only when it is full again. The other algorithms store what is used.
fn found_row(policy: &Policy, status: &Status) -> [String; 8] {
    let unknown = || "?".to_owned();
    let used = match policy.algorithm() {
        Algorithm::Gcra | Algorithm::LeakyBucket { .. } => unknown(),
        _ => count(policy.capacity().saturating_sub(status.remaining())),
    };
    row(policy, unknown(), used, unknown(), unknown(), status)
}

fn row(
    policy: &Policy,
    limit: String,
    used: String,
    left: String,
    next: String,
    status: &Status,
) -> [String; 8] {
    let window = policy.quota().window();
    let algorithm = policy.algorithm().name().to_owned();
    let (window, full) = match policy.algorithm() {
        // Their names have no window, and each slot has its own end.
        Algorithm::InFlight => ("?".to_owned(), "?".to_owned()),
        Algorithm::Block => ("?".to_owned(), span(status.reset_after())),
        // A month is 31 days in a name, which contains no time zone.
        Algorithm::CalendarWindow { .. } => (TimeSpan(window).to_string(), span(status.reset_after())),
        _ => (format_duration(window).to_string(), span(status.reset_after())),
    };
    [policy.name().to_owned(), algorithm, window, limit, used, left, next, full]
}

fn count(units: u64) -> String {
    human(units)
}

/// Rounds up to milliseconds, and from ten seconds on to seconds.
pub(crate) fn span(span: Duration) -> String {
    let unit = if span < Duration::from_secs(10) { 1 } else { 1_000 };
    let millis = span.as_micros().div_ceil(1_000 * unit) * unit;
    match u64::try_from(millis).unwrap_or(u64::MAX) {
        0 => "now".to_owned(),
        millis => format_duration(Duration::from_millis(millis)).to_string(),
    }
}
