//! Decisions without a store, a lock or a clock.
//!
//! `cargo bench -p tollgate-benches --bench algorithms`

use std::hint::black_box;
use std::time::Duration;

use divan::Bencher;
use tollgate::algorithm::State;
use tollgate::{Algorithm, Policy, Quota, Timestamp};
use tollgate_conformance::CALENDAR_WINDOW;

fn main() {
    divan::main();
}

#[divan::bench(args = [
    "gcra, T whole", "gcra, T a third", "gcra, T below 1 us", "leaky-bucket", "fixed-window", "calendar-window",
    "sliding-window", "sliding-buckets", "sliding-log",
])]
fn decide(bencher: Bencher<'_, '_>, case: &str) {
    let (quota, algorithm) = match case {
        "gcra, T whole" => (Quota::per_second(1_000), Algorithm::Gcra),
        "gcra, T a third" => (Quota::per_second(3_000), Algorithm::Gcra),
        "gcra, T below 1 us" => (Quota::per_second(3_999_999), Algorithm::Gcra),
        "leaky-bucket" => {
            (Quota::per_second(1_000), Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) })
        }
        "fixed-window" => (Quota::per_second(1_000), Algorithm::FIXED_WINDOW),
        "calendar-window" => (Quota::per_second(1_000), CALENDAR_WINDOW),
        "sliding-window" => (Quota::per_second(1_000), Algorithm::SlidingWindow),
        "sliding-buckets" => (Quota::per_second(1_000), Algorithm::SLIDING_BUCKETS),
        "sliding-log" => (Quota::per_second(1_000), Algorithm::SLIDING_LOG),
        unknown => unreachable!("{unknown}"),
    };
    let policy = Policy::new("p", quota).with_algorithm(algorithm);
    let mut state = State::new(&policy);
    let mut now = Timestamp::from_micros(1_790_000_000_000_000);
    bencher.bench_local(|| {
        now = now.saturating_add(Duration::from_micros(700));
        let look = state.look(black_box(&policy), now);
        if look.room > 0 {
            state.charge(&policy, now, look, 1);
        }
        (state.reset_after(&policy, now), look)
    });
}
