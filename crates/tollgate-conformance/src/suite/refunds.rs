//! What comes back.

use std::fmt::Debug;
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Grant, Key, Policy, Quota, Store, Times};

use super::bench::{Bench, WINDOW, micros, plain, windows};

pub(super) async fn a_refund_restores_the_quota<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        bench.must_take(&policy, &key, 1).await;
        let stamp = bench.must_take(&policy, &key, 4).await;
        bench.denied(&policy, &key, 1).await;
        bench.refund(&policy, &key, 4, stamp).await;
        bench.left("after a refund", &policy, &key, 4).await;
        let stamp = bench.must_take(&policy, &key, 3).await;
        bench.refund(&policy, &key, 2, stamp).await;
        bench.left("after a refund of a part", &policy, &key, 3).await;
        bench.must_take(&policy, &key, 3).await;
        bench.denied(&policy, &key, 1).await;
    }
}

pub(super) async fn a_refund_does_not_land_in_the_next_window<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in windows() {
        bench.advance_to_multiple(2 * WINDOW);
        bench.advance(1);
        let stamp = bench.must_take(&policy, &key, 5).await;
        let reset = bench.look(&policy, &key, 1).await.reset_after();
        bench.advance(micros(reset));
        bench.must_take(&policy, &key, 5).await;
        bench.refund(&policy, &key, 5, stamp).await;
        bench.left("after a refund of the window before", &policy, &key, 0).await;
        bench.denied(&policy, &key, 1).await;
        bench.advance(2 * WINDOW);
    }
}

pub(super) async fn a_refund_never_exceeds_the_capacity<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        let stamp = bench.must_take(&policy, &key, 3).await;
        for after in [0, 1, 3_000_000, WINDOW - 3_000_002, 1, WINDOW, 2 * WINDOW] {
            bench.advance(after);
            bench.refund(&policy, &key, 3, stamp).await;
            bench.refund(&policy, &key, u32::MAX, stamp).await;
            bench.left("after refunds", &policy, &key, 5).await;
        }
        bench.must_take(&policy, &key, 5).await;
        bench.denied(&policy, &key, 1).await;
    }
}

pub(super) async fn a_refund_creates_no_quota_on_a_fresh_key<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let (key, fresh) = (Key::from("somebody"), Key::from("somebody else"));
    for policy in plain() {
        let stamp = bench.must_take(&policy, &key, 5).await;
        bench.refund(&policy, &fresh, 5, stamp).await;
        bench.left("of the one", &policy, &key, 0).await;
        let status = bench.look(&policy, &fresh, 1).await;
        bench.same("units left of the other", status.remaining(), 5);
        bench.same("the reset of the other", status.reset_after(), Duration::ZERO);
        bench.must_take(&policy, &fresh, 5).await;
        bench.denied(&policy, &fresh, 1).await;
    }
}

pub(super) async fn a_refund_gives_back_no_more_than_is_still_owed<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    let policy = Policy::new("slow", Quota::per_second(1).burst(10));
    let early = bench.must_take(&policy, &key, 4).await;
    bench.advance(3_000_000);
    let late = bench.must_take(&policy, &key, 9).await;
    // Of the four, three were refilled; the one that is missing is all that can come back.
    bench.refund(&policy, &key, 4, early).await;
    bench.left("after a refund of the early one", &policy, &key, 1).await;
    bench.advance(8_000_000);
    bench.left("later", &policy, &key, 9).await;
    bench.advance(2_000_000);
    bench.refund(&policy, &key, 9, late).await;
    bench.must_take(&policy, &key, 10).await;
    bench.refund(&policy, &key, 9, late).await;
    bench.left("a refund when all was refilled is void", &policy, &key, 0).await;
}

pub(super) async fn every_policy_of_a_set_is_refunded<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    let policies = plain();
    let set: Vec<Check<'_>> = policies.iter().map(|policy| Check::new(policy, &key, 2)).collect();
    let verdict = bench.acquire(&set, Times::up_to(2)).await;
    bench.same("granted", verdict.times(), 2);
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
    bench.refund_all(&grants).await;
    for policy in &policies {
        bench.left("after one of two came back", policy, &key, 3).await;
    }
    bench.refund_all(&[]).await;
    for policy in &policies {
        bench.left("after nothing came back", policy, &key, 3).await;
    }
}

pub(super) async fn each_of_several_grants_comes_back_to_its_own_key<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let keys = ["long ago", "one", "another"].map(Key::from);
    // A queue takes its latest grant back only, and which of two comes first is the store's affair.
    let is_queue = |policy: &Policy| matches!(policy.algorithm(), Algorithm::LeakyBucket { .. });
    for policy in plain().into_iter().filter(|policy| !is_queue(policy)) {
        let void = bench.must_take(&policy, &keys[0], 5).await;
        bench.advance(3 * WINDOW);
        bench.must_take(&policy, &keys[0], 5).await;
        let first = bench.must_take(&policy, &keys[1], 2).await;
        let second = bench.must_take(&policy, &keys[1], 2).await;
        let others = bench.must_take(&policy, &keys[2], 3).await;
        let grants = [(0, 5, void), (1, 2, first), (2, 3, others), (1, 2, second)];
        let grants = grants.map(|(key, units, stamp)| {
            let (policy, key) = (&policy, &keys[key]);
            Grant { policy, key, units, stamp, share: None }
        });
        bench.refund_all(&grants).await;
        bench.left("after a refund that is void", &policy, &keys[0], 0).await;
        bench.left("after two refunds", &policy, &keys[1], 5).await;
        bench.left("of another key after its refund", &policy, &keys[2], 5).await;
        bench.advance(3 * WINDOW);
    }
}
