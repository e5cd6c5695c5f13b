//! Cases of partial grants.

use tollgate_core::{Check, Key, Times, Wait};

use super::case::{Case, plain};

pub(super) async fn partial_grants_use_all_the_room_there_is(case: &Case) {
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
            let verdict = case.acquire(&[Check::new(&policy, &key, cost)], times).await;
            case.same(&format!("granted of {times:?} at {cost}"), verdict.times(), granted);
            let left = 5 - u64::from(granted) * cost;
            case.same("remaining", verdict.each()[0].remaining(), left);
            case.same("wait", verdict.wait(), Wait::None);
            case.left("after a partial grant", &policy, &key, left).await;
        }
    }
}

pub(super) async fn fewer_grants_than_min_are_denied_and_charge_nothing(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        case.must_take(&policy, &key, 2).await;
        let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(4, 9)).await;
        case.same("granted of at least 4", verdict.times(), 0);
        case.left("after a denial", &policy, &key, 3).await;
        // The wait is for `min` grants, not for one.
        let four = case.look(&policy, &key, 4).await;
        case.same("the wait for 4 grants", verdict.wait(), four.wait());
        let verdict = case.acquire(&[Check::new(&policy, &key, 2)], Times::between(3, 3)).await;
        case.same("the wait for 3 times 2 of 5", verdict.wait(), Wait::Never);
        case.left("after another", &policy, &key, 3).await;
        let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(3, 9)).await;
        case.same("granted of at least 3", verdict.times(), 3);
    }
}

pub(super) async fn min_zero_without_room_answers_like_a_look(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        case.must_take(&policy, &key, 5).await;
        let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::between(0, 3)).await;
        case.same("granted", verdict.times(), 0);
        case.same("wait", verdict.wait(), case.look(&policy, &key, 1).await.wait());
    }
}
