//! Tests of the suite: a correct store passes, and each mistake is found.

mod common;
mod slots;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use common::{Asynchronous, Mistake, OneLock, block_on};
use tollgate_conformance::Suite;
use tollgate_core::Algorithm;

fn run(mistake: Mistake, suite: Suite) -> Result<(), String> {
    caught(|| block_on(suite.run(async |clock| OneLock::new(mistake, clock))))
}

fn run_usage(mistake: Mistake) -> Result<(), String> {
    caught(|| block_on(Suite::new().run_usage(async |clock| OneLock::new(mistake, clock))))
}

fn caught(run: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
}

/// The algorithms with random sets.
fn of_rates() -> impl Iterator<Item = Algorithm> {
    Suite::ALGORITHMS.into_iter().filter(|algorithm| *algorithm != Algorithm::InFlight)
}

#[test]
fn a_correct_store_passes() {
    run(Mistake::None, Suite::new()).unwrap();
    run_usage(Mistake::None).unwrap();
}

#[test]
fn mistakes_of_usage_are_found() {
    for (mistake, case) in [
        (Mistake::UsageIgnoresTheInterval, "usage::counts_match_the_oracle"),
        (Mistake::UsageCharges, "usage::an_unused_key_has_no_usage_and_stays_unused"),
    ] {
        let found = run_usage(mistake).expect_err(&format!("{mistake:?} passes"));
        assert!(found.starts_with(case), "{mistake:?} is found by {found}");
    }
}

#[test]
fn a_correct_asynchronous_store_passes() {
    block_on(tollgate_conformance::run(async |clock| Asynchronous::new(Mistake::None, clock)));
}

#[test]
fn a_mistake_of_an_asynchronous_store_is_found() {
    let run = || {
        block_on(Suite::new().run(async |clock| Asynchronous::new(Mistake::RefundDoesNothing, clock)));
    };
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
}

#[test]
fn only_sets_across_keys_can_be_excused() {
    let cluster = || Suite::new().without_atomic_sets_across_keys();
    run(Mistake::KeyByKey, cluster()).unwrap();
    let found = run(Mistake::KeyByKey, Suite::new()).unwrap_err();
    assert!(found.starts_with("sets::a_denied_key_charges_none_of_the_others"), "{found}");
    let found = run(Mistake::OneByOne, cluster()).unwrap_err();
    assert!(found.starts_with("sets::a_denied_policy_charges_none_of_the_others"), "{found}");
}

#[test]
fn each_mistake_is_found_whatever_is_excused() {
    let cached = || Suite::new().with_cached_denials();
    let leased = || Suite::new().with_leases(1_000, Duration::from_millis(250));
    for suite in [cached, leased] as [fn() -> Suite; 2] {
        run(Mistake::None, suite()).unwrap();
        for (mistake, _) in MISTAKES {
            run(*mistake, suite()).expect_err(&format!("{mistake:?} passes"));
        }
    }
}

#[test]
fn random_sets_find_what_exceeds_the_bound_of_leases() {
    for algorithm in of_rates() {
        let steps = || Suite::new().with_leases(100, Duration::from_millis(100)).only_steps_of(algorithm);
        run(Mistake::None, steps()).unwrap();
        for mistake in [Mistake::GrantsWithoutRoom, Mistake::ForgetsTheCost] {
            let found = run(mistake, steps()).expect_err(&format!("{mistake:?} passes"));
            assert!(found.starts_with("random_sets::match_the_oracle"), "{algorithm:?}: {found}");
        }
    }
}

#[test]
fn the_steps_of_one_algorithm_find_its_mistake() {
    for algorithm in of_rates() {
        run(Mistake::None, Suite::new().only_steps_of(algorithm)).unwrap();
        let found = run(Mistake::WaitTooLong, Suite::new().only_steps_of(algorithm)).unwrap_err();
        assert!(found.starts_with("random_sets::match_the_oracle"), "{algorithm:?}: {found}");
    }
}

#[test]
fn random_sets_and_histories_find_mistakes_of_settlements() {
    let sets = |suite: Suite| ("random_sets::match_the_oracle", suite.histories(0));
    let histories = |suite: Suite| ("histories::match_the_oracle", suite.steps(0));
    for algorithm in of_rates().filter(|of| !matches!(of, Algorithm::LeakyBucket { .. })) {
        for mistake in [
            Mistake::SettleRefundsNothing,
            Mistake::ChargeDoesNothing,
            Mistake::ChargeStopsAtTheLimit,
            Mistake::DebtHasNoEnd,
            Mistake::NoDebtIsReported,
        ] {
            for only in [sets, histories] {
                let (case, suite) = only(Suite::new().only_steps_of(algorithm));
                let found = run(mistake, suite).expect_err(&format!("{mistake:?} of {algorithm:?} passes"));
                assert!(found.starts_with(case), "{mistake:?} of {algorithm:?}: {found}");
            }
        }
    }
}

#[test]
fn random_histories_find_mistakes_of_credits() {
    for algorithm in of_rates().filter(|of| !matches!(of, Algorithm::LeakyBucket { .. })) {
        for mistake in [Mistake::CreditDoesNothing, Mistake::CreditRefillsAll] {
            let suite = Suite::new().steps(0).only_steps_of(algorithm);
            let found = run(mistake, suite).expect_err(&format!("{mistake:?} of {algorithm:?} passes"));
            assert!(
                found.starts_with("histories::match_the_oracle"),
                "{mistake:?} of {algorithm:?}: {found}"
            );
        }
    }
}

#[test]
fn random_classes_find_mistakes_of_classes() {
    for algorithm in of_rates() {
        let suite = || Suite::new().steps(0).only_steps_of(algorithm);
        run(Mistake::None, suite()).unwrap();
        block_on(suite().run(async |clock| Asynchronous::new(Mistake::None, clock)));
        let mut found = Vec::new();
        for mistake in [Mistake::ClassTakesAll, Mistake::ClassWaitsUntilFull] {
            found.push(run(mistake, suite()).expect_err(&format!("{mistake:?} of {algorithm:?} passes")));
        }
        let merging = || block_on(suite().run(async |clock| Asynchronous::merging(clock)));
        found.push(caught(merging).expect_err(&format!("merged classes of {algorithm:?} pass")));
        for found in found {
            assert!(found.starts_with("headroom::random_classes_match_the_oracle"), "{algorithm:?}: {found}");
        }
    }
}

/// Each mistake, and the first case that finds it.
const MISTAKES: &[(Mistake, &str)] = &[
    (Mistake::ChargesDenied, "basics::a_cost_above_the_capacity_never_passes_and_is_not_recorded"),
    (Mistake::OneByOne, "sets::a_denied_policy_charges_none_of_the_others"),
    (Mistake::KeyByKey, "sets::a_denied_key_charges_none_of_the_others"),
    (Mistake::LooksThenCharges, "concurrency::a_burst_of_concurrent_requests_gets_the_limit"),
    (Mistake::ForgetsTheCost, "basics::a_cost_equal_to_the_capacity_passes"),
    (Mistake::GrantsWithoutRoom, "basics::the_limit_is_granted_and_not_one_more"),
    (Mistake::RefundRefillsAll, "queue::only_the_latest_grant_is_refunded"),
    (Mistake::RefundDoesNothing, "queue::only_the_latest_grant_is_refunded"),
    (Mistake::RefundLandsInTheNextWindow, "refunds::a_refund_does_not_land_in_the_next_window"),
    (Mistake::RefundStopsAfterTheFirst, "refunds::every_policy_of_a_set_is_refunded"),
    (Mistake::CutsOtherVersions, "changes::two_versions_admit_no_more_than_both_allow"),
    (Mistake::RefundsForgivenDebt, "changes::a_refund_from_before_the_clock_stepped_back_is_void"),
    (Mistake::WaitTooShort, "basics::denied_requests_are_not_recorded"),
    (Mistake::WaitTooLong, "basics::a_denied_large_cost_does_not_change_the_wait"),
    (Mistake::WaitInWholeMilliseconds, "basics::denied_requests_are_not_recorded"),
    (Mistake::InheritsTheOldCount, "basics::denied_requests_are_not_recorded"),
    (Mistake::ForgetsEarly, "basics::denied_requests_are_not_recorded"),
    (Mistake::ResetDoesNothing, "keys::clones_share_their_state"),
    (Mistake::ResetForgetsAllKeys, "keys::a_reset_forgets_the_key_under_these_policies_only"),
    (Mistake::IgnoresKeys, "basics::the_first_request_on_a_fresh_key_passes"),
    (Mistake::LongKeysAreCutOff, "keys::long_and_binary_keys_stay_distinct"),
    (Mistake::JoinsKeyAndScope, "keys::a_separator_in_a_key_does_not_reach_another_policy"),
    (Mistake::IgnoresPolicyNames, "waits::limits_above_a_thousand_a_second_are_not_truncated"),
    (Mistake::ScopeHasTheLimit, "changes::a_lowered_limit_reports_a_wait"),
    (Mistake::ClonesShareNothing, "keys::clones_share_their_state"),
    (Mistake::LookCharges, "basics::a_cost_of_zero_passes_and_charges_nothing"),
    (Mistake::ZeroCostsOne, "basics::a_cost_of_zero_passes_and_charges_nothing"),
    (Mistake::NeverIsAWait, "basics::a_cost_above_the_capacity_never_passes_and_is_not_recorded"),
    (Mistake::PartialIsAllOrNothing, "basics::a_cost_of_zero_passes_and_charges_nothing"),
    (Mistake::PartialIgnoresMin, "partial::fewer_grants_than_min_are_denied_and_charge_nothing"),
    (Mistake::RepeatedPairCountsOnce, "sets::a_pair_named_twice_is_charged_the_sum"),
    (Mistake::EmptyIsDenied, "sets::an_empty_set_is_granted"),
    (Mistake::NoDelay, "queue::early_requests_are_delayed_one_behind_the_other"),
    (Mistake::DelayOfTheLast, "sets::the_delay_of_a_set_is_the_longest_delay"),
    (Mistake::EachReportsTheWait, "sets::only_policies_that_refuse_report_a_wait"),
    (Mistake::StatusesBackwards, "refunds::every_policy_of_a_set_is_refunded"),
    (Mistake::DoublesForTime, "basics::denied_requests_are_not_recorded"),
    (Mistake::ClockBackIsANewKey, "changes::a_clock_that_steps_back_refills_nothing_and_blocks_no_caller"),
    (Mistake::ClockBackIsIgnored, "changes::a_clock_that_steps_back_refills_nothing_and_blocks_no_caller"),
    (Mistake::RemainingBeforeTheCharge, "basics::the_limit_is_granted_and_not_one_more"),
    (Mistake::CreditDoesNothing, "credit::the_newest_units_come_back"),
    (Mistake::CreditRefillsAll, "credit::the_newest_units_come_back"),
    (Mistake::CreditReachesOneGrant, "credit::the_newest_units_come_back"),
    (Mistake::SettleRefundsNothing, "settle::less_than_was_granted_is_refunded"),
    (Mistake::SettleRefundsTheOldestFirst, "settle::the_newest_grant_is_refunded_first"),
    (Mistake::ChargeDoesNothing, "debt::a_charge_within_what_is_left_is_no_debt"),
    (Mistake::ChargeStopsAtTheLimit, "debt::requests_wait_exactly_until_debt_is_paid"),
    (Mistake::DebtHasNoEnd, "debt::at_most_one_more_capacity_is_charged_and_the_rest_is_forgiven"),
    (Mistake::NoDebtIsReported, "debt::requests_wait_exactly_until_debt_is_paid"),
    (Mistake::ChargeLandsInTheNextWindow, "debt::a_charge_within_what_is_left_is_no_debt"),
    (Mistake::ChargeRenewsTheWindow, "debt::debt_of_a_window_leaves_with_it"),
    (Mistake::LookForgivesDebt, "debt::no_look_and_no_refusal_forgives_debt"),
    (Mistake::ClassTakesAll, "headroom::a_class_leaves_its_units_to_others"),
    (Mistake::ClassHasItsShareOfTheRate, "headroom::a_class_leaves_its_units_to_others"),
    (Mistake::ClassWaitsUntilFull, "headroom::a_class_alone_gets_its_bound_and_then_the_whole_rate"),
    (Mistake::ClassOwesAlone, "headroom::a_class_is_charged_and_in_debt_by_the_whole_quota"),
    (Mistake::ResetTooEarly, "waits::the_full_quota_returns_at_its_reset_and_not_before"),
];

#[test]
fn every_mistake_is_found() {
    for (mistake, case) in MISTAKES {
        let found = run(*mistake, Suite::new()).expect_err(&format!("{mistake:?} passes"));
        assert!(found.starts_with(case), "{mistake:?} is found by {found}");
    }
}
