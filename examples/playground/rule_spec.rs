//! A rule on the command line: `NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]`.

use std::str::FromStr;
use std::time::Duration;

use tollgate::{Algorithm, Policy, PolicyError, Quota};

use crate::key_spec::KeySpec;
use crate::login;
use crate::options::{Options, parse_span, parse_units};
use crate::span;
use crate::tokens;

/// A policy and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleSpec {
    pub(crate) policy: Policy,
    pub(crate) key: KeySpec,
    /// How long a request waits for a slot. Zero for a rate.
    pub(crate) wait_for_slot: Duration,
}

impl FromStr for RuleSpec {
    type Err = String;

    /// Errors are one line, and quote the rule.
    fn from_str(text: &str) -> Result<RuleSpec, String> {
        parse(text).map_err(|error| format!("--rule {text:?}: {error}"))
    }
}

fn parse(text: &str) -> Result<RuleSpec, String> {
    let form = || "expected NAME=LIMIT/WINDOW[,OPTION=VALUE]..., such as api=10/10s".to_owned();
    // The first equals sign ends the name, which may contain commas and slashes.
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    let mut fields = rest.split(',');
    let (limit, window) = fields.next().and_then(|quota| quota.split_once('/')).ok_or_else(form)?;
    let options = Options::parse(fields, &["burst", "algorithm", "key", "max-wait"])?;

    let window = parse_span(window)?;
    let mut quota = Quota::try_new(parse_units(limit)?, window).map_err(|error| error.to_string())?;
    if let Some(burst) = options.get("burst") {
        quota = quota.try_burst(parse_units(burst)?).map_err(|error| error.to_string())?;
    }
    let algorithm = parse_algorithm(options.get("algorithm"), options.span("max-wait")?, window)?;
    let policy = Policy::try_from_parts(name, quota, algorithm).map_err(|error| match error {
        // The playground has no option to raise it.
        PolicyError::LogTooLong => "sliding-log takes limits up to 100000".to_owned(),
        error => error.to_string(),
    })?;
    Ok(RuleSpec { policy, key: parse_key(&options)?, wait_for_slot: Duration::ZERO })
}

/// Returns the option `key`, or the default.
pub(crate) fn parse_key(options: &Options<'_>) -> Result<KeySpec, String> {
    options.get("key").map_or_else(|| Ok(KeySpec::default()), str::parse)
}

fn parse_algorithm(
    name: Option<&str>,
    max_wait: Option<Duration>,
    window: Duration,
) -> Result<Algorithm, String> {
    let algorithm = match name {
        None | Some("gcra") => Algorithm::Gcra,
        Some("leaky-bucket") => Algorithm::LeakyBucket { max_wait: max_wait.unwrap_or(window) },
        Some("fixed-window") => Algorithm::FIXED_WINDOW,
        Some("fixed-window-aligned") => Algorithm::FIXED_WINDOW_ALIGNED,
        Some("sliding-window") => Algorithm::SlidingWindow,
        Some("sliding-buckets") => Algorithm::SLIDING_BUCKETS,
        Some("sliding-log") => Algorithm::SLIDING_LOG,
        Some(unknown) => {
            return Err(format!(
                "{unknown:?} is not an algorithm: use gcra, leaky-bucket, fixed-window, fixed-window-aligned, \
                 sliding-window, sliding-buckets, sliding-log"
            ));
        }
    };
    match (algorithm, max_wait) {
        (Algorithm::LeakyBucket { .. }, _) | (_, None) => Ok(algorithm),
        (_, Some(_)) => {
            Err(format!("max-wait is for algorithm=leaky-bucket; {} does not wait", algorithm.name()))
        }
    }
}

impl RuleSpec {
    /// Returns the rule in words, for the banner and the page.
    pub(crate) fn in_words(&self) -> String {
        let limit = match self.policy.lease() {
            Some(lease) => self.slots_in_words(lease),
            None => self.rate_in_words(),
        };
        limit + &self.block_in_words().unwrap_or_default()
    }

    fn block_in_words(&self) -> Option<String> {
        let (denials, block) = (self.policy.denials_until_block()?, self.policy.block()?);
        let refusals = if denials == 1 { "1 refusal".to_owned() } else { format!("{denials} refusals") };
        let (window, time) = (self.policy.quota().window(), block.quota().window());
        let (window, time) = (span::in_words(window), span::in_words(time));
        Some(format!("; after {refusals} within {window} blocked for {time}"))
    }

    fn rate_in_words(&self) -> String {
        let (quota, capacity) = (self.policy.quota(), self.policy.capacity());
        let limit = quota.limit();
        let window = span::in_words(quota.window());
        let window = window.strip_prefix("1 ").unwrap_or(&window);
        let how = match self.policy.algorithm() {
            Algorithm::Gcra => format!("at most {capacity} at once (gcra)"),
            Algorithm::LeakyBucket { max_wait } => format!(
                "{capacity} at once, others delayed for at most {} (leaky-bucket)",
                span::in_words(max_wait)
            ),
            other => other.name().to_owned(),
        };
        let key = self.key.in_words();
        let what = match self.policy.name() {
            tokens::RULE => "; POST /chat and /stream reserve an estimate and settle it",
            login::RULE => "; only failures of POST /login count",
            _ => "",
        };
        format!("{limit} per {window} for {key}; {how}{what}")
    }

    fn slots_in_words(&self, lease: Duration) -> String {
        let (slots, key) = (self.policy.capacity(), self.key.in_words());
        let others = match self.wait_for_slot {
            Duration::ZERO => "are refused".to_owned(),
            wait => format!("wait for at most {}", span::in_words(wait)),
        };
        let lease = span::in_words(lease);
        format!("{slots} in flight for {key}; others {others} (in-flight, lease of {lease})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> RuleSpec {
        text.parse().unwrap()
    }

    fn error(text: &str) -> String {
        text.parse::<RuleSpec>().unwrap_err()
    }

    #[test]
    fn the_shortest_rule() {
        let RuleSpec { policy, key, .. } = rule("api=10/10s");
        assert_eq!(policy, Policy::new("api", Quota::new(10, Duration::from_secs(10))));
        assert_eq!(key, KeySpec::default());
    }

    #[test]
    fn all_options_in_any_order() {
        let text = "q=3/m,max-wait=500ms,key=header:x-key|ip,burst=2,algorithm=leaky-bucket";
        let RuleSpec { policy, key, .. } = rule(text);
        let quota = Quota::per_minute(3).burst(2);
        let algorithm = Algorithm::LeakyBucket { max_wait: Duration::from_millis(500) };
        assert_eq!(policy, Policy::try_from_parts("q", quota, algorithm).unwrap());
        assert_eq!(key, "header:x-key|ip".parse().unwrap());
    }

    #[test]
    fn every_algorithm_by_its_name() {
        for name in [
            "gcra",
            "leaky-bucket",
            "fixed-window",
            "fixed-window-aligned",
            "sliding-window",
            "sliding-buckets",
            "sliding-log",
        ] {
            assert_eq!(rule(&format!("x=5/h,algorithm={name}")).policy.algorithm().name(), name);
        }
    }

    #[test]
    fn the_default_max_wait_is_the_window() {
        let max_wait = Duration::from_secs(7);
        assert_eq!(
            rule("x=5/7s,algorithm=leaky-bucket").policy.algorithm(),
            Algorithm::LeakyBucket { max_wait }
        );
        assert_eq!(
            rule("x=5/7s,algorithm=leaky-bucket,max-wait=0s").policy.algorithm(),
            Algorithm::LeakyBucket { max_wait: Duration::ZERO }
        );
    }

    #[test]
    fn a_name_may_contain_what_a_header_can() {
        for name in ["a b", "a,b", "a/b", "\"quoted\\\"", "~", "50%"] {
            assert_eq!(rule(&format!("{name}=1/s")).policy.name(), name);
        }
        for name in ["", "é", "a\nb", &"x".repeat(129)] {
            assert!(error(&format!("{name}=1/s")).contains("name"), "{name:?}");
        }
    }

    #[test]
    fn each_mistake_is_explained_in_one_line() {
        for (text, why) in [
            ("", "expected NAME=LIMIT/WINDOW"),
            ("api", "expected NAME=LIMIT/WINDOW"),
            ("api=10", "expected NAME=LIMIT/WINDOW"),
            ("api=/s", "\"\" is not a whole number"),
            ("api=0/s", "\"0\" is not a whole number"),
            ("api=-1/s", "\"-1\" is not a whole number"),
            ("api=+1/s", "\"+1\" is not a whole number"),
            ("api=1.5/s", "\"1.5\" is not a whole number"),
            ("api=9999999999999/s", "\"9999999999999\" is not a whole number"),
            ("api=5/", "\"\" is not a time"),
            ("api=5/10", "\"10\" is not a time"),
            ("api=5/1.5s", "\"1.5s\" is not a time"),
            ("api=5/s/s", "\"s/s\" is not a time"),
            ("api=5/0s", "between 1 ms and 366 days"),
            ("api=5/367d", "between 1 ms and 366 days"),
            ("api=5/99999999999999999999d", "is not a time"),
            ("api=5/s,", "\"\" is not an option"),
            ("api=5/s,brust=2", "\"brust\" is not an option"),
            ("api=5/s,burst", "\"\" is not a whole number"),
            ("api=5/s,burst=0", "\"0\" is not a whole number"),
            ("api=5/s,burst=1,burst=2", "burst is given twice"),
            ("api=1/366d,burst=4294967295", "must not exceed 2^52"),
            ("api=5/s,algorithm=token", "\"token\" is not an algorithm"),
            ("api=5/s,burst=2,algorithm=fixed-window", "a burst has no meaning"),
            ("api=5/s,max-wait=5s", "max-wait is for algorithm=leaky-bucket"),
            ("api=5/s,max-wait=5s,algorithm=sliding-log", "sliding-log does not wait"),
            ("api=5/s,algorithm=leaky-bucket,max-wait=", "\"\" is not a time"),
            ("api=5/s,algorithm=leaky-bucket,max-wait=99999999999d", "must not exceed 2^52"),
            ("api=100001/d,algorithm=sliding-log", "limits up to 100000"),
            ("api=5/s,key=user", "\"user\" is not a key"),
            ("api=5/s,key=header:a b", "\"a b\" is not the name of a header"),
            ("api=5/s,key=cookie:a b", "\"a b\" is not the name of a cookie"),
            ("api=5/s,key=\n", "\"\\n\" is not a key"),
        ] {
            let error = error(text);
            assert!(error.contains(why), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{text:?}: {error}");
        }
    }

    #[test]
    fn words() {
        assert_eq!(
            rule("api=5/10s").in_words(),
            "5 per 10 seconds for each client address; at most 5 at once (gcra)"
        );
        assert_eq!(
            rule("x=1/d,algorithm=fixed-window,key=global").in_words(),
            "1 per day for all callers together; fixed-window"
        );
        assert_eq!(
            rule("x=2/s,algorithm=leaky-bucket,max-wait=5s").in_words(),
            "2 per second for each client address; 1 at once, others delayed for at most 5 seconds (leaky-bucket)"
        );
        let mut blocks = rule("x=1/d,algorithm=fixed-window,key=global");
        blocks.policy = blocks.policy.block_after(20, Duration::from_secs(900));
        assert_eq!(
            blocks.in_words(),
            "1 per day for all callers together; fixed-window; after 20 refusals within 1 day blocked for 15 minutes"
        );
    }
}
