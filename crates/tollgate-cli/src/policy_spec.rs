//! A policy on the command line: `NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,max-wait=D]`.
//!
//! The form is that of the playground's `--rule`, without the key.

use std::time::Duration;

use tollgate_core::{Algorithm, Policy, PolicyError, Quota, TextError, TimeSpan};

pub(crate) const HELP: &str = "\
A policy in the Redis; repeatable

NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,max-wait=D]

  WINDOW     s, m, h, d, or a whole number with ms, s, m, h, d: 10s
  burst      the most units at once, for gcra (default: the limit) and for
             leaky-bucket (default: 1)
  algorithm  gcra (default), leaky-bucket, fixed-window, fixed-window-aligned,
             sliding-window, sliding-buckets, sliding-log
  max-wait   how long leaky-bucket may delay a request (default: the window)";

/// The options in the text. Each may be given once.
#[derive(Default)]
struct Options<'a> {
    burst: Option<&'a str>,
    algorithm: Option<&'a str>,
    max_wait: Option<&'a str>,
}

/// Parses the policies of `--policy`. Errors are one line, and quote the policy.
pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Policy>, String> {
    let mut policies: Vec<Policy> = Vec::new();
    for text in texts {
        let policy = parse(text).map_err(|error| format!("--policy {text:?}: {error}"))?;
        if policies.iter().any(|other| other.name() == policy.name()) {
            return Err(format!("--policy: two policies have the name {:?}", policy.name()));
        }
        policies.push(policy);
    }
    Ok(policies)
}

fn parse(text: &str) -> Result<Policy, String> {
    let form = || "expected NAME=LIMIT/WINDOW[,OPTION=VALUE]..., such as api=10/10s".to_owned();
    // The first equals sign ends the name, which may contain commas and slashes.
    let (name, rest) = text.split_once('=').ok_or_else(form)?;
    let mut fields = rest.split(',');
    let (limit, window) = fields.next().and_then(|quota| quota.split_once('/')).ok_or_else(form)?;
    let options = Options::parse(fields)?;

    let window = parse_span(window)?;
    let mut quota = Quota::try_new(parse_units(limit)?, window).map_err(|error| error.to_string())?;
    if let Some(burst) = options.burst {
        quota = quota.try_burst(parse_units(burst)?).map_err(|error| error.to_string())?;
    }
    let algorithm = parse_algorithm(options.algorithm, options.max_wait, window)?;
    Policy::try_from_parts(name, quota, algorithm).map_err(|error| match error {
        // There is no option to raise it.
        PolicyError::LogTooLong => "sliding-log takes limits up to 100000".to_owned(),
        error => error.to_string(),
    })
}

impl<'a> Options<'a> {
    fn parse(fields: impl Iterator<Item = &'a str>) -> Result<Options<'a>, String> {
        let mut options = Options::default();
        for field in fields {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let option = match name {
                "burst" => &mut options.burst,
                "algorithm" => &mut options.algorithm,
                "max-wait" => &mut options.max_wait,
                _ => return Err(format!("{name:?} is not an option: use burst, algorithm, max-wait")),
            };
            if option.replace(value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        Ok(options)
    }
}

fn parse_units(text: &str) -> Result<u64, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let units = text.parse().ok().filter(|units| digits && (1..=Quota::MAX_UNITS).contains(units));
    units.ok_or_else(|| format!("{text:?} is not a whole number from 1 to {}", Quota::MAX_UNITS))
}

fn parse_span(text: &str) -> Result<Duration, String> {
    text.parse().map(|TimeSpan(time)| time).map_err(|error: TextError| error.to_string())
}

fn parse_algorithm(
    name: Option<&str>,
    max_wait: Option<&str>,
    window: Duration,
) -> Result<Algorithm, String> {
    let max_wait = max_wait.map(parse_span).transpose()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_options_are_read_in_any_order() {
        let quota = Quota::new(3, Duration::from_secs(60)).burst(2);
        let algorithm = Algorithm::LeakyBucket { max_wait: Duration::from_millis(500) };
        assert_eq!(
            parse("q=3/m,max-wait=500ms,burst=2,algorithm=leaky-bucket"),
            Ok(Policy::try_from_parts("q", quota, algorithm).unwrap())
        );
        let shortest = Policy::new("api", Quota::new(10, Duration::from_secs(10)));
        assert_eq!(parse_all(&["api=10/10s".to_owned()]), Ok(vec![shortest]));
    }

    #[test]
    fn every_algorithm_has_its_name() {
        for name in [
            "gcra",
            "leaky-bucket",
            "fixed-window",
            "fixed-window-aligned",
            "sliding-window",
            "sliding-buckets",
            "sliding-log",
        ] {
            assert_eq!(parse(&format!("x=5/h,algorithm={name}")).unwrap().algorithm().name(), name);
        }
    }

    #[test]
    fn each_mistake_is_explained() {
        for (text, why) in [
            ("", "expected NAME=LIMIT/WINDOW"),
            ("api=10", "expected NAME=LIMIT/WINDOW"),
            ("=1/s", "name"),
            ("api=/s", "\"\" is not a whole number"),
            ("api=0/s", "\"0\" is not a whole number"),
            ("api=+1/s", "\"+1\" is not a whole number"),
            ("api=5/10", "\"10\" is not a time"),
            ("api=5/0s", "between 1 ms and 366 days"),
            ("api=5/s,", "\"\" is not an option"),
            ("api=5/s,key=ip", "\"key\" is not an option"),
            ("api=5/s,burst=1,burst=2", "burst is given twice"),
            ("api=5/s,algorithm=token", "\"token\" is not an algorithm"),
            ("api=5/s,burst=2,algorithm=fixed-window", "a burst has no meaning"),
            ("api=5/s,max-wait=5s", "max-wait is for algorithm=leaky-bucket"),
            ("api=100001/d,algorithm=sliding-log", "limits up to 100000"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let twice = ["a=1/s".to_owned(), "a=2/s".to_owned()];
        assert!(parse_all(&twice).unwrap_err().contains("two policies have the name \"a\""));
    }
}
