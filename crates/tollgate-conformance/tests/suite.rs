//! The suite itself: a right store passes, and each mistake is found.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{FarAway, Mistake, OneLock, block_on};
use tollgate_conformance::Suite;

fn run(mistake: Mistake, suite: Suite) -> Result<(), String> {
    let run = || block_on(suite.run(async |clock| OneLock::new(mistake, clock)));
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn a_right_store_passes() {
    run(Mistake::None, Suite::new()).unwrap();
}

#[test]
fn a_right_store_far_away_passes() {
    block_on(tollgate_conformance::run(async |clock| FarAway(OneLock::new(Mistake::None, clock))));
}

#[test]
fn a_mistake_far_away_is_found() {
    let run = || {
        block_on(Suite::new().run(async |clock| FarAway(OneLock::new(Mistake::RefundDoesNothing, clock))));
    };
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

#[test]
fn a_cluster_is_excused_from_sets_across_keys_and_from_nothing_else() {
    let cluster = || Suite::new().without_atomic_sets_across_keys();
    run(Mistake::KeyByKey, cluster()).unwrap();
    let found = run(Mistake::KeyByKey, Suite::new()).unwrap_err();
    assert!(found.starts_with("sets::a_denied_key_charges_none_of_the_others"), "{found}");
    let found = run(Mistake::OneByOne, cluster()).unwrap_err();
    assert!(found.starts_with("sets::a_denied_policy_charges_none_of_the_others"), "{found}");
}

#[test]
fn the_steps_of_an_algorithm_alone_find_what_is_wrong_with_it() {
    for algorithm in Suite::ALGORITHMS {
        run(Mistake::None, Suite::new().only_steps_of(algorithm)).unwrap();
        let found = run(Mistake::WaitTooLong, Suite::new().only_steps_of(algorithm)).unwrap_err();
        assert!(found.starts_with("random_sets::are_decided_as_by_the_oracle"), "{algorithm:?}: {found}");
    }
}

/// Each mistake, and the first case that finds it.
const MISTAKES: &[(Mistake, &str)] = &[
    (Mistake::ChargesDenied, "basics::what_can_never_pass_is_told_so_and_recorded_nowhere"),
    (Mistake::OneByOne, "sets::a_denied_policy_charges_none_of_the_others"),
    (Mistake::KeyByKey, "sets::a_denied_key_charges_none_of_the_others"),
    (Mistake::LooksThenCharges, "concurrency::a_burst_of_concurrent_requests_gets_the_limit"),
    (Mistake::ForgetsTheCost, "basics::a_cost_equal_to_the_capacity_passes"),
    (Mistake::GrantsWithoutRoom, "basics::the_limit_is_granted_and_not_one_more"),
    (Mistake::RefundRefillsAll, "queue::only_the_latest_grant_comes_back"),
    (Mistake::RefundDoesNothing, "queue::only_the_latest_grant_comes_back"),
    (Mistake::RefundLandsInTheNextWindow, "refunds::a_refund_does_not_land_in_the_next_window"),
    (Mistake::RefundEndsAtTheFirst, "refunds::every_policy_of_a_set_is_refunded"),
    (Mistake::RefundOfWhatWasForgiven, "changes::a_refund_from_before_the_clock_stepped_back_is_void"),
    (Mistake::WaitTooShort, "basics::denied_requests_are_not_recorded"),
    (Mistake::WaitTooLong, "basics::the_wait_does_not_follow_a_large_cost_that_was_denied"),
    (Mistake::WaitInWholeMilliseconds, "basics::denied_requests_are_not_recorded"),
    (Mistake::InheritsTheOldCount, "basics::denied_requests_are_not_recorded"),
    (Mistake::ForgetsEarly, "basics::denied_requests_are_not_recorded"),
    (Mistake::ResetDoesNothing, "keys::clones_share_their_state"),
    (Mistake::ResetForgetsEverybody, "keys::a_reset_forgets_the_key_under_these_policies_only"),
    (Mistake::KeysAreOne, "basics::the_first_request_on_a_fresh_key_passes"),
    (Mistake::LongKeysAreCutOff, "keys::long_keys_and_binary_keys_are_told_apart"),
    (Mistake::NamesRunTogether, "keys::what_ends_a_key_does_not_begin_a_policy"),
    (Mistake::PoliciesAreOne, "waits::limits_above_a_thousand_a_second_are_not_truncated"),
    (Mistake::ScopeHasTheLimit, "changes::a_wait_is_there_after_the_limit_was_lowered"),
    (Mistake::ClonesAreApart, "keys::clones_share_their_state"),
    (Mistake::LookCharges, "basics::a_cost_of_zero_passes_and_charges_nothing"),
    (Mistake::ZeroCostsOne, "basics::a_cost_of_zero_passes_and_charges_nothing"),
    (Mistake::NeverIsAWait, "basics::what_can_never_pass_is_told_so_and_recorded_nowhere"),
    (Mistake::PartialIsAllOrNothing, "basics::a_cost_of_zero_passes_and_charges_nothing"),
    (Mistake::PartialIgnoresTheLeast, "partial::less_than_the_least_is_denied_and_charges_nothing"),
    (Mistake::TwiceIsOnce, "sets::a_pair_named_twice_is_charged_the_sum"),
    (Mistake::EmptyIsDenied, "sets::an_empty_set_is_granted"),
    (Mistake::NoDelay, "queue::what_comes_too_early_is_delayed_behind_what_came_before"),
    (Mistake::DelayOfTheLast, "sets::the_delay_of_a_set_is_its_longest"),
    (Mistake::EachReportsTheWait, "sets::only_those_that_refuse_report_a_wait"),
    (Mistake::StatusesBackwards, "refunds::every_policy_of_a_set_is_refunded"),
    (Mistake::DoublesForTime, "basics::denied_requests_are_not_recorded"),
    (Mistake::ClockBackIsANewKey, "changes::a_clock_that_steps_back_refills_nothing_and_locks_nobody_out"),
    (Mistake::ClockBackIsIgnored, "changes::a_clock_that_steps_back_refills_nothing_and_locks_nobody_out"),
    (Mistake::RemainingBeforeTheCharge, "basics::the_limit_is_granted_and_not_one_more"),
    (Mistake::ResetTooEarly, "waits::the_quota_is_back_at_its_reset_and_not_before"),
];

#[test]
fn every_mistake_is_found() {
    for (mistake, case) in MISTAKES {
        let found = run(*mistake, Suite::new()).expect_err(&format!("{mistake:?} passes"));
        assert!(found.starts_with(case), "{mistake:?} is found by {found}");
    }
}
