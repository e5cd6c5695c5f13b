//! One policy, one key, one time.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Store, Times, Wait};

use super::bench::{Bench, SECOND, WINDOW, plain};

pub(super) async fn the_limit_is_granted_and_not_one_more<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        for left in (0..5).rev() {
            let verdict = bench.take(&policy, &key, 1).await;
            bench.same("granted", verdict.times(), 1);
            bench.same("delay", verdict.delay(), Duration::ZERO);
            bench.same("wait", verdict.wait(), Wait::None);
            bench.same("remaining", verdict.each()[0].remaining(), left);
        }
        for _ in 0..3 {
            let wait = bench.denied(&policy, &key, 1).await;
            let bound = Duration::from_micros(2 * WINDOW);
            bench.same("the wait is more than nothing", wait > Duration::ZERO, true);
            bench.same("the wait is at most two windows", wait <= bound, true);
        }
    }
}

pub(super) async fn the_first_request_on_a_fresh_key_passes<S: Store<Error: Debug>>(bench: &Bench<S>) {
    for limit in [1, 3, 7, 9, 11, 997, 65_537, 99_991] {
        for algorithm in plain().iter().map(Policy::algorithm) {
            let policy = Policy::new("fresh", Quota::per_second(limit)).with_algorithm(algorithm);
            let key = Key::join([Key::from(limit), Key::from(algorithm.name())]);
            bench.must_take(&policy, &key, 1).await;
        }
    }
}

pub(super) async fn a_cost_equal_to_the_capacity_passes<S: Store<Error: Debug>>(bench: &Bench<S>) {
    for limit in [1, 3, 7, 997, 99_991] {
        for algorithm in plain().iter().map(Policy::algorithm) {
            let quota = Quota::per_second(limit);
            let quota =
                if let Algorithm::LeakyBucket { .. } = algorithm { quota.burst(limit) } else { quota };
            let Ok(policy) = Policy::try_new("whole", quota, algorithm) else { continue };
            let key = Key::join([Key::from(limit), Key::from(algorithm.name())]);
            bench.must_take(&policy, &key, limit).await;
            bench.left("the whole was taken", &policy, &key, 0).await;
        }
    }
}

pub(super) async fn what_can_never_pass_is_told_so_and_recorded_nowhere<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    for policy in plain() {
        for cost in [6, 7, 1_000, u32::MAX] {
            let verdict = bench.take(&policy, &key, cost).await;
            bench.same("granted", verdict.times(), 0);
            bench.same("wait", verdict.wait(), Wait::Never);
            bench.same("remaining", verdict.each()[0].remaining(), 5);
        }
        let often = Times::between(u32::MAX, u32::MAX);
        let verdict = bench.acquire(&[Check::new(&policy, &key, u32::MAX)], often).await;
        bench.same("wait for 2^64 units", verdict.wait(), Wait::Never);
        bench.must_take(&policy, &key, 5).await;
        bench.same("wait, at the limit", bench.take(&policy, &key, 6).await.wait(), Wait::Never);
    }
}

pub(super) async fn a_cost_of_zero_passes_and_charges_nothing<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        for left in [5, 0] {
            for times in [Times::ONCE, Times::up_to(9), Times::between(3, 4)] {
                let verdict = bench.acquire(&[Check::new(&policy, &key, 0)], times).await;
                bench.same("granted", verdict.times(), times.max());
                bench.same("remaining", verdict.each()[0].remaining(), left);
            }
            bench.left("after a cost of 0", &policy, &key, left).await;
            bench.take(&policy, &key, 5).await;
        }
    }
}

pub(super) async fn a_look_charges_nothing_and_tells_the_wait_of_its_cost<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    for policy in plain() {
        for cost in [0, 1, 5] {
            let status = bench.look(&policy, &key, cost).await;
            bench.same("wait on a fresh key", status.wait(), Wait::None);
            bench.same("reset of a fresh key", status.reset_after(), Duration::ZERO);
            bench.same("remaining", status.remaining(), 5);
        }
        bench.must_take(&policy, &key, 3).await;
        for cost in [1, 2, 3, 4, 5, 6] {
            let looked = bench.look(&policy, &key, cost).await;
            bench.same("remaining", looked.remaining(), 2);
            match cost {
                1 | 2 => bench.same("wait", looked.wait(), Wait::None),
                6 => bench.same("wait", looked.wait(), Wait::Never),
                _ => {
                    let wait = bench.denied(&policy, &key, cost).await;
                    bench.same("the wait of a look", looked.wait(), Wait::For(wait));
                }
            }
        }
        bench.must_take(&policy, &key, 2).await;
    }
}

pub(super) async fn denied_requests_are_not_recorded<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        bench.must_take(&policy, &key, 5).await;
        let wait = bench.denied(&policy, &key, 1).await;
        let end = bench.time.now().saturating_add(wait);
        let step = wait / 20;
        for _ in 0..19 {
            for cost in [1, 5] {
                bench.denied(&policy, &key, cost).await;
            }
            bench.time.advance(step);
            let due = Duration::from_micros(end.as_micros() - bench.time.now().as_micros());
            bench.same("the wait of who keeps trying", bench.denied(&policy, &key, 1).await, due);
        }
        bench.time.set(end);
        bench.must_take(&policy, &key, 1).await;
    }
}

pub(super) async fn the_wait_does_not_follow_a_large_cost_that_was_denied<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    let quota = Quota::new(1_000_000, Duration::from_micros(SECOND)).burst(1_000_000);
    let large = Policy::new("large", quota);
    bench.must_take(&large, &key, 1).await;
    bench.same(
        "the wait of a million",
        bench.denied(&large, &key, 1_000_000).await,
        Duration::from_micros(1),
    );
    bench.same("the wait of 2^32 - 1", bench.take(&large, &key, u32::MAX).await.wait(), Wait::Never);
    bench.must_take(&large, &key, 999_999).await;
    bench.same("the wait of one", bench.denied(&large, &key, 1).await, Duration::from_micros(1));
    bench.same("the wait of many", bench.denied(&large, &key, 500_000).await, Duration::from_millis(500));
}
