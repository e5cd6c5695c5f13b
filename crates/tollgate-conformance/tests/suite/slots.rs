//! The cases of requests in flight: correct stores pass, and each mistake is found.

use tollgate_conformance::Suite;
use tollgate_core::Algorithm;

use crate::suite::caught;
use crate::suite::common::{SlotMistake, SlotStore, block_on};

fn run(mistake: SlotMistake, has_ttl: bool, suite: Suite) -> Result<(), String> {
    caught(|| block_on(suite.run(async |clock| SlotStore::new(mistake, has_ttl, clock))))
}

fn histories(count: u32) -> Suite {
    Suite::new().histories(count).only_steps_of(Algorithm::InFlight)
}

#[test]
fn correct_stores_of_slots_pass() {
    for has_ttl in [false, true] {
        run(SlotMistake::None, has_ttl, Suite::new()).unwrap();
        run(SlotMistake::None, has_ttl, histories(10_000)).unwrap();
    }
}

/// Each mistake of any store, and the first case that finds it.
const OF_ANY: &[(SlotMistake, &str)] = &[
    (SlotMistake::SecondReleaseFrees, "slots::a_second_release_frees_nothing"),
    (SlotMistake::OnlyCounts, "slots::no_more_than_the_limit_run_at_once"),
    (SlotMistake::NumbersBeginAgain, "slots::a_release_frees_no_slot_that_was_claimed_later"),
    (SlotMistake::RefusedSetTakesSlots, "slots::a_refused_set_takes_no_slot_and_charges_no_rate"),
    (SlotMistake::RefusedSetTakesRates, "slots::a_refused_set_takes_no_slot_and_charges_no_rate"),
    (SlotMistake::TakesTwo, "slots::no_more_than_the_limit_run_at_once"),
    (SlotMistake::TakesOneForSeveral, "slots::a_grant_of_several_is_released_in_parts"),
    (SlotMistake::ReleasesTheFirst, "slots::a_grant_of_several_is_released_in_parts"),
    (SlotMistake::ReleasesUpToTheLimit, "slots::a_grant_beyond_a_lowered_limit_is_released_as_a_whole"),
    (SlotMistake::ReleasesTheGrant, "slots::no_more_than_the_limit_run_at_once"),
    (SlotMistake::CostsAddUp, "slots::no_more_than_the_limit_run_at_once"),
    (SlotMistake::SeveralNeverPass, "slots::a_denial_of_several_waits_unless_they_exceed_the_limit"),
    (SlotMistake::SeveralAlwaysWait, "slots::a_denial_of_several_waits_unless_they_exceed_the_limit"),
    (SlotMistake::LooksThenClaims, "slots::concurrent_claims_and_second_releases_keep_the_limit"),
    (SlotMistake::TtlIsInTheScope, "slot_times::another_time_to_live_ends_no_slot_and_adds_none"),
    (SlotMistake::LimitIsInTheScope, "slots::a_changed_limit_ends_no_slot"),
    (SlotMistake::ResetKeepsSlots, "slots::a_changed_limit_ends_no_slot"),
];

/// Each mistake of a store with times to live, and the first case that finds it.
const OF_TTL: &[(SlotMistake, &str)] = &[
    (
        SlotMistake::RenewalDoesNothing,
        "slot_times::a_slot_is_held_for_a_time_to_live_or_until_it_is_released",
    ),
    (SlotMistake::RenewalIgnoresTheLimit, "slot_times::an_unknown_slot_is_taken_again_if_there_is_room"),
    (SlotMistake::RenewalTakesNothingAgain, "slot_times::an_unknown_slot_is_taken_again_if_there_is_room"),
    (SlotMistake::RenewalOnlyReports, "slot_times::an_unknown_slot_is_taken_again_if_there_is_room"),
    (SlotMistake::AnswersRenew, "slot_times::looks_and_denials_prolong_no_slot"),
    (SlotMistake::TtlEndsEarly, "slot_times::a_slot_is_held_for_a_time_to_live_or_until_it_is_released"),
    (SlotMistake::TtlNeverEnds, "slot_times::a_slot_is_held_for_a_time_to_live_or_until_it_is_released"),
    (SlotMistake::WaitIsTheTtl, "slot_times::a_denial_waits_until_enough_times_to_live_end"),
    (SlotMistake::WaitIsTheFirst, "slot_times::a_denial_waits_until_enough_times_to_live_end"),
    (SlotMistake::CutsLongerTimes, "slot_times::another_time_to_live_ends_no_slot_and_adds_none"),
    (
        SlotMistake::KeepsTheFuture,
        "slot_times::a_clock_that_steps_back_holds_no_slot_beyond_a_time_to_live_from_now",
    ),
];

#[test]
fn every_mistake_of_slots_is_found() {
    for (has_ttl, mistakes) in [(false, OF_ANY), (true, OF_ANY), (true, OF_TTL)] {
        for (mistake, case) in mistakes {
            let found = run(*mistake, has_ttl, Suite::new()).expect_err(&format!("{mistake:?} passes"));
            assert!(found.starts_with(case), "{mistake:?} is found by {found}");
        }
    }
}

/// A history has no threads.
const NOT_OF_HISTORIES: [SlotMistake; 1] = [SlotMistake::LooksThenClaims];

#[test]
fn random_histories_find_mistakes_of_slots() {
    for (has_ttl, mistakes) in [(false, OF_ANY), (true, OF_ANY), (true, OF_TTL)] {
        for (mistake, _) in mistakes.iter().filter(|(of, _)| !NOT_OF_HISTORIES.contains(of)) {
            let found = run(*mistake, has_ttl, histories(1_000)).expect_err(&format!("{mistake:?} passes"));
            assert!(found.starts_with("slot_histories::match_the_oracle"), "{mistake:?}: {found}");
        }
    }
}
