//! Cases of a changed limit or a changed clock.

use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Timestamp};

use super::case::{Case, SECOND, WINDOW, micros, plain, plain_with_limit};
use crate::history::longest_wait;

pub(super) async fn a_lowered_limit_reports_a_wait(case: &Case) {
    let key = Key::from("caller");
    for (before, after) in plain_with_limit(20).iter().zip(plain_with_limit(4)) {
        for _ in 0..10 {
            case.must_take(before, &key, 2).await;
            case.advance(30_000);
        }
        case.left("after the limit was lowered", &after, &key, 0).await;
        for cost in [4, 1] {
            let wait = case.denied(&after, &key, cost).await;
            case.same("the wait is bounded", wait <= longest_wait(&after), true);
            case.advance(micros(wait) - 1);
            case.denied(&after, &key, cost).await;
            case.advance(1);
            case.must_take(&after, &key, cost).await;
        }
    }
}

pub(super) async fn a_raised_limit_applies_at_once(case: &Case) {
    let key = Key::from("caller");
    for (before, after) in plain().iter().zip(plain_with_limit(50)) {
        case.must_take(before, &key, 4).await;
        // A bucket keeps its debt in time, 8 of 10 seconds; a window keeps its count.
        let left = match after.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => 10,
            _ => 46,
        };
        case.left("after the limit was raised", &after, &key, left).await;
        case.must_take(&after, &key, left).await;
        case.denied(&after, &key, 1).await;
    }
}

/// A leaky bucket refunds only its latest grant. If the limits have different fractions, no stamp
/// of one identifies the latest grant under the other.
pub(super) async fn a_stamp_of_another_limit_is_not_the_latest_of_a_queue(case: &Case) {
    let key = Key::from("caller");
    let of = |limit| {
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
        Policy::new("queue", Quota::per_second(limit).burst(limit)).with_algorithm(queue)
    };
    let (before, after) = (of(7), of(3));
    let stamp = case.must_take(&before, &key, 3).await;
    case.same("the fraction is larger than there are parts", stamp.fraction() >= 3, true);
    case.refund(&after, &key, 3, stamp).await;
    let left = case.look(&before, &key, 1).await.remaining();
    case.same("nothing was refunded", left <= 4, true);
}

/// A debt that no policy can make comes from a clock that ran ahead, and is forgiven. A debt of
/// another policy that shares the state is not.
pub(super) async fn a_debt_of_a_policy_that_shares_state_is_not_forgiven(case: &Case) {
    let key = Key::from("caller");
    let leaky = Algorithm::LeakyBucket { max_wait: Duration::ZERO };
    for (name, algorithm) in [("bucket", Algorithm::Gcra), ("leaky", leaky)] {
        let of = |limit: u32, burst| {
            let quota = Quota::new(limit, Duration::from_secs(60)).burst(burst);
            Policy::new(name, quota).with_algorithm(algorithm)
        };
        let (large, small) = (of(10, 100), of(60, 10).sharing_state_with(&of(10, 100)));
        case.must_take(&large, &key, 100).await;
        for _ in 0..3 {
            case.left("by the small policy", &small, &key, 0).await;
            let wait = case.denied(&small, &key, 1).await;
            case.same("the wait for the debt beyond the burst and a unit", wait, Duration::from_secs(591));
            case.left("after a request under the small policy", &large, &key, 0).await;
            case.same("the wait", case.denied(&large, &key, 1).await, Duration::from_secs(6));
        }
        case.advance(60 * SECOND);
        case.denied(&small, &key, 1).await;
        case.left("after a minute", &large, &key, 10).await;
    }
}

pub(super) async fn a_clock_that_steps_back_refills_nothing_and_blocks_no_caller(case: &Case) {
    let key = Key::from("caller");
    case.advance(1_000 * SECOND);
    for back in [1, SECOND / 3, SECOND, WINDOW - 1, WINDOW, WINDOW + 1, 7 * WINDOW, 100 * WINDOW] {
        for policy in plain() {
            let now = case.time.now();
            case.must_take(&policy, &key, 5).await;
            case.time.set(Timestamp::from_micros(now.as_micros() - back));
            case.left(&format!("after {back} µs back"), &policy, &key, 0).await;
            let wait = case.denied(&policy, &key, 1).await;
            case.same("the wait is bounded", wait <= longest_wait(&policy), true);
            case.advance(micros(wait));
            case.must_take(&policy, &key, 1).await;
            let reset = case.look(&policy, &key, 1).await.reset_after();
            case.same("the reset is bounded", reset <= longest_wait(&policy), true);
            case.time.set(now.saturating_add(Duration::from_micros(3 * WINDOW)));
            case.left("three windows after the grant", &policy, &key, 5).await;
        }
    }
}

/// The old debt was forgiven when the clock stepped back. The current debt belongs to later grants.
pub(super) async fn a_refund_from_before_the_clock_stepped_back_is_void(case: &Case) {
    let key = Key::from("caller");
    case.advance(1_000 * SECOND);
    for back in [7 * WINDOW, 100 * WINDOW] {
        for policy in plain() {
            let now = case.time.now();
            let stamp = case.must_take(&policy, &key, 5).await;
            case.time.set(Timestamp::from_micros(now.as_micros() - back));
            let reset = case.look(&policy, &key, 1).await.reset_after();
            case.advance(micros(reset));
            case.must_take(&policy, &key, 5).await;
            case.refund(&policy, &key, 5, stamp).await;
            case.left(&format!("after {back} µs back and a refund"), &policy, &key, 0).await;
            case.time.set(now.saturating_add(Duration::from_micros(3 * WINDOW)));
        }
    }
    // A step back by a microsecond forgives only that microsecond of a bucket's debt.
    let policy = &plain()[0];
    let now = case.time.now();
    let stamp = case.must_take(policy, &key, 5).await;
    case.time.set(Timestamp::from_micros(now.as_micros() - 1));
    case.refund(policy, &key, 5, stamp).await;
    case.advance(1);
    case.left("after a refund 1 µs before its grant", policy, &key, 5).await;
}
