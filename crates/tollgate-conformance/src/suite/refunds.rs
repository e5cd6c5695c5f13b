//! Cases of refunds.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Grant, Key, Policy, Quota, Times};

use super::case::{Case, WINDOW, micros, plain, windows};

pub(super) async fn a_refund_restores_the_quota(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        case.must_take(&policy, &key, 1).await;
        let stamp = case.must_take(&policy, &key, 4).await;
        case.denied(&policy, &key, 1).await;
        case.refund(&policy, &key, 4, stamp).await;
        case.left("after a refund", &policy, &key, 4).await;
        let stamp = case.must_take(&policy, &key, 3).await;
        case.refund(&policy, &key, 2, stamp).await;
        case.left("after a refund of a part", &policy, &key, 3).await;
        case.must_take(&policy, &key, 3).await;
        case.denied(&policy, &key, 1).await;
    }
}

pub(super) async fn a_refund_does_not_land_in_the_next_window(case: &Case) {
    let key = Key::from("caller");
    for policy in windows() {
        case.advance_to_multiple(2 * WINDOW);
        case.advance(1);
        let stamp = case.must_take(&policy, &key, 5).await;
        let reset = case.look(&policy, &key, 1).await.reset_after();
        case.advance(micros(reset));
        case.must_take(&policy, &key, 5).await;
        case.refund(&policy, &key, 5, stamp).await;
        case.left("after a refund of the window before", &policy, &key, 0).await;
        case.denied(&policy, &key, 1).await;
        case.advance(2 * WINDOW);
    }
}

pub(super) async fn a_refund_never_exceeds_the_capacity(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        let stamp = case.must_take(&policy, &key, 3).await;
        for after in [0, 1, 3_000_000, WINDOW - 3_000_002, 1, WINDOW, 2 * WINDOW] {
            case.advance(after);
            case.refund(&policy, &key, 3, stamp).await;
            case.refund(&policy, &key, u64::MAX, stamp).await;
            case.left("after refunds", &policy, &key, 5).await;
        }
        case.must_take(&policy, &key, 5).await;
        case.denied(&policy, &key, 1).await;
    }
}

pub(super) async fn a_refund_creates_no_quota_on_a_fresh_key(case: &Case) {
    let (key, fresh) = (Key::from("caller"), Key::from("other caller"));
    for policy in plain() {
        let stamp = case.must_take(&policy, &key, 5).await;
        case.refund(&policy, &fresh, 5, stamp).await;
        case.left("of the one", &policy, &key, 0).await;
        let status = case.look(&policy, &fresh, 1).await;
        case.same("units left of the other", status.remaining(), 5);
        case.same("the reset of the other", status.reset_after(), Duration::ZERO);
        case.must_take(&policy, &fresh, 5).await;
        case.denied(&policy, &fresh, 1).await;
    }
}

pub(super) async fn a_refund_returns_no_more_than_the_remaining_debt(case: &Case) {
    let key = Key::from("caller");
    let policy = Policy::new("slow", Quota::per_second(1).burst(10));
    let early = case.must_take(&policy, &key, 4).await;
    case.advance(3_000_000);
    let late = case.must_take(&policy, &key, 9).await;
    // Three of the four units have been refilled, so only one can be refunded.
    case.refund(&policy, &key, 4, early).await;
    case.left("after a refund of the early one", &policy, &key, 1).await;
    case.advance(8_000_000);
    case.left("later", &policy, &key, 9).await;
    case.advance(2_000_000);
    case.refund(&policy, &key, 9, late).await;
    case.must_take(&policy, &key, 10).await;
    case.refund(&policy, &key, 9, late).await;
    case.left("after a refund of refilled units", &policy, &key, 0).await;
}

pub(super) async fn every_policy_of_a_set_is_refunded(case: &Case) {
    let key = Key::from("caller");
    let policies = plain();
    let set: Vec<Check<'_>> = policies.iter().map(|policy| Check::new(policy, &key, 2)).collect();
    let verdict = case.acquire(&set, Times::up_to(2)).await;
    case.same("granted", verdict.times(), 2);
    let grants: Vec<Grant<'_>> = set
        .iter()
        .zip(verdict.each())
        .map(|(check, status)| Grant {
            policy: check.policy,
            key: check.key,
            units: 2,
            stamp: status.stamp(),
            share: None,
        })
        .collect();
    case.refund_all(&grants).await;
    for policy in &policies {
        case.left("after one of two grants was refunded", policy, &key, 3).await;
    }
    case.refund_all(&[]).await;
    for policy in &policies {
        case.left("after an empty refund", policy, &key, 3).await;
    }
}

pub(super) async fn several_grants_are_refunded_to_their_own_keys(case: &Case) {
    let keys = ["long ago", "one", "another"].map(Key::from);
    // A leaky bucket refunds only its latest grant, and a store may reorder refunds.
    let is_queue = |policy: &Policy| matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
    for policy in plain().into_iter().filter(|policy| !is_queue(policy)) {
        let void = case.must_take(&policy, &keys[0], 5).await;
        case.advance(3 * WINDOW);
        case.must_take(&policy, &keys[0], 5).await;
        let first = case.must_take(&policy, &keys[1], 2).await;
        let second = case.must_take(&policy, &keys[1], 2).await;
        let others = case.must_take(&policy, &keys[2], 3).await;
        let grants = [(0, 5, void), (1, 2, first), (2, 3, others), (1, 2, second)];
        let grants = grants.map(|(key, units, stamp)| {
            let (policy, key) = (&policy, &keys[key]);
            Grant { policy, key, units, stamp, share: None }
        });
        case.refund_all(&grants).await;
        case.left("after a refund of an expired grant", &policy, &keys[0], 0).await;
        case.left("after two refunds", &policy, &keys[1], 5).await;
        case.left("of another key after its refund", &policy, &keys[2], 5).await;
        case.advance(3 * WINDOW);
    }
}
