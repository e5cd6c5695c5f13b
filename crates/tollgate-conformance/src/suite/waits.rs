//! When it passes again.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Store, Wait};

use super::bench::{Bench, SECOND, WINDOW, micros, plain, windows};

pub(super) async fn a_retry_passes_exactly_at_its_wait<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        // Staggered, so that what comes back comes back at different times.
        for gap in [700_001, 1_100_003, 0, 900_007, 1] {
            bench.must_take(&policy, &key, 1).await;
            bench.advance(gap);
        }
        for _ in 0..12 {
            if let Wait::For(wait) = bench.look(&policy, &key, 1).await.wait() {
                bench.advance(micros(wait) - 1);
                let left = bench.denied(&policy, &key, 1).await;
                bench.same("the wait a microsecond before", left, Duration::from_micros(1));
                bench.advance(1);
            }
            bench.must_take(&policy, &key, 1).await;
            bench.advance(333_331);
        }
    }
}

pub(super) async fn a_large_cost_waits_for_all_of_it<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        for _ in 0..5 {
            bench.must_take(&policy, &key, 1).await;
            bench.advance(1_000);
        }
        for cost in [2, 4, 5, 5] {
            let wait = bench.denied(&policy, &key, cost).await;
            bench.advance(micros(wait) - 1);
            bench.denied(&policy, &key, cost).await;
            bench.advance(1);
            bench.must_take(&policy, &key, cost).await;
            bench.take(&policy, &key, 5 - cost).await;
        }
    }
}

pub(super) async fn the_quota_is_back_at_its_reset_and_not_before<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        for cost in [1, 3, 5] {
            bench.must_take(&policy, &key, cost).await;
            let reset = bench.look(&policy, &key, 0).await.reset_after();
            bench.advance(micros(reset) - 1);
            let status = bench.look(&policy, &key, 5).await;
            bench.same("not all is back a microsecond before", status.remaining() < 5, true);
            bench.same("the wait for all", status.wait(), Wait::For(Duration::from_micros(1)));
            bench.same("the reset then", status.reset_after(), Duration::from_micros(1));
            bench.advance(1);
            bench.left("at the reset", &policy, &key, 5).await;
            bench.same("reset", bench.look(&policy, &key, 0).await.reset_after(), Duration::ZERO);
        }
    }
}

pub(super) async fn a_new_window_does_not_inherit_the_old_count<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    bench.advance_to_multiple(WINDOW);
    for policy in windows() {
        let longest = match policy.algorithm() {
            Algorithm::SlidingWindow => 2 * WINDOW,
            Algorithm::SlidingBuckets { .. } => WINDOW + WINDOW / 10,
            _ => WINDOW,
        };
        for _ in 0..3 {
            bench.must_take(&policy, &key, 5).await;
            bench.advance(longest);
        }
        bench.must_take(&policy, &key, 5).await;
        bench.advance_to_multiple(2 * WINDOW);
        bench.advance(2 * WINDOW);
    }
}

pub(super) async fn requests_do_not_prolong_the_window<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    bench.advance_to_multiple(WINDOW);
    for policy in windows().drain(..2) {
        for second in 0..5 {
            let status = bench.look(&policy, &key, 1).await;
            bench.same("units left", status.remaining(), 5 - second);
            let verdict = bench.take(&policy, &key, 1).await;
            let due = Duration::from_micros(WINDOW - u64::from(second) * SECOND);
            bench.same("the end of the window", verdict.each()[0].reset_after(), due);
            bench.advance(SECOND);
        }
        for second in 5..10 {
            let due = Duration::from_micros(WINDOW - second * SECOND);
            bench.same("the wait for the end", bench.denied(&policy, &key, 1).await, due);
            bench.advance(SECOND);
        }
        bench.left("in the next window", &policy, &key, 5).await;
    }
}

pub(super) async fn limits_above_a_thousand_a_second_are_not_truncated<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    for (limit, in_10_ms, wait) in [(1_500, 15, 667), (1_000_000, 10_000, 1), (4_000_000, 40_000, 1)] {
        let policy = Policy::new(&format!("{limit}"), Quota::per_second(limit));
        bench.must_take(&policy, &key, limit).await;
        bench.same("the wait for one", bench.denied(&policy, &key, 1).await, Duration::from_micros(wait));
        bench.advance(10_000);
        bench.left("after 10 ms", &policy, &key, in_10_ms).await;
        bench.must_take(&policy, &key, in_10_ms).await;
        bench.denied(&policy, &key, 1).await;
    }
}

pub(super) async fn three_a_second_and_seven_lose_nothing_to_rounding<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    for limit in [3, 7] {
        // A burst of 2: a bucket of 1 would be full, and spill, a fraction of a microsecond before each request.
        let policy = Policy::new(&format!("{limit} a second"), Quota::per_second(limit).burst(2));
        let start = bench.time.now();
        bench.must_take(&policy, &key, 1).await;
        for n in 1..=20 * limit {
            bench.must_take(&policy, &key, 1).await;
            let wait = bench.denied(&policy, &key, 1).await;
            bench.time.advance(wait);
            let due = (u64::from(n) * SECOND).div_ceil(u64::from(limit));
            let passed = bench.time.now().as_micros() - start.as_micros();
            bench.same(&format!("when request {n} passes"), passed, due);
        }
    }
}

pub(super) async fn microseconds_of_a_16_digit_time_are_kept<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    // Each digit counts: were the last ones lost on the way, a wait would be off by as much.
    for policy in plain() {
        bench.advance(1_234_567);
        bench.must_take(&policy, &key, 5).await;
        let now = bench.time.now();
        let reset = bench.look(&policy, &key, 1).await.reset_after();
        for _ in 0..9 {
            bench.advance(100_001);
            let passed = Duration::from_micros(bench.time.now().as_micros() - now.as_micros());
            let status = bench.look(&policy, &key, 1).await;
            bench.same("the reset comes nearer by what has passed", status.reset_after(), reset - passed);
        }
    }
}
