//! Cases of waits and resets.

use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Wait};

use super::case::{Case, SECOND, WINDOW, micros, plain, windows};

pub(super) async fn a_retry_passes_exactly_at_its_wait(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        // Staggered, so that units return at different times.
        for gap in [700_001, 1_100_003, 0, 900_007, 1] {
            case.must_take(&policy, &key, 1).await;
            case.advance(gap);
        }
        for _ in 0..12 {
            if let Wait::For(wait) = case.look(&policy, &key, 1).await.wait() {
                case.advance(micros(wait) - 1);
                let left = case.denied(&policy, &key, 1).await;
                case.same("the wait a microsecond before", left, Duration::from_micros(1));
                case.advance(1);
            }
            case.must_take(&policy, &key, 1).await;
            case.advance(333_331);
        }
    }
}

pub(super) async fn a_large_cost_waits_until_all_of_it_fits(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        for _ in 0..5 {
            case.must_take(&policy, &key, 1).await;
            case.advance(1_000);
        }
        for cost in [2, 4, 5, 5] {
            let wait = case.denied(&policy, &key, cost).await;
            case.advance(micros(wait) - 1);
            case.denied(&policy, &key, cost).await;
            case.advance(1);
            case.must_take(&policy, &key, cost).await;
            case.take(&policy, &key, 5 - cost).await;
        }
    }
}

pub(super) async fn the_full_quota_returns_at_its_reset_and_not_before(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        for cost in [1, 3, 5] {
            case.must_take(&policy, &key, cost).await;
            let reset = case.look(&policy, &key, 0).await.reset_after();
            case.advance(micros(reset) - 1);
            let status = case.look(&policy, &key, 5).await;
            case.same("not all units are back a microsecond before", status.remaining() < 5, true);
            case.same("the wait for all", status.wait(), Wait::For(Duration::from_micros(1)));
            case.same("the reset then", status.reset_after(), Duration::from_micros(1));
            case.advance(1);
            case.left("at the reset", &policy, &key, 5).await;
            case.same("reset", case.look(&policy, &key, 0).await.reset_after(), Duration::ZERO);
        }
    }
}

pub(super) async fn a_new_window_does_not_inherit_the_old_count(case: &Case) {
    let key = Key::from("caller");
    case.advance_to_multiple(WINDOW);
    for policy in windows() {
        let longest = match policy.algorithm() {
            Algorithm::SlidingWindow => 2 * WINDOW,
            Algorithm::SlidingBuckets { .. } => WINDOW + WINDOW / 10,
            _ => WINDOW,
        };
        for _ in 0..3 {
            case.must_take(&policy, &key, 5).await;
            case.advance(longest);
        }
        case.must_take(&policy, &key, 5).await;
        case.advance_to_multiple(2 * WINDOW);
        case.advance(2 * WINDOW);
    }
}

pub(super) async fn requests_do_not_prolong_the_window(case: &Case) {
    let key = Key::from("caller");
    case.advance_to_multiple(WINDOW);
    for policy in windows().drain(..3) {
        for second in 0..5 {
            let status = case.look(&policy, &key, 1).await;
            case.same("units left", status.remaining(), 5 - second);
            let verdict = case.take(&policy, &key, 1).await;
            let due = Duration::from_micros(WINDOW - second * SECOND);
            case.same("the end of the window", verdict.each()[0].reset_after(), due);
            case.advance(SECOND);
        }
        for second in 5..10 {
            let due = Duration::from_micros(WINDOW - second * SECOND);
            case.same("the wait for the end", case.denied(&policy, &key, 1).await, due);
            case.advance(SECOND);
        }
        case.left("in the next window", &policy, &key, 5).await;
    }
}

pub(super) async fn limits_above_a_thousand_a_second_are_not_truncated(case: &Case) {
    let key = Key::from("caller");
    for (limit, in_10_ms, wait) in [(1_500, 15, 667), (1_000_000, 10_000, 1), (4_000_000, 40_000, 1)] {
        let policy = Policy::new(&format!("{limit}"), Quota::per_second(limit));
        case.must_take(&policy, &key, limit).await;
        case.same("the wait for one", case.denied(&policy, &key, 1).await, Duration::from_micros(wait));
        case.advance(10_000);
        case.left("after 10 ms", &policy, &key, in_10_ms).await;
        case.must_take(&policy, &key, in_10_ms).await;
        case.denied(&policy, &key, 1).await;
    }
}

pub(super) async fn three_or_seven_a_second_have_no_rounding_error(case: &Case) {
    let key = Key::from("caller");
    for limit in [3, 7] {
        // Not 1: a full bucket would lose a fraction of a microsecond before each request.
        let policy = Policy::new(&format!("{limit} a second"), Quota::per_second(limit).burst(2));
        let start = case.time.now();
        case.must_take(&policy, &key, 1).await;
        for n in 1..=20 * limit {
            case.must_take(&policy, &key, 1).await;
            let wait = case.denied(&policy, &key, 1).await;
            case.time.advance(wait);
            let due = (n * SECOND).div_ceil(limit);
            let passed = case.time.now().as_micros() - start.as_micros();
            case.same(&format!("when request {n} passes"), passed, due);
        }
    }
}

pub(super) async fn microseconds_of_a_16_digit_time_are_kept(case: &Case) {
    let key = Key::from("caller");
    // If the last digits of the time were lost, the wait would be wrong by as much.
    for policy in plain() {
        case.advance_to_multiple(WINDOW);
        case.advance(1_234_567);
        case.must_take(&policy, &key, 5).await;
        let now = case.time.now();
        let reset = case.look(&policy, &key, 1).await.reset_after();
        for _ in 0..9 {
            case.advance(100_001);
            let passed = Duration::from_micros(case.time.now().as_micros() - now.as_micros());
            let status = case.look(&policy, &key, 1).await;
            case.same("the reset comes nearer by what has passed", status.reset_after(), reset - passed);
        }
    }
}
