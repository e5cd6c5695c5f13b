//! Cases of one policy, one key and one time.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Times, Wait};

use super::case::{Case, SECOND, WINDOW, plain};

pub(super) async fn the_limit_is_granted_and_not_one_more(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        for left in (0..5).rev() {
            let verdict = case.take(&policy, &key, 1).await;
            case.same("granted", verdict.times(), 1);
            case.same("delay", verdict.delay(), Duration::ZERO);
            case.same("wait", verdict.wait(), Wait::None);
            case.same("remaining", verdict.each()[0].remaining(), left);
        }
        for _ in 0..3 {
            let wait = case.denied(&policy, &key, 1).await;
            let bound = Duration::from_micros(2 * WINDOW);
            case.same("the wait is positive", wait > Duration::ZERO, true);
            case.same("the wait is at most two windows", wait <= bound, true);
        }
    }
}

pub(super) async fn the_first_request_on_a_fresh_key_passes(case: &Case) {
    for limit in [1, 3, 7, 9, 11, 997, 65_537, 99_991, 50_000_000_000, Quota::MAX_UNITS] {
        for algorithm in plain().iter().map(Policy::algorithm) {
            let Ok(policy) = Policy::try_from_parts("fresh", Quota::per_day(limit), algorithm) else {
                continue;
            };
            let key = Key::join([Key::from(limit), Key::from(algorithm.name())]);
            case.must_take(&policy, &key, 1).await;
        }
    }
}

pub(super) async fn a_cost_equal_to_the_capacity_passes(case: &Case) {
    for limit in [1, 3, 7, 997, 99_991, 50_000_000_000, Quota::MAX_UNITS] {
        for algorithm in plain().iter().map(Policy::algorithm) {
            let quota = Quota::per_day(limit);
            let quota =
                if let Algorithm::LeakyBucket { .. } = algorithm { quota.burst(limit) } else { quota };
            let Ok(policy) = Policy::try_from_parts("whole", quota, algorithm) else { continue };
            let key = Key::join([Key::from(limit), Key::from(algorithm.name())]);
            case.must_take(&policy, &key, limit).await;
            case.left("the whole was taken", &policy, &key, 0).await;
        }
    }
}

pub(super) async fn a_cost_above_the_capacity_never_passes_and_is_not_recorded(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        for cost in [6, 7, 1_000, 1 << 32, Quota::MAX_UNITS, u64::MAX] {
            let verdict = case.take(&policy, &key, cost).await;
            case.same("granted", verdict.times(), 0);
            case.same("wait", verdict.wait(), Wait::Never);
            case.same("remaining", verdict.each()[0].remaining(), 5);
        }
        let often = Times::between(u32::MAX, u32::MAX);
        let verdict = case.acquire(&[Check::new(&policy, &key, u64::MAX)], often).await;
        case.same("wait for 2^96 units", verdict.wait(), Wait::Never);
        case.must_take(&policy, &key, 5).await;
        case.same("wait, at the limit", case.take(&policy, &key, 6).await.wait(), Wait::Never);
    }
}

pub(super) async fn a_cost_of_zero_passes_and_charges_nothing(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        for left in [5, 0] {
            for times in [Times::ONCE, Times::up_to(9), Times::between(3, 4)] {
                let verdict = case.acquire(&[Check::new(&policy, &key, 0)], times).await;
                case.same("granted", verdict.times(), times.max());
                case.same("remaining", verdict.each()[0].remaining(), left);
            }
            case.left("after a cost of 0", &policy, &key, left).await;
            case.take(&policy, &key, 5).await;
        }
    }
}

pub(super) async fn a_look_charges_nothing_and_reports_the_wait(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        for cost in [0, 1, 5] {
            let status = case.look(&policy, &key, cost).await;
            case.same("wait on a fresh key", status.wait(), Wait::None);
            case.same("reset of a fresh key", status.reset_after(), Duration::ZERO);
            case.same("remaining", status.remaining(), 5);
        }
        case.must_take(&policy, &key, 3).await;
        for cost in [1, 2, 3, 4, 5, 6] {
            let looked = case.look(&policy, &key, cost).await;
            case.same("remaining", looked.remaining(), 2);
            match cost {
                1 | 2 => case.same("wait", looked.wait(), Wait::None),
                6 => case.same("wait", looked.wait(), Wait::Never),
                _ => {
                    let wait = case.denied(&policy, &key, cost).await;
                    case.same("the wait of a look", looked.wait(), Wait::For(wait));
                }
            }
        }
        case.must_take(&policy, &key, 2).await;
    }
}

pub(super) async fn denied_requests_are_not_recorded(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        case.must_take(&policy, &key, 5).await;
        let wait = case.denied(&policy, &key, 1).await;
        let end = case.time.now().saturating_add(wait);
        let step = wait / 20;
        for _ in 0..19 {
            for cost in [1, 5] {
                case.denied(&policy, &key, cost).await;
            }
            case.time.advance(step);
            let due = Duration::from_micros(end.as_micros() - case.time.now().as_micros());
            case.same("the wait after many retries", case.denied(&policy, &key, 1).await, due);
        }
        case.time.set(end);
        case.must_take(&policy, &key, 1).await;
    }
}

pub(super) async fn a_denied_large_cost_does_not_change_the_wait(case: &Case) {
    let key = Key::from("caller");
    let quota = Quota::new(1_000_000, Duration::from_micros(SECOND)).burst(1_000_000);
    let large = Policy::new("large", quota);
    case.must_take(&large, &key, 1).await;
    case.same("the wait of a million", case.denied(&large, &key, 1_000_000).await, Duration::from_micros(1));
    case.same("the wait of 2^64 - 1", case.take(&large, &key, u64::MAX).await.wait(), Wait::Never);
    case.must_take(&large, &key, 999_999).await;
    case.same("the wait of one", case.denied(&large, &key, 1).await, Duration::from_micros(1));
    case.same("the wait of many", case.denied(&large, &key, 500_000).await, Duration::from_millis(500));
}
