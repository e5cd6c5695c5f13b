//! Cases of a changed limit or a changed clock.

use std::time::Duration;

use tollgate_core::{Algorithm, Key, Policy, Quota, Timestamp};

use super::case::{Case, SECOND, WINDOW, micros, plain, plain_with_limit};
use crate::calendar::{CALENDAR_WINDOW, LATER_CALENDAR_WINDOW};
use crate::history::longest_wait;
use crate::random::Random;

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

/// Two versions of a policy in random order, with looks: windows admit at most the larger limit,
/// buckets at most both capacities and the faster rate, and queues with equal limits the larger
/// capacity.
pub(super) async fn two_versions_admit_no_more_than_both_allow(case: &Case) {
    if case.excuses.leases.is_some() {
        // What a lease holds is not in the state that both versions share.
        return;
    }
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let algorithm = random.one_of(&[
            Algorithm::Gcra,
            Algorithm::Gcra,
            Algorithm::LeakyBucket { max_wait: Duration::ZERO },
            Algorithm::FIXED_WINDOW_ALIGNED,
            CALENDAR_WINDOW,
            Algorithm::SLIDING_BUCKETS,
            Algorithm::SLIDING_LOG,
        ]);
        let is_bucket = matches!(algorithm, Algorithm::Gcra | Algorithm::LeakyBucket { .. });
        let limit = random.magnitude(1, 100);
        let versions = [(); 2].map(|()| {
            let limit = if random.below(2) == 0 { limit } else { random.magnitude(1, 100) };
            let mut quota = Quota::new(limit, Duration::from_micros(WINDOW));
            if is_bucket {
                quota = quota.burst(random.magnitude(1, 100));
            }
            let algorithm = match algorithm {
                Algorithm::LeakyBucket { .. } => {
                    Algorithm::LeakyBucket { max_wait: Duration::from_micros(random.magnitude(0, WINDOW)) }
                }
                other => other,
            };
            Policy::new("versions", quota).with_algorithm(algorithm)
        });
        let key = Key::from(seed);
        let mut grants: Vec<(u64, u64)> = Vec::new();
        for _ in 0..150 {
            let policy = &versions[usize::from(random.below(2) == 0)];
            let cost = random.magnitude(1, policy.largest_cost());
            match random.below(4) {
                0 => drop(case.look(policy, &key, cost).await),
                _ if case.take(policy, &key, cost).await.is_granted() => {
                    grants.push((case.time.now().as_micros(), cost));
                }
                _ => {}
            }
            case.advance(random.magnitude(0, WINDOW / 8));
        }
        for (i, (from, _)) in grants.iter().enumerate() {
            let mut used = 0;
            for (to, cost) in &grants[i..] {
                used += cost;
                let most = most_of(&versions, is_bucket, *from, *to);
                let within = most.is_none_or(|most| used <= most);
                case.same(&format!("{used} of {most:?} from {from} to {to} µs, {versions:?}"), within, true);
            }
        }
    }
}

/// The most units that both versions together admit between two times. `None` if there is no bound.
fn most_of([a, b]: &[Policy; 2], is_bucket: bool, from: u64, to: u64) -> Option<u64> {
    let limit = |policy: &Policy| policy.quota().limit();
    let most = limit(a).max(limit(b));
    if !is_bucket {
        return (to - from < WINDOW && (from / WINDOW == to / WINDOW || !is_fixed(a))).then_some(most);
    }
    // In units times the window, so that nothing is rounded before the end.
    let capacity = |policy: &Policy| (policy.numbers().horizon().0 + 1) * limit(policy);
    let is_queue = matches!(a.algorithm(), Algorithm::LeakyBucket { .. });
    let capacities = match is_queue && limit(a) == limit(b) {
        true => capacity(a).max(capacity(b)),
        false => capacity(a) + capacity(b),
    };
    Some((capacities + most * (to - from)) / WINDOW)
}

fn is_fixed(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::FixedWindow { .. } | Algorithm::CalendarWindow { .. })
}

/// An edit of the zone or of the anchor of a calendar, back and forth.
pub(super) async fn other_boundaries_apply_when_the_window_has_ended(case: &Case) {
    let key = Key::from("caller");
    let quota = Quota::new(5, Duration::from_micros(WINDOW));
    let of = |algorithm| Policy::new("edited", quota).with_algorithm(algorithm);
    // Windows of 10 seconds from multiples of 10 seconds on, and from 4 seconds later on.
    let (policy, edited) = (of(CALENDAR_WINDOW), of(LATER_CALENDAR_WINDOW));
    case.advance_to_multiple(WINDOW);
    let stamp = case.must_take(&policy, &key, 2).await;
    case.must_take(&edited, &key, 3).await;
    case.same("the wait by the edited", micros(case.denied(&edited, &key, 1).await), WINDOW);
    case.advance(4 * SECOND);
    // At a boundary of the edited policy.
    for other in [&policy, &edited] {
        case.same("the wait", micros(case.denied(other, &key, 1).await), WINDOW - 4 * SECOND);
    }
    case.refund(&edited, &key, 2, stamp).await;
    case.left("after a refund", &policy, &key, 2).await;
    case.must_take(&policy, &key, 2).await;
    case.advance(WINDOW - 4 * SECOND);
    // The window has ended. Its successor ends by the boundaries of the edited policy.
    let stamp = case.must_take(&edited, &key, 5).await;
    for other in [&policy, &edited] {
        case.same("the wait in the next window", micros(case.denied(other, &key, 1).await), 4 * SECOND);
    }
    case.advance(4 * SECOND);
    case.must_take(&policy, &key, 5).await;
    case.same("the wait", micros(case.denied(&edited, &key, 1).await), WINDOW - 4 * SECOND);
    case.refund(&policy, &key, 5, stamp).await;
    case.left("after a refund to a window that has ended", &edited, &key, 0).await;
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
            // A queue may be that of another version, so it waits for the clock.
            let is_queue = matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
            let behind = Duration::from_micros(if is_queue { back } else { 0 });
            case.same("the wait is bounded", wait <= longest_wait(&policy) + behind, true);
            case.advance(micros(wait));
            case.must_take(&policy, &key, 1).await;
            let reset = case.look(&policy, &key, 1).await.reset_after();
            case.same("the reset is bounded", reset <= longest_wait(&policy) + behind, true);
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
            case.denied(&policy, &key, 1).await;
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
