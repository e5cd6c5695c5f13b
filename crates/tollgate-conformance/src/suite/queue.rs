//! The leaky bucket, which delays.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Store, Times, Wait};

use super::bench::Bench;

/// Ten a second, and so many milliseconds in the queue.
fn queue(burst: u32, max_wait_ms: u64) -> Policy {
    let max_wait = Duration::from_millis(max_wait_ms);
    Policy::new("queue", Quota::per_second(10).burst(burst))
        .with_algorithm(Algorithm::LeakyBucket { max_wait })
}

pub(super) async fn what_comes_too_early_is_delayed_behind_what_came_before<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let policy = queue(2, 1_000);
    let key = Key::from("somebody");
    for (cost, remaining, delay_ms) in [(1, 1, 0), (1, 0, 0), (1, 0, 100), (1, 0, 200), (3, 0, 500)] {
        let verdict = bench.take(&policy, &key, cost).await;
        bench.same("granted", verdict.times(), 1);
        bench.same("delay", verdict.delay(), Duration::from_millis(delay_ms));
        bench.same("remaining", verdict.each()[0].remaining(), remaining);
    }
    bench.advance(250_000);
    bench.same("the delay later", bench.take(&policy, &key, 1).await.delay(), Duration::from_millis(350));
    let thirds = Policy::new("thirds", Quota::per_second(3))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) });
    for delay in [0, 333_334, 666_667, 1_000_000] {
        let verdict = bench.take(&thirds, &key, 1).await;
        bench.same("delays round up", verdict.delay(), Duration::from_micros(delay));
    }
}

pub(super) async fn beyond_the_longest_wait_it_is_denied<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let policy = queue(1, 300);
    let key = Key::from("somebody");
    bench.same("never", bench.take(&policy, &key, 5).await.wait(), Wait::Never);
    let verdict = bench.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(9)).await;
    bench.same("granted at once and in the queue", verdict.times(), 4);
    bench.same("the delay of the last", verdict.delay(), Duration::from_millis(300));
    bench.same("wait", bench.denied(&policy, &key, 1).await, Duration::from_millis(100));
    bench.same("wait", bench.denied(&policy, &key, 3).await, Duration::from_millis(300));
    bench.advance(99_999);
    bench.same("wait", bench.denied(&policy, &key, 1).await, Duration::from_micros(1));
    bench.advance(1);
    bench.same("delay", bench.take(&policy, &key, 1).await.delay(), Duration::from_millis(300));
    bench.same("never, with a full queue", bench.take(&policy, &key, 5).await.wait(), Wait::Never);
}

pub(super) async fn a_look_and_a_cost_of_zero_are_not_queued<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let policy = queue(1, 1_000);
    let key = Key::from("somebody");
    bench.must_take(&policy, &key, 5).await;
    let verdict = bench.take(&policy, &key, 0).await;
    bench.same("granted", verdict.times(), 1);
    bench.same("the delay of a cost of 0", verdict.delay(), Duration::ZERO);
    bench.same("what could be queued passes", bench.look(&policy, &key, 6).await.wait(), Wait::None);
    let more = bench.look(&policy, &key, 7).await;
    bench.same("what could not be has to wait", more.wait(), Wait::For(Duration::from_millis(100)));
    bench.same(
        "the delay after both",
        bench.take(&policy, &key, 1).await.delay(),
        Duration::from_millis(500),
    );
}

pub(super) async fn only_the_latest_grant_comes_back<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let policy = queue(1, 1_000);
    let key = Key::from("somebody");
    let first = bench.must_take(&policy, &key, 2).await;
    let second = bench.must_take(&policy, &key, 3).await;
    let after = |units: u64| Duration::from_millis(100 * units);
    bench.refund(&policy, &key, 2, first).await;
    bench.same("the first stays", bench.look(&policy, &key, 1).await.reset_after(), after(5));
    bench.refund(&policy, &key, 3, second).await;
    bench.same("the second is back", bench.look(&policy, &key, 1).await.reset_after(), after(2));
    bench.refund(&policy, &key, 3, second).await;
    bench.same("but not twice", bench.look(&policy, &key, 1).await.reset_after(), after(2));
    bench.advance(200_000);
    bench.refund(&policy, &key, 2, first).await;
    bench.same("what left the queue stays", bench.look(&policy, &key, 11).await.wait(), Wait::None);
    bench.same("nothing is gained", bench.look(&policy, &key, 12).await.wait(), Wait::Never);
}
