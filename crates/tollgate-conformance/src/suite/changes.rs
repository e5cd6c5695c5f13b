//! Another limit, another time.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Store, Timestamp};

use super::bench::{Bench, SECOND, WINDOW, micros, plain, plain_with_limit};
use crate::history::longest_wait;

pub(super) async fn a_wait_is_there_after_the_limit_was_lowered<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for (before, after) in plain_with_limit(20).iter().zip(plain_with_limit(4)) {
        for _ in 0..10 {
            bench.must_take(before, &key, 2).await;
            bench.advance(30_000);
        }
        bench.left("after the limit was lowered", &after, &key, 0).await;
        for cost in [4, 1] {
            let wait = bench.denied(&after, &key, cost).await;
            bench.same("the wait is bounded", wait <= longest_wait(&after), true);
            bench.advance(micros(wait) - 1);
            bench.denied(&after, &key, cost).await;
            bench.advance(1);
            bench.must_take(&after, &key, cost).await;
        }
    }
}

pub(super) async fn a_raised_limit_counts_at_once<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for (before, after) in plain().iter().zip(plain_with_limit(50)) {
        bench.must_take(before, &key, 4).await;
        // Buckets keep what they lack in time: 8 of 10 seconds. Windows keep their count.
        let left = match after.algorithm() {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => 10,
            _ => 46,
        };
        bench.left("after the limit was raised", &after, &key, left).await;
        bench.must_take(&after, &key, left).await;
        bench.denied(&after, &key, 1).await;
    }
}

/// Only a leaky bucket's latest grant can come back, and under another limit no stamp tells which that is where fractions differ.
pub(super) async fn a_stamp_in_parts_of_another_size_is_not_the_latest<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    let of = |limit| {
        let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
        Policy::new("queue", Quota::per_second(limit).burst(limit)).with_algorithm(queue)
    };
    let (before, after) = (of(7), of(3));
    let stamp = bench.must_take(&before, &key, 3).await;
    bench.same("the fraction is larger than there are parts", stamp.fraction() >= 3, true);
    bench.refund(&after, &key, 3, stamp).await;
    let left = bench.look(&before, &key, 1).await.remaining();
    bench.same("nothing came back", left <= 4, true);
}

/// A debt that no policy could have made is that of a clock which ran ahead. One that another policy has made, over the same
/// state, is none.
pub(super) async fn a_debt_of_a_policy_beside_is_not_forgiven<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    let leaky = Algorithm::LeakyBucket { max_wait: Duration::ZERO };
    for (name, algorithm) in [("bucket", Algorithm::Gcra), ("leaky", leaky)] {
        let of = |limit: u32, burst| {
            let quota = Quota::new(limit, Duration::from_secs(60)).burst(burst);
            Policy::new(name, quota).with_algorithm(algorithm)
        };
        let (large, small) = (of(10, 100), of(60, 10).sharing_state_with(&of(10, 100)));
        bench.must_take(&large, &key, 100).await;
        for _ in 0..3 {
            bench.left("by the policy beside", &small, &key, 0).await;
            let wait = bench.denied(&small, &key, 1).await;
            bench.same("what is owed beyond its burst, and a unit", wait, Duration::from_secs(591));
            bench.left("after the policy beside was asked", &large, &key, 0).await;
            bench.same("the wait", bench.denied(&large, &key, 1).await, Duration::from_secs(6));
        }
        bench.advance(60 * SECOND);
        bench.denied(&small, &key, 1).await;
        bench.left("after a minute", &large, &key, 10).await;
    }
}

pub(super) async fn a_clock_that_steps_back_refills_nothing_and_locks_nobody_out<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    bench.advance(1_000 * SECOND);
    for back in [1, SECOND / 3, SECOND, WINDOW - 1, WINDOW, WINDOW + 1, 7 * WINDOW, 100 * WINDOW] {
        for policy in plain() {
            let now = bench.time.now();
            bench.must_take(&policy, &key, 5).await;
            bench.time.set(Timestamp::from_micros(now.as_micros() - back));
            bench.left(&format!("after {back} µs back"), &policy, &key, 0).await;
            let wait = bench.denied(&policy, &key, 1).await;
            bench.same("the wait is bounded", wait <= longest_wait(&policy), true);
            bench.advance(micros(wait));
            bench.must_take(&policy, &key, 1).await;
            let reset = bench.look(&policy, &key, 1).await.reset_after();
            bench.same("the reset is bounded", reset <= longest_wait(&policy), true);
            bench.time.set(now.saturating_add(Duration::from_micros(3 * WINDOW)));
            bench.left("when time has come again", &policy, &key, 5).await;
        }
    }
}

/// What was owed was forgiven when the clock stepped back, and what is owed now is somebody else's.
pub(super) async fn a_refund_from_before_the_clock_stepped_back_is_void<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    bench.advance(1_000 * SECOND);
    for back in [7 * WINDOW, 100 * WINDOW] {
        for policy in plain() {
            let now = bench.time.now();
            let stamp = bench.must_take(&policy, &key, 5).await;
            bench.time.set(Timestamp::from_micros(now.as_micros() - back));
            let reset = bench.look(&policy, &key, 1).await.reset_after();
            bench.advance(micros(reset));
            bench.must_take(&policy, &key, 5).await;
            bench.refund(&policy, &key, 5, stamp).await;
            bench.left(&format!("after {back} µs back and a refund"), &policy, &key, 0).await;
            bench.time.set(now.saturating_add(Duration::from_micros(3 * WINDOW)));
        }
    }
    // By a moment: of a bucket, that moment is all that was forgiven.
    let policy = &plain()[0];
    let now = bench.time.now();
    let stamp = bench.must_take(policy, &key, 5).await;
    bench.time.set(Timestamp::from_micros(now.as_micros() - 1));
    bench.refund(policy, &key, 5, stamp).await;
    bench.advance(1);
    bench.left("after a refund a moment before its grant", policy, &key, 5).await;
}
