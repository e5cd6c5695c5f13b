//! Cases of units that were used beyond what was granted.

use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Timestamp, Wait};

use super::case::{Case, SECOND, WINDOW, micros, plain, windows, with_debt};
use crate::calendar::CALENDAR_WINDOW;
use crate::history::longest_wait;
use crate::oracle::Oracle;

/// More units than any policy of these cases can be charged.
const MANY: u64 = 1_000;

/// Takes 2 of 5 units and charges `units`. Returns the oracle, which has done so too.
async fn charged_after_a_grant(case: &Case, policy: &Policy, key: &Key, units: u64) -> Oracle {
    let now = case.time.now();
    let mut oracle = Oracle::new(policy);
    oracle.look(policy, now);
    oracle.charge(policy, now, 2);
    case.must_take(policy, key, 2).await;
    let due = oracle.charge_beyond(policy, now, units);
    case.charged(policy, key, units, (due.charged, due.debt, due.forgiven)).await;
    oracle.look(policy, now);
    oracle
}

pub(super) async fn a_charge_within_what_is_left_is_no_debt(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        case.charged(&policy, &key, 1, (1, 0, 0)).await;
        case.must_take(&policy, &key, 1).await;
        case.charged(&policy, &key, 2, (2, 0, 0)).await;
        case.left("after 3 units charged and 1 taken", &policy, &key, 1).await;
        case.charged(&policy, &key, 1, (1, 0, 0)).await;
        case.left("after all was charged", &policy, &key, 0).await;
        let other = Key::from("other caller");
        case.left("another key was not charged", &policy, &other, 5).await;
    }
}

pub(super) async fn a_charge_of_zero_charges_nothing(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        case.charged(&policy, &key, 0, (0, 0, 0)).await;
        let look = case.look(&policy, &key, 1).await;
        case.same("the reset of an unused key", look.reset_after(), Duration::ZERO);
        case.must_take(&policy, &key, 5).await;
        case.charged(&policy, &key, 0, (0, 0, 0)).await;
        case.left("after a charge of 0", &policy, &key, 0).await;
    }
}

pub(super) async fn requests_wait_exactly_until_debt_is_paid(case: &Case) {
    for (n, units) in [4, 5, 7, 8].into_iter().enumerate() {
        let key = Key::from(n as u64);
        for policy in with_debt(5) {
            let oracle = charged_after_a_grant(case, &policy, &key, units).await;
            case.left("in debt", &policy, &key, 0).await;
            let wait = case.denied(&policy, &key, 1).await;
            let due = oracle.wait(&policy, case.time.now(), 1);
            case.same(&format!("the wait in debt of {}", policy.name()), Wait::For(wait), due);
            case.advance(micros(wait) - 1);
            case.denied(&policy, &key, 1).await;
            case.advance(1);
            case.must_take(&policy, &key, 1).await;
        }
    }
}

pub(super) async fn at_most_one_more_capacity_is_charged_and_the_rest_is_forgiven(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        let oracle = charged_after_a_grant(case, &policy, &key, 12).await;
        case.charged(&policy, &key, 1, (0, 0, 1)).await;
        case.charged(&policy, &key, u64::MAX, (0, 0, u64::MAX)).await;
        let reset = case.look(&policy, &key, 1).await.reset_after();
        case.same("the reset", reset, oracle.reset_after(&policy, case.time.now()));
        case.advance(micros(reset) - 1);
        let left = case.look(&policy, &key, 1).await.remaining();
        case.same("the full quota has not returned before", left < 5, true);
        case.advance(1);
        case.charged(&policy, &key, 11, (10, 5, 1)).await;
    }
}

/// Also of another version of the policy, as during a deployment.
pub(super) async fn no_look_and_no_refusal_forgives_debt(case: &Case) {
    let key = Key::from("caller");
    // The largest limit leaves room for units in a window: it only looks.
    let versions = [1, 2, 3, 4, 5, 50].map(with_debt);
    for (n, policy) in with_debt(5).iter().enumerate() {
        let oracle = charged_after_a_grant(case, policy, &key, 6).await;
        for _ in 0..3 {
            for version in &versions {
                let (version, now) = (&version[n], case.time.now());
                case.look(version, &key, 1).await;
                case.charged(version, &key, 0, (0, 0, 0)).await;
                if version.capacity() <= 5 {
                    case.left("in debt", version, &key, 0).await;
                    case.denied(version, &key, 1).await;
                }
                let look = case.look(policy, &key, 1).await;
                case.same("the wait after looks", look.wait(), oracle.wait(policy, now, 1));
                case.same("the reset after looks", look.reset_after(), oracle.reset_after(policy, now));
            }
            case.advance(1_000);
        }
        let charged = case.charge(policy, &key, MANY).await.charged;
        case.same(&format!("the debt of {} that is left", policy.name()), charged, 2);
    }
}

pub(super) async fn debt_of_a_window_leaves_with_it(case: &Case) {
    let key = Key::from("caller");
    for policy in windows() {
        case.advance_to_multiple(WINDOW);
        case.must_take(&policy, &key, 1).await;
        let first = case.look(&policy, &key, 1).await.reset_after();
        case.advance(WINDOW / 2);
        case.charged(&policy, &key, 8, (8, 4, 0)).await;
        if let Algorithm::FixedWindow { .. } | Algorithm::CalendarWindow { .. } = policy.algorithm() {
            let reset = case.look(&policy, &key, 1).await.reset_after();
            case.same("the end of the window", micros(reset), micros(first) - WINDOW / 2);
        }
        let reset = case.denied(&policy, &key, 5).await;
        case.advance(micros(reset) - 1);
        case.denied(&policy, &key, 5).await;
        case.advance(1);
        case.must_take(&policy, &key, 5).await;
    }
}

pub(super) async fn a_leaky_bucket_forgives_debt(case: &Case) {
    let key = Key::from("caller");
    for (name, wait) in [("at once", 0), ("queue", 60)] {
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(wait) };
        let policy = Policy::new(name, Quota::per_second(1).burst(5)).with_algorithm(queue);
        case.charged(&policy, &key, 3, (0, 0, 3)).await;
        case.must_take(&policy, &key, 4).await;
        case.charged(&policy, &key, 3, (0, 0, 3)).await;
        case.left("after a charge", &policy, &key, 1).await;
    }
}

/// Twice 72 windows of 366 days exceed 2^52 µs, and twice 71 do not.
pub(super) async fn a_bucket_that_cannot_pay_in_time_forgives_debt(case: &Case) {
    let key = Key::from("caller");
    let slow = |name, burst| Policy::new(name, Quota::new(1, Duration::from_secs(366 * 86_400)).burst(burst));
    let (slowest, slower) = (slow("slowest", 71), slow("slower", 72));
    case.charged(&slower, &key, 1, (0, 0, 1)).await;
    case.left("after a charge", &slower, &key, 72).await;
    case.charged(&slowest, &key, 150, (142, 71, 8)).await;
    case.left("after a charge", &slowest, &key, 0).await;
}

pub(super) async fn a_refund_of_a_grant_reduces_debt(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        let stamp = case.must_take(&policy, &key, 4).await;
        case.charged(&policy, &key, 4, (4, 3, 0)).await;
        case.refund(&policy, &key, 2, stamp).await;
        case.left("in debt after a refund", &policy, &key, 0).await;
        case.refund(&policy, &key, 2, stamp.after_refund(&policy, 2)).await;
        case.left("after a refund of the rest", &policy, &key, 1).await;
        case.charged(&policy, &key, MANY, (6, 5, MANY - 6)).await;
    }
}

pub(super) async fn a_reset_forgets_debt(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        case.charged(&policy, &key, 10, (10, 5, 0)).await;
        case.reset(&key, &[&policy]).await;
        case.must_take(&policy, &key, 5).await;
    }
}

pub(super) async fn more_units_than_fit_into_32_bits_are_charged(case: &Case) {
    let many = u64::from(u32::MAX) + 2;
    for limit in [many, 50_000_000_000, Quota::MAX_UNITS] {
        let key = Key::from(limit);
        for policy in large(limit) {
            case.charged(&policy, &key, many - 1, (many - 1, 0, 0)).await;
            case.left("after a charge", &policy, &key, limit - many + 1).await;
            case.charged(&policy, &key, limit, (limit, many - 1, 0)).await;
            let rest = limit - many + 1;
            case.charged(&policy, &key, u64::MAX, (rest, rest, u64::MAX - rest)).await;
            let key = Key::from(u64::MAX - limit);
            case.charged(&policy, &key, 2 * limit + 1, (2 * limit, limit, 1)).await;
        }
    }
}

/// A policy of each algorithm that has debt and such a limit.
fn large(limit: u64) -> Vec<Policy> {
    let quota = Quota::new(limit, Duration::from_micros(1 << 40));
    let algorithms = [
        Algorithm::Gcra,
        Algorithm::FIXED_WINDOW,
        Algorithm::FIXED_WINDOW_ALIGNED,
        CALENDAR_WINDOW,
        Algorithm::SlidingWindow,
        Algorithm::SLIDING_BUCKETS,
    ];
    let policy = |algorithm: Algorithm| Policy::try_from_parts(algorithm.name(), quota, algorithm).ok();
    algorithms.into_iter().filter_map(policy).collect()
}

pub(super) async fn a_clock_that_steps_back_cuts_debt_of_a_bucket_to_one_capacity(case: &Case) {
    case.advance(1_000 * SECOND);
    for (n, back) in [1, WINDOW / 2, 100 * WINDOW].into_iter().enumerate() {
        let key = Key::from(n as u64);
        for policy in plain() {
            let now = case.time.now();
            let mut oracle = charged_after_a_grant(case, &policy, &key, 8).await;
            case.time.set(Timestamp::from_micros(now.as_micros() - back));
            let behind = case.time.now();
            let due = oracle.look(&policy, behind).remaining;
            case.left(&format!("after {back} µs back"), &policy, &key, due).await;
            if due == 0 {
                let wait = case.denied(&policy, &key, 1).await;
                // A queue waits for the clock.
                let is_queue = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
                let bound = longest_wait(&policy) + Duration::from_micros(if is_queue { back } else { 0 });
                case.same("the wait is bounded", wait <= bound, true);
                case.same("the wait", Wait::For(wait), oracle.wait(&policy, behind, 1));
                oracle.refuse(&policy, behind);
            }
            let due = oracle.charge_beyond(&policy, behind, MANY);
            case.same(&format!("the debt of {}", policy.name()), case.charge(&policy, &key, MANY).await, due);
            case.time.set(now.saturating_add(Duration::from_micros(3 * WINDOW)));
        }
    }
}
