//! Random fields of strange servers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use proptest::collection::vec;
use proptest::prelude::*;
use tollgate_core::Timestamp;

use super::fields::pause;

/// A quota in a `RateLimit` field: what remains, and the seconds until it is back.
#[derive(Clone, Debug)]
struct RateLimitItem {
    remaining: u64,
    reset: u64,
    text: String,
}

/// In any order of the parameters, with others.
fn quota() -> impl Strategy<Value = RateLimitItem> {
    let reset = prop_oneof![0_u64..5, 0_u64..1_000_000_000_000_000];
    ("\"[a-z ,;=]{0,5}\"", 0_u64..3, reset, any::<bool>(), ";(pk=:YQ==:|x=?1|y)").prop_map(
        |(name, remaining, reset, swapped, other)| {
            let (r, t) = (format!(";r={remaining}"), format!(";t={reset}"));
            let text = if swapped { name + &t + &other + &r } else { name + &r + &t + &other };
            RateLimitItem { remaining, reset, text }
        },
    )
}

const NOW: Timestamp = Timestamp::from_micros(1 << 50);

/// A large number is a time.
fn pause_of(number: u64) -> Duration {
    let wait = Duration::from_secs(number);
    if number < 1_000_000_000 { wait } else { wait.saturating_sub(Duration::from_micros(NOW.as_micros())) }
}

fn asked(status: StatusCode, lines: &[String], retry_after: Option<u64>) -> Option<u64> {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append("ratelimit", HeaderValue::from_str(line).unwrap());
    }
    if let Some(seconds) = retry_after {
        headers.insert("retry-after", seconds.into());
    }
    pause(status, &headers, NOW).as_ref().map(Duration::as_secs)
}

proptest! {
    // `PROPTEST_CASES` sets more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_longest_reset_of_a_quota_that_is_used_up_counts(
        lines in vec(vec(quota(), 1..4), 0..4),
        refused in any::<bool>(),
        retry_after in proptest::option::of(0_u64..100),
        garbage in proptest::option::of((0_usize..4, "\"[a-z0-9;=, ]{0,9}")),
    ) {
        let status = if refused { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
        let used_up = lines.iter().flatten().filter(|quota| quota.remaining == 0).map(|quota| quota.reset);
        let pause = retry_after.filter(|_| refused).or_else(|| used_up.max()).map(pause_of);
        let expected = pause.filter(|pause| !pause.is_zero()).map(|pause| pause.as_secs());
        let text = |line: &Vec<RateLimitItem>| line.iter().map(|quota| &*quota.text).collect::<Vec<_>>().join(", ");
        let mut texts: Vec<String> = lines.iter().map(text).collect();
        prop_assert_eq!(asked(status, &texts, retry_after), expected);

        // A line that cannot be read changes nothing of the others.
        if let Some((place, line)) = garbage {
            texts.insert(place.min(texts.len()), line);
            prop_assert_eq!(asked(status, &texts, retry_after), expected, "{:?}", texts);
        }
    }
}
