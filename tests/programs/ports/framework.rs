//! A framework whose applications list their limits in a file: a name, a quota, a key, and the
//! paths that it applies to. A mistake in the file is an error when the application starts.

use std::time::Duration;

use tollgate::extract::{KeyExtractor, PeerIp, global, header, matched_path};
use tollgate::store::{NeverFails, Store};
use tollgate::{Head, Policy, PolicyExt, Quota, RateLimitLayer, Rule};

/// A limiter of the lines `NAME LIMIT/SECONDS[,burst=N] KEY [PATH-PREFIX]`.
pub(super) fn from_file<S>(text: &str, store: S) -> Result<RateLimitLayer<S>, String>
where
    S: Store<Error: NeverFails>,
{
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let rules = lines.map(|(line, number)| rule(line).map_err(|error| format!("line {number}: {error}")));
    let rules: Vec<Rule> = rules.collect::<Result<_, _>>()?;
    let layer = RateLimitLayer::try_new(rules).map_err(|error| error.to_string())?;
    layer.try_store(store).map_err(|error| error.to_string())
}

fn rule(line: &str) -> Result<Rule, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (name, quota_text, key, prefix) = match *words {
        [name, quota, key] => (name, quota, key, None),
        [name, quota, key, prefix] => (name, quota, key, Some(prefix.to_owned())),
        _ => return Err(format!("{line:?} must be NAME LIMIT/SECONDS KEY [PATH-PREFIX]")),
    };
    let policy = Policy::try_new(name, quota(quota_text)?).map_err(|error| error.to_string())?;
    let rule = match key.split_once(':') {
        Some(("header", name)) if http::HeaderName::try_from(name).is_ok() => policy.by(header(name)),
        None if key == "ip" => policy.by(PeerIp::new()),
        None if key == "ip+route" => policy.by((PeerIp::new(), matched_path())),
        None if key == "user" => policy.by(header("x-user").or(PeerIp::new())),
        None if key == "all" => policy.by(global()),
        _ => return Err(format!("the key {key:?} must be ip, ip+route, user, all or header:NAME")),
    };
    Ok(match prefix {
        Some(prefix) => rule.exempt(move |head: &Head<'_>| !head.uri().path().starts_with(&prefix)),
        None => rule,
    })
}

fn quota(text: &str) -> Result<Quota, String> {
    let malformed = || format!("the quota {text:?} must be LIMIT/SECONDS or LIMIT/SECONDS,burst=N");
    let (rate, burst) = text.split_once(",burst=").map_or((text, None), |(rate, burst)| (rate, Some(burst)));
    let (limit, seconds) = rate.split_once('/').ok_or_else(malformed)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| malformed());
    let quota = Quota::try_new(number(limit)?, Duration::from_secs(number(seconds)?));
    let quota = quota.map_err(|error| error.to_string())?;
    match burst {
        Some(burst) => quota.try_burst(number(burst)?).map_err(|error| error.to_string()),
        None => Ok(quota),
    }
}
