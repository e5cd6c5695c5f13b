//! Values on the command line: keys, policies and times. Errors are one line.

use std::time::Duration;

use tollgate::config::RuleConfig;
use tollgate_core::{Key, Policy, TextError, TimeSpan};

use crate::output::printable;

pub(crate) const KEY_HELP: &str = "\
The key, as the names in the Redis show it

alice or =alice   text, such as the value of a header; after = with % escapes
@192.0.2.1        an address; @2001:db8::1 is that of its /64, unless a /N follows
#42               a whole number
*                 the key that all callers share
(=acme,#42)       several keys together
0|=alice          a key of the first of several alternatives";

pub(crate) const POLICY_HELP: &str = "\
A policy in the Redis; repeatable

NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]
NAME=N[,key=K][,ttl=D]  for requests in flight

  WINDOW     s, m, h, d, or a whole number with ms, s, m, h, d: 10s
  burst      the most units at once, for gcra (default: the limit) and for
             leaky-bucket (default: 1)
  algorithm  gcra (default), leaky-bucket, fixed-window, fixed-window-aligned,
             sliding-window, sliding-buckets, sliding-log
  key        of the rule that this is a copy of; it has no effect here
  max-wait   how long leaky-bucket may delay a request (default: the window)";

pub(crate) fn key(text: &str) -> Result<Key, String> {
    text.parse().map_err(|error: TextError| format!("{error} (see --help)"))
}

/// A key of a table as people write it. A digest, and what is no key, stays as the Redis has it.
pub(crate) fn shown_key(text: &str) -> String {
    match text.parse::<Key>() {
        Ok(key) if key.to_text() == text => key.to_readable(),
        _ => printable(text),
    }
}

/// Parses the values of `--policy`.
pub(crate) fn policies(texts: &[String]) -> Result<Vec<Policy>, String> {
    let mut policies: Vec<Policy> = Vec::new();
    for text in texts {
        let policy = text.parse().and_then(|rule: RuleConfig| rule.policy());
        let policy = policy.map_err(|error| format!("--policy {text:?}: {error}"))?;
        if policies.iter().any(|other| other.name() == policy.name()) {
            return Err(format!("--policy: two policies have the name {:?}", policy.name()));
        }
        policies.push(policy);
    }
    Ok(policies)
}

/// Parses a time that is not zero.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().map(|TimeSpan(time)| time).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a time such as 10s, 500ms or 5m".to_owned())
}
