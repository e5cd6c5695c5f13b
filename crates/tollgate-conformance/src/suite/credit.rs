//! Cases of units that come back without a grant of them.

use std::time::Duration;

use tollgate_core::{Algorithm, BlockStart, Key, Policy, Quota};

use super::case::{Case, WINDOW, micros, plain, with_debt};
use crate::oracle::Oracle;

/// A key of which 2 units were used, and 3 a while later. Returns the oracle of that.
async fn used_twice(case: &Case, policy: &Policy, key: &Key) -> Oracle {
    let mut oracle = Oracle::new(policy);
    for units in [2, 3] {
        oracle.look(policy, case.time.now());
        oracle.charge(policy, case.time.now(), units);
        case.must_take(policy, key, units).await;
        case.advance(WINDOW / 8);
    }
    oracle
}

/// Compares what is left, and when it comes back.
async fn same_as(case: &Case, mut oracle: Oracle, policy: &Policy, key: &Key) {
    let now = case.time.now();
    case.left("after a credit", policy, key, oracle.look(policy, now).remaining).await;
    let look = case.look(policy, key, 5).await;
    case.same(
        &format!("the reset of {}", policy.name()),
        look.reset_after(),
        oracle.reset_after(policy, now),
    );
    case.same(&format!("the wait for all of {}", policy.name()), look.wait(), oracle.wait(policy, now, 5));
}

pub(super) async fn the_newest_units_come_back(case: &Case) {
    for units in [1, 3, 4, 5, 9, u64::MAX] {
        let key = Key::from(units);
        for policy in with_debt(5) {
            // Windows since the epoch begin here.
            case.advance_to_multiple(WINDOW);
            let mut oracle = used_twice(case, &policy, &key).await;
            oracle.credit(&policy, case.time.now(), units);
            case.credit(&policy, &key, units).await;
            same_as(case, oracle, &policy, &key).await;
        }
    }
}

pub(super) async fn a_credit_pays_debt_first(case: &Case) {
    for units in [1, 4, 9, 10, 11] {
        let key = Key::from(units);
        for policy in with_debt(5) {
            let mut oracle = used_twice(case, &policy, &key).await;
            let due = oracle.charge_beyond(&policy, case.time.now(), 7);
            case.charged(&policy, &key, 7, (due.charged, due.debt, due.forgiven)).await;
            oracle.look(&policy, case.time.now());
            oracle.credit(&policy, case.time.now(), units);
            case.credit(&policy, &key, units).await;
            same_as(case, oracle, &policy, &key).await;
        }
    }
}

pub(super) async fn a_credit_of_an_unused_key_gives_nothing(case: &Case) {
    let key = Key::from("caller");
    for policy in plain() {
        case.credit(&policy, &key, 3).await;
        let look = case.look(&policy, &key, 1).await;
        case.same("the reset of an unused key", look.reset_after(), Duration::ZERO);
        case.must_take(&policy, &key, 5).await;
        case.credit(&policy, &key, 0).await;
        case.left("after a credit of nothing", &policy, &key, 0).await;
    }
}

pub(super) async fn queues_slots_and_blocks_take_no_credit(case: &Case) {
    let key = Key::from("caller");
    let queue = Algorithm::LeakyBucket { max_wait: Duration::ZERO };
    let queue =
        Policy::new("queue", Quota::new(5, Duration::from_micros(WINDOW)).burst(5)).with_algorithm(queue);
    let slots = Policy::in_flight("slots", 5);
    for policy in [&queue, &slots] {
        for _ in 0..5 {
            case.must_take(policy, &key, 1).await;
        }
        let wait = case.denied(policy, &key, 1).await;
        case.credit(policy, &key, 5).await;
        case.same("the wait after a credit", micros(case.denied(policy, &key, 1).await), micros(wait));
    }
    let blocked = Policy::new("api", Quota::per_hour(5)).block_after(3, Duration::from_secs(60));
    let block = blocked.numbers().block().expect("it blocks");
    case.block(&block, &key, BlockStart::Started).await;
    case.credit(&block, &key, 1).await;
    case.denied(&block, &key, 1).await;
}
