//! A rule of requests in flight on the command line: `NAME=N[,key=K][,lease=D][,max-wait=D]`.

use tollgate::{Policy, Quota};

use crate::login;
use crate::options::{Options, parse_units};
use crate::rule_spec::{RuleSpec, parse_key};
use crate::tokens;

/// Errors are one line, and quote the rule.
pub(crate) fn parse(text: &str) -> Result<RuleSpec, String> {
    parse_parts(text).map_err(|error| format!("--in-flight {text:?}: {error}"))
}

fn parse_parts(text: &str) -> Result<RuleSpec, String> {
    let form = || "expected NAME=N[,OPTION=VALUE]..., such as exports=2".to_owned();
    // The first equals sign ends the name, which may contain commas.
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    if [tokens::RULE, login::RULE, login::TURN].contains(&name) {
        return Err(format!("{name} has a meaning of its own: choose another name"));
    }
    let (limit, rest) = rest.split_once(',').map_or((rest, None), |(limit, rest)| (limit, Some(rest)));
    let fields = rest.into_iter().flat_map(|rest| rest.split(','));
    let options = Options::parse(fields, &["key", "lease", "max-wait"])?;

    let lease = options.span("lease")?.unwrap_or(Quota::DEFAULT_LEASE);
    let quota = Quota::try_new(parse_units(limit)?, lease).map_err(|error| error.to_string())?;
    let policy = Policy::try_in_flight(name, quota).map_err(|error| error.to_string())?;
    let wait_for_slot = options.span("max-wait")?.unwrap_or_default();
    Ok(RuleSpec { policy, key: parse_key(&options)?, wait_for_slot })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_shortest_rule_and_all_options_in_any_order() {
        let short = parse("exports=2").unwrap();
        assert_eq!((short.policy, short.wait_for_slot), (Policy::in_flight("exports", 2), Duration::ZERO));
        assert_eq!(short.key, "ip".parse().unwrap());
        let long = parse("a,b=20,max-wait=5s,key=header:x-key|ip,lease=3s").unwrap();
        let lease = Duration::from_secs(3);
        assert_eq!(long.policy, Policy::in_flight("a,b", 20).with_lease(lease));
        assert_eq!(long.key, "header:x-key|ip".parse().unwrap());
        assert_eq!(long.wait_for_slot, Duration::from_secs(5));
    }

    #[test]
    fn each_mistake_is_explained_in_one_line() {
        for (text, why) in [
            ("", "expected NAME=N"),
            ("exports", "expected NAME=N"),
            ("=2", "name must be"),
            ("exports=", "\"\" is not a whole number"),
            ("exports=0", "\"0\" is not a whole number"),
            ("exports=2/s", "\"2/s\" is not a whole number"),
            ("exports=1000001", "at most 1000000"),
            ("exports=2,", "\"\" is not an option"),
            ("exports=2,burst=3", "\"burst\" is not an option: use key, lease, max-wait"),
            ("exports=2,algorithm=gcra", "\"algorithm\" is not an option"),
            ("exports=2,lease=3s,lease=3s", "lease is given twice"),
            ("exports=2,lease=soon", "\"soon\" is not a time"),
            ("exports=2,lease=0s", "between 1 ms and 366 days"),
            ("exports=2,max-wait=", "\"\" is not a time"),
            ("exports=2,key=user", "\"user\" is not a key"),
            ("tokens=2", "choose another name"),
            ("login=2", "choose another name"),
            ("login-turn=2", "choose another name"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("--in-flight ") && error.contains(why), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{text:?}: {error}");
        }
    }

    #[test]
    fn words() {
        let words = |text| parse(text).unwrap().in_words();
        assert_eq!(
            words("exports=2"),
            "2 in flight for each client address; others are refused (in-flight, lease of 15 seconds)"
        );
        assert_eq!(
            words("exports=2,key=global,lease=3s,max-wait=5s"),
            "2 in flight for all callers together; others wait for at most 5 seconds (in-flight, lease of 3 seconds)"
        );
    }
}
