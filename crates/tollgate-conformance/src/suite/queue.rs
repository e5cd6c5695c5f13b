//! Cases of the leaky bucket, which delays.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Times, Wait};

use super::case::Case;

/// A queue of ten a second, with this longest wait.
fn queue(burst: u64, max_wait_ms: u64) -> Policy {
    let max_wait = Duration::from_millis(max_wait_ms);
    Policy::new("queue", Quota::per_second(10).burst(burst))
        .with_algorithm(Algorithm::LeakyBucket { max_wait })
}

pub(super) async fn early_requests_are_delayed_one_behind_the_other(case: &Case) {
    let policy = queue(2, 1_000);
    let key = Key::from("caller");
    for (cost, remaining, delay_ms) in [(1, 1, 0), (1, 0, 0), (1, 0, 100), (1, 0, 200), (3, 0, 500)] {
        let verdict = case.take(&policy, &key, cost).await;
        case.same("granted", verdict.times(), 1);
        case.same("delay", verdict.delay(), Duration::from_millis(delay_ms));
        case.same("remaining", verdict.each()[0].remaining(), remaining);
    }
    case.advance(250_000);
    case.same("the delay later", case.take(&policy, &key, 1).await.delay(), Duration::from_millis(350));
    let thirds = Policy::new("thirds", Quota::per_second(3))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) });
    for delay in [0, 333_334, 666_667, 1_000_000] {
        let verdict = case.take(&thirds, &key, 1).await;
        case.same("delays round up", verdict.delay(), Duration::from_micros(delay));
    }
}

pub(super) async fn a_delay_beyond_max_wait_is_denied(case: &Case) {
    let policy = queue(1, 300);
    let key = Key::from("caller");
    case.same("never", case.take(&policy, &key, 5).await.wait(), Wait::Never);
    let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(9)).await;
    case.same("granted immediately or in the queue", verdict.times(), 4);
    case.same("the delay of the last", verdict.delay(), Duration::from_millis(300));
    case.same("wait", case.denied(&policy, &key, 1).await, Duration::from_millis(100));
    case.same("wait", case.denied(&policy, &key, 3).await, Duration::from_millis(300));
    case.advance(99_999);
    case.same("wait", case.denied(&policy, &key, 1).await, Duration::from_micros(1));
    case.advance(1);
    case.same("delay", case.take(&policy, &key, 1).await.delay(), Duration::from_millis(300));
    case.same("never, with a full queue", case.take(&policy, &key, 5).await.wait(), Wait::Never);
}

pub(super) async fn a_look_and_a_cost_of_zero_are_not_queued(case: &Case) {
    let policy = queue(1, 1_000);
    let key = Key::from("caller");
    case.must_take(&policy, &key, 5).await;
    let verdict = case.take(&policy, &key, 0).await;
    case.same("granted", verdict.times(), 1);
    case.same("the delay of a cost of 0", verdict.delay(), Duration::ZERO);
    case.same("a cost that fits in the queue passes", case.look(&policy, &key, 6).await.wait(), Wait::None);
    let more = case.look(&policy, &key, 7).await;
    case.same("a cost that does not fit waits", more.wait(), Wait::For(Duration::from_millis(100)));
    case.same("the delay after both", case.take(&policy, &key, 1).await.delay(), Duration::from_millis(500));
}

pub(super) async fn only_the_latest_grant_is_refunded(case: &Case) {
    let policy = queue(1, 1_000);
    let key = Key::from("caller");
    let first = case.must_take(&policy, &key, 2).await;
    let second = case.must_take(&policy, &key, 3).await;
    let after = |units: u64| Duration::from_millis(100 * units);
    case.refund(&policy, &key, 2, first).await;
    case.same("the first is not refunded", case.look(&policy, &key, 1).await.reset_after(), after(5));
    case.refund(&policy, &key, 3, second).await;
    case.same("the second is refunded", case.look(&policy, &key, 1).await.reset_after(), after(2));
    case.refund(&policy, &key, 3, second).await;
    case.same("the second is not refunded twice", case.look(&policy, &key, 1).await.reset_after(), after(2));
    case.advance(200_000);
    case.refund(&policy, &key, 2, first).await;
    case.same(
        "a request that left the queue is not refunded",
        case.look(&policy, &key, 11).await.wait(),
        Wait::None,
    );
    case.same("no room is gained", case.look(&policy, &key, 12).await.wait(), Wait::Never);
}
