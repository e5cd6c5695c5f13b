//! Another limit, another time.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Key, Store, Timestamp};

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
