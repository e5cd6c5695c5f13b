//! As often as there is room.

use std::fmt::Debug;

use tollgate_core::{Check, Key, Store, Times, Wait};

use super::bench::{Bench, plain};

pub(super) async fn as_many_are_granted_as_there_is_room_for<S: Store<Error: Debug>>(bench: &Bench<S>) {
    for policy in plain() {
        for (cost, times, granted) in [
            (1, Times::up_to(3), 3),
            (1, Times::up_to(5), 5),
            (1, Times::up_to(u32::MAX), 5),
            (2, Times::up_to(9), 2),
            (2, Times::between(2, 3), 2),
            (5, Times::up_to(2), 1),
            (1, Times::between(0, 4), 4),
        ] {
            let key = Key::from(format!("{cost} {times:?}"));
            let verdict = bench.acquire(&[Check::new(&policy, &key, cost)], times).await;
            bench.same(&format!("granted of {times:?} at {cost}"), verdict.times(), granted);
            bench.same("remaining", verdict.each()[0].remaining(), 5 - granted * cost);
            bench.same("wait", verdict.wait(), Wait::None);
            bench.left("after a partial grant", &policy, &key, 5 - granted * cost).await;
        }
    }
}

pub(super) async fn less_than_the_least_is_denied_and_charges_nothing<S: Store<Error: Debug>>(
    bench: &Bench<S>,
) {
    let key = Key::from("somebody");
    for policy in plain() {
        bench.must_take(&policy, &key, 2).await;
        let verdict = bench.acquire(&[Check::new(&policy, &key, 1)], Times::between(4, 9)).await;
        bench.same("granted of at least 4", verdict.times(), 0);
        bench.left("after a denial", &policy, &key, 3).await;
        // The wait is for the least that was asked, and not for a single one of them.
        let four = bench.look(&policy, &key, 4).await;
        bench.same("the wait for the least", verdict.wait(), four.wait());
        let verdict = bench.acquire(&[Check::new(&policy, &key, 2)], Times::between(3, 3)).await;
        bench.same("the wait for 3 times 2 of 5", verdict.wait(), Wait::Never);
        bench.left("after another", &policy, &key, 3).await;
        let verdict = bench.acquire(&[Check::new(&policy, &key, 1)], Times::between(3, 9)).await;
        bench.same("granted of at least 3", verdict.times(), 3);
    }
}

pub(super) async fn a_grant_of_none_at_all_is_no_denial<S: Store<Error: Debug>>(bench: &Bench<S>) {
    let key = Key::from("somebody");
    for policy in plain() {
        bench.must_take(&policy, &key, 5).await;
        let verdict = bench.acquire(&[Check::new(&policy, &key, 1)], Times::between(0, 3)).await;
        bench.same("granted", verdict.times(), 0);
        // It tells what a look tells: when one would pass.
        bench.same("wait", verdict.wait(), bench.look(&policy, &key, 1).await.wait());
    }
}
