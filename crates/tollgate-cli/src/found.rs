//! Finds the policies that hold a state of a key, by the names of keys in Redis.
//!
//! A name is `prefix:1:{key}:policy~algorithm~window`: see `docs/stored-values.md` of
//! tollgate-redis.

use std::fmt::Write as _;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tollgate_core::{Algorithm, Key, Policy, Quota, UsageLog};
use tollgate_redis::RedisStore;

use crate::redis_args::{PREFIX, RedisArgs, TIMEOUT};
use crate::span;

/// How many names Redis looks at in one step of a scan.
const STEP: u32 = 1_000;

/// Returns what follows the key in the names of its states, in order. It may be any text, and
/// invalid UTF-8 is replaced.
pub(crate) async fn scopes(args: &RedisArgs, store: &RedisStore, key: &Key) -> Result<Vec<String>, String> {
    let text = store.name(key);
    // No text of a key begins with this sign.
    if text.starts_with('~') {
        return Err("the name of this key in the Redis is a digest: give each --policy".to_owned());
    }
    let prefix = args.prefix.as_deref().unwrap_or(PREFIX);
    let head = format!("{prefix}:1:{{{text}}}:");
    let failed = |error: redis::RedisError| format!("--redis: redis: {error}");
    let mut scopes = Vec::new();
    for mut server in servers(&args.url()?).await? {
        let mut cursor = 0;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(pattern(&head)).arg("COUNT").arg(STEP);
            let (next, names): (u64, Vec<Vec<u8>>) = scan.query_async(&mut server).await.map_err(failed)?;
            let of_key = names.iter().filter_map(|name| name.strip_prefix(head.as_bytes()));
            // The usage of a policy that tracks it is no state.
            let of_state = of_key.filter(|scope| !scope.ends_with(b"~usage"));
            scopes.extend(of_state.map(|scope| String::from_utf8_lossy(scope).into_owned()));
            if next == 0 {
                break;
            }
            cursor = next;
        }
    }
    scopes.sort();
    // A scan may return a name twice.
    scopes.dedup();
    Ok(scopes)
}

/// Matches all names that begin with the text.
fn pattern(head: &str) -> String {
    let mut pattern = String::new();
    for sign in head.chars() {
        let escape = if matches!(sign, '*' | '?' | '[' | ']' | '\\') { "\\" } else { "" };
        let _ = write!(pattern, "{escape}{sign}");
    }
    pattern + "*"
}

/// Connects to the server, or to each master of a Cluster.
async fn servers(url: &str) -> Result<Vec<MultiplexedConnection>, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    if scheme.ends_with("-sentinel") {
        return Err(
            "policies are not found through Sentinels: use the URL of the master, or --policy".to_owned()
        );
    }
    let Some(scheme) = scheme.strip_suffix("-cluster") else { return Ok(vec![connect(url).await?]) };
    let (credentials, hosts) = match rest.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), rest),
    };
    let hosts: Vec<&str> = hosts.trim_end_matches('/').split(',').collect();
    let mut answer = Err("no node is given".to_owned());
    for host in &hosts {
        answer = connect(&format!("{scheme}://{credentials}{host}/")).await;
        if answer.is_ok() {
            break;
        }
    }
    let nodes: redis::RedisResult<String> =
        redis::cmd("CLUSTER").arg("NODES").query_async(&mut answer?).await;
    let nodes = nodes.map_err(|error| format!("--redis: redis: {error}"))?;
    let mut masters = Vec::new();
    for address in masters_of(&nodes) {
        masters.push(connect(&format!("{scheme}://{credentials}{address}/")).await?);
    }
    Ok(masters)
}

/// Reads the addresses of the masters from the answer of `CLUSTER NODES`.
fn masters_of(nodes: &str) -> impl Iterator<Item = &str> {
    nodes.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (address, flags) = (fields.next()?, fields.next()?);
        let is_up = |flag: &str| !matches!(flag, "fail" | "noaddr" | "handshake");
        let is_master = flags.split(',').any(|flag| flag == "master") && flags.split(',').all(is_up);
        is_master.then(|| address.split('@').next()).flatten()
    })
}

async fn connect(url: &str) -> Result<MultiplexedConnection, String> {
    // The error repeats no password.
    let failed = |error: redis::RedisError| format!("--redis: redis: {error}");
    let client = Client::open(url).map_err(failed)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(TIMEOUT))
        .set_response_timeout(Some(TIMEOUT));
    client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)
}

/// Returns a policy that has the states of this scope. Its limit is the largest, since names do not
/// show the limit. `None` if the scope is of another form.
pub(crate) fn policy(scope: &str) -> Option<Policy> {
    let (plain, is_log) = match scope.strip_suffix("~runs") {
        Some(plain) => (plain, true),
        None => (scope, false),
    };
    let mut parts = plain.rsplitn(3, '~');
    let (window, algorithm, name) = (parse_window(parts.next()?)?, parts.next()?, parts.next()?);
    let most = Quota::try_new(u32::MAX, window).ok()?;
    let (quota, algorithm) = match algorithm.split_once('.').unwrap_or((algorithm, "")) {
        ("gcra", "") => (refilling(window)?, Algorithm::Gcra),
        ("leaky-bucket", "") => (refilling(window)?, Algorithm::LeakyBucket { max_wait: Duration::ZERO }),
        ("fixed-window", "") => (most, Algorithm::FIXED_WINDOW),
        ("fixed-window-aligned", "") => (most, Algorithm::FIXED_WINDOW_ALIGNED),
        ("sliding-window", "") => (most, Algorithm::SlidingWindow),
        ("sliding-log", "") => (most, Algorithm::SlidingLog { max_limit: u32::MAX }),
        ("sliding-buckets", buckets) => (most, Algorithm::SlidingBuckets { buckets: buckets.parse().ok()? }),
        _ => return None,
    };
    let of_log = matches!(algorithm, Algorithm::SlidingLog { .. } | Algorithm::SlidingBuckets { .. });
    let policy = Policy::try_new(name, quota, algorithm).ok()?;
    (policy.scope() == plain && of_log == is_log).then_some(policy)
}

/// A bucket that takes as long to fill as any can.
fn refilling(window: Duration) -> Option<Quota> {
    let burst = (1_u64 << 52) / span::micros(window);
    let quota = Quota::try_new(1, window).ok()?;
    quota.try_burst(u32::try_from(burst).unwrap_or(u32::MAX)).ok()
}

fn parse_window(text: &str) -> Option<Duration> {
    match text.strip_suffix("us") {
        Some(micros) => micros.parse().ok().map(Duration::from_micros),
        None => span::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_found_by_the_name_of_its_state() {
        for (scope, name, algorithm) in [
            ("api~gcra~1m", "api", "gcra"),
            ("a~b=c~leaky-bucket~1500001us", "a~b=c", "leaky-bucket"),
            ("api~fixed-window~366d", "api", "fixed-window"),
            ("api~fixed-window-aligned~1ms", "api", "fixed-window-aligned"),
            ("api~sliding-window~90s", "api", "sliding-window"),
            ("api~sliding-buckets.7~1d~runs", "api", "sliding-buckets"),
            ("api~sliding-log~1d~runs", "api", "sliding-log"),
        ] {
            let policy = policy(scope).unwrap_or_else(|| panic!("{scope}"));
            assert_eq!((policy.name(), policy.algorithm().name()), (name, algorithm));
            assert!(scope.starts_with(policy.scope()), "{scope}");
        }
    }

    #[test]
    fn names_of_other_forms_are_no_policies() {
        for scope in [
            "",
            "api",
            "api~gcra",
            "api~gcra~60s",
            "api~gcra~1m~runs",
            "api~gcra.1~1m",
            "api~other~1m",
            "api~sliding-log~1m",
            "api~sliding-log~1m~runs~sorted-set",
            "api~sliding-buckets~1m~runs",
            "~gcra~1m",
        ] {
            assert!(policy(scope).is_none(), "{scope}");
        }
    }

    #[test]
    fn a_pattern_matches_special_characters_as_they_are() {
        assert_eq!(pattern("t:1:{*}:"), "t:1:{\\*}:*");
        assert_eq!(pattern("a?[b]\\"), "a\\?\\[b\\]\\\\*");
    }

    #[test]
    fn the_masters_of_a_cluster_are_those_that_work() {
        let nodes = "a 10.0.0.1:7000@17000,host myself,master - 0 0 1 connected 0-5460\n\
                     b 10.0.0.2:7001@17001 slave a 0 0 1 connected\n\
                     c 10.0.0.3:7002@17002 master,fail - 0 0 2 disconnected\n\
                     d [::1]:7003@17003 master - 0 0 3 connected 5461-16383\n";
        assert_eq!(masters_of(nodes).collect::<Vec<_>>(), ["10.0.0.1:7000", "[::1]:7003"]);
    }
}
