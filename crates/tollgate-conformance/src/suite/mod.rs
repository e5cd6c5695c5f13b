//! The contract, case by case.

mod basics;
mod blocks;
mod case;
mod changes;
mod concurrency;
mod credit;
mod debt;
mod excuses;
mod headroom;
mod histories;
mod keys;
mod partial;
mod queue;
mod random_sets;
mod refunds;
mod sets;
mod settle;
mod slot_histories;
mod slot_times;
mod slots;
mod tested;
mod totals;
mod usage;
mod vectors;
mod versions;
mod waits;

use std::fmt::Debug;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use tollgate_core::{Algorithm, Clock, ManualClock, RecentUsage, Store, Timestamp, UsageTotals};

use case::Case;
use excuses::{Excuses, Leases};
use tested::Tested;
use totals::Totals;

/// The contract of [`Store`] as a test suite, and the guarantees that a store is excused from.
///
/// ```
/// use std::collections::HashMap;
/// use std::convert::Infallible;
/// use std::future::{Ready, ready};
/// use std::pin::pin;
/// use std::sync::{Arc, Mutex};
/// use std::task::{Context, Poll, Waker};
///
/// use tollgate_conformance::Suite;
/// use tollgate_core::algorithm::State;
/// use tollgate_core::{Check, Clock, End, Grant, Key, Policy, Reply, Store, Times, Verdict};
///
/// /// A store with a single lock: slow under load, but correct.
/// #[derive(Clone)]
/// struct OneLock {
///     clock: Clock,
///     states: Arc<Mutex<HashMap<(String, Key), State>>>,
/// }
///
/// /// The distinct pairs of a set with the sum of their costs, and the pair of each check.
/// fn pairs<'a>(set: &[Check<'a>]) -> (Vec<(&'a Policy, &'a Key, u64)>, Vec<usize>) {
///     let mut pairs: Vec<(&Policy, &Key, u64)> = Vec::new();
///     let of_check = set.iter().map(|check| {
///         let same = |(policy, key, _): &(&Policy, &Key, u64)| {
///             policy.scope() == check.policy.scope() && *key == check.key
///         };
///         let at = pairs.iter().position(same).unwrap_or_else(|| {
///             pairs.push((check.policy, check.key, 0));
///             pairs.len() - 1
///         });
///         pairs[at].2 = check.cost.saturating_add(pairs[at].2);
///         at
///     });
///     let of_check = of_check.collect();
///     (pairs, of_check)
/// }
///
/// impl Store for OneLock {
///     type Error = Infallible;
///     type Acquire = Ready<Result<Verdict, Infallible>>;
///
///     fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
///         let mut states = self.states.lock().unwrap();
///         let now = self.clock.now();
///         let (pairs, of_check) = pairs(set);
///         // Look at all pairs first ...
///         let mut granted = times.max();
///         let mut looks = Vec::new();
///         for (policy, key, cost) in &pairs {
///             let state = states.entry((policy.scope().into(), (*key).clone()));
///             let look = state.or_insert_with(|| State::new(policy)).look(policy, now);
///             granted = granted.min(look.times(policy, *cost));
///             looks.push(look);
///         }
///         if granted < times.min() {
///             granted = 0;
///         }
///         // ... and charge only if all have room.
///         let mut delay = std::time::Duration::ZERO;
///         let mut statuses = Vec::new();
///         for ((policy, key, cost), look) in pairs.iter().zip(looks) {
///             let state = states.get_mut(&(policy.scope().into(), (*key).clone())).unwrap();
///             statuses.push(if granted == 0 {
///                 state.refuse(policy, now, look, *cost, times)
///             } else {
///                 let charge = state.charge(policy, now, look, cost * u64::from(granted));
///                 delay = delay.max(charge.delay);
///                 charge.status
///             });
///         }
///         Reply::Now(Ok(Verdict::new(granted, delay, of_check.into_iter().map(|at| statuses[at]))))
///     }
///
///     fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
///         let mut states = self.states.lock().unwrap();
///         let now = self.clock.now();
///         for grant in grants {
///             if let Some(state) = states.get_mut(&(grant.policy.scope().into(), grant.key.clone())) {
///                 state.refund(grant.policy, now, grant.units, grant.stamp);
///             }
///         }
///         ready(Ok(()))
///     }
///
///     fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
///         let mut states = self.states.lock().unwrap();
///         for policy in policies {
///             states.remove(&(policy.scope().into(), key.clone()));
///         }
///         ready(Ok(()))
///     }
/// }
///
/// // In your own test: `#[tokio::test] async fn conforms()`.
/// # fn main() {
/// let run = Suite::new().steps(500).run(async |clock| OneLock { clock, states: Arc::default() });
/// // A store that answers immediately needs no runtime.
/// assert!(pin!(run).poll(&mut Context::from_waker(Waker::noop())).is_ready());
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Suite {
    atomic_across_keys: bool,
    excuses: Excuses,
    steps: u32,
    histories: Range<u32>,
    only_steps_of: Option<Algorithm>,
}

impl Default for Suite {
    fn default() -> Suite {
        Suite::new()
    }
}

/// Start times: an odd time in 2026, the epoch, and three years before [`Timestamp::MAX`].
const STARTS: [u64; 3] = [1_767_225_600_123_457, 0, (1 << 52) - 100_000_000_000_001];

/// Makes the store of a case.
type Make<'a> = dyn Fn(Clock) -> Pin<Box<dyn Future<Output = Box<dyn Tested>> + 'a>> + 'a;

macro_rules! cases {
    ($suite:ident, $make:ident, $start:expr; $($module:ident: $($case:ident),+;)+) => {$($(
        let time = ManualClock::new(Timestamp::from_micros($start));
        let store = $make(Clock::from(&time)).await;
        let name = concat!(stringify!($module), "::", stringify!($case));
        $module::$case(&Case::new(name, $start, store, time).excused($suite.excuses)).await;
    )+)+};
}

impl Suite {
    /// The algorithms of the random steps and histories. The log is small: some stores keep an
    /// entry per unit.
    pub const ALGORITHMS: [Algorithm; 9] = {
        let [a, b, c, d, e, f, g, h] = random_sets::EVERY;
        [a, b, c, d, e, f, g, h, Algorithm::InFlight]
    };

    /// The whole contract.
    pub fn new() -> Suite {
        Suite {
            atomic_across_keys: true,
            excuses: Excuses::default(),
            steps: 2_000,
            histories: 0..100,
            only_steps_of: None,
        }
    }

    /// Excuses a store that cannot decide the keys of a set in one step, such as a Redis Cluster.
    /// Sets of several policies must still be atomic for each key.
    pub fn without_atomic_sets_across_keys(mut self) -> Suite {
        self.atomic_across_keys = false;
        self
    }

    /// Excuses a store that answers denials from a cache, without asking where the state is.
    ///
    /// If a smaller cost of the same policy and key was denied before, `retry_after` of a denial
    /// may be shorter than the exact wait. `remaining` of a denial may be from an earlier time. Of
    /// a denied set, a check of which nothing is remembered may show nothing left and no wait.
    /// Looks, and the waits of the smallest denied cost, must still be exact.
    pub fn with_cached_denials(mut self) -> Suite {
        self.excuses.cached_denials = true;
        self
    }

    /// Excuses a store that holds up to `units` of a key ahead of demand, each for at most `life`.
    ///
    /// The answers to random sets need not be those of the oracle, and recorded answers are not
    /// compared. Instead, no more is granted than these bounds:
    ///
    /// - a token bucket: its burst + rate × (*t* + `life`) in any time *t*;
    /// - an aligned window: its limit;
    /// - two windows that begin with a request: twice the limit;
    /// - a sliding window or log: its limit + `units`.
    ///
    /// All other cases must be exact.
    pub fn with_leases(mut self, units: u64, life: Duration) -> Suite {
        self.excuses.leases = Some(Leases { units, life });
        self
    }

    /// Sets the random steps per algorithm that the [oracle](crate::oracle) checks. Default: 2,000.
    /// Requests in flight have histories only.
    pub fn steps(mut self, steps: u32) -> Suite {
        self.steps = steps;
        self
    }

    /// Sets the random [histories](crate::history) of one key per algorithm that the oracle checks.
    /// They settle grants, refund in parts, look as other versions of the policy, and step the
    /// clock back. Those of token buckets have as many of several
    /// [versions](tollgate_core::PolicyNumbers::version_burst). Those of requests in flight renew
    /// slots. The other algorithms share as many histories of three
    /// [classes](tollgate_core::Policy::leaving). Default: 100. A store with leases runs only those
    /// of requests in flight.
    pub fn histories(self, histories: u32) -> Suite {
        self.histories_of(0..histories)
    }

    /// [`Suite::histories`] of these numbers, each of which is another history. Use it to spread
    /// them over the servers of a slow store.
    pub fn histories_of(mut self, numbers: Range<u32>) -> Suite {
        self.histories = numbers;
        self
    }

    /// Runs only the random steps and histories of this algorithm. Use it to spread many steps of a
    /// slow store over parallel tests, in addition to the whole contract.
    pub fn only_steps_of(mut self, algorithm: Algorithm) -> Suite {
        self.only_steps_of = Some(algorithm);
        self
    }

    /// Runs the suite. It calls `make` for each case. `make` must return a store that follows the
    /// given clock and in which nothing has been used, not even through the stores made before.
    ///
    /// The future is never spawned and runs in any runtime. A store that answers immediately
    /// ([`Reply::Now`](tollgate_core::Reply::Now)) is also called from several threads.
    ///
    /// # Panics
    /// If a store breaks the contract, with the name of the case, the answer and the expected
    /// answer.
    pub async fn run<S>(self, make: impl AsyncFn(Clock) -> S)
    where
        S: Store,
        S::Error: Debug,
    {
        self.run_on(&|clock| {
            Box::pin(async {
                let store: Box<dyn Tested> = Box::new(make(clock).await);
                store
            })
        })
        .await;
    }

    async fn run_on(self, make: &Make<'_>) {
        if let Some(algorithm) = self.only_steps_of {
            return self.steps_of(algorithm, make).await;
        }
        for start in STARTS {
            cases! { self, make, start;
                basics:
                    the_limit_is_granted_and_not_one_more,
                    the_first_request_on_a_fresh_key_passes,
                    a_cost_equal_to_the_capacity_passes,
                    a_cost_above_the_capacity_never_passes_and_is_not_recorded,
                    a_cost_of_zero_passes_and_charges_nothing,
                    a_look_charges_nothing_and_reports_the_wait,
                    denied_requests_are_not_recorded,
                    a_denied_large_cost_does_not_change_the_wait;
                waits:
                    a_retry_passes_exactly_at_its_wait,
                    a_large_cost_waits_until_all_of_it_fits,
                    the_full_quota_returns_at_its_reset_and_not_before,
                    a_new_window_does_not_inherit_the_old_count,
                    requests_do_not_prolong_the_window,
                    limits_above_a_thousand_a_second_are_not_truncated,
                    three_or_seven_a_second_have_no_rounding_error,
                    microseconds_of_a_16_digit_time_are_kept;
                partial:
                    partial_grants_use_all_the_room_there_is,
                    fewer_grants_than_min_are_denied_and_charge_nothing,
                    min_zero_without_room_answers_like_a_look;
                queue:
                    early_requests_are_delayed_one_behind_the_other,
                    a_delay_beyond_max_wait_is_denied,
                    a_look_and_a_cost_of_zero_are_not_queued,
                    only_the_latest_grant_is_refunded;
                refunds:
                    a_refund_restores_the_quota,
                    a_refund_does_not_land_in_the_next_window,
                    a_refund_never_exceeds_the_capacity,
                    a_refund_creates_no_quota_on_a_fresh_key,
                    a_refund_returns_no_more_than_the_remaining_debt,
                    every_policy_of_a_set_is_refunded,
                    several_grants_are_refunded_to_their_own_keys;
                keys:
                    keys_do_not_share_a_quota,
                    policies_of_another_name_window_or_algorithm_do_not_share_a_quota,
                    long_and_binary_keys_stay_distinct,
                    a_separator_in_a_key_does_not_reach_another_policy,
                    the_empty_key_is_a_key_like_any_other,
                    clones_share_their_state,
                    a_reset_forgets_the_key_under_these_policies_only;
                changes:
                    a_lowered_limit_reports_a_wait,
                    a_raised_limit_applies_at_once,
                    other_boundaries_apply_when_the_window_has_ended,
                    two_versions_admit_no_more_than_both_allow,
                    a_stamp_of_another_limit_is_not_the_latest_of_a_queue,
                    a_clock_that_steps_back_refills_nothing_and_blocks_no_caller,
                    a_refund_from_before_the_clock_stepped_back_is_void;
                versions:
                    a_version_keeps_what_it_owes_beside_another,
                    an_edit_makes_no_caller_wait_for_the_old_bucket,
                    a_raised_version_passes_at_its_rate_beside_the_old_one,
                    rotating_versions_share_four_buckets,
                    a_slow_tier_uses_up_no_faster_one,
                    a_failover_makes_no_caller_wait_for_more_than_a_bucket,
                    a_refused_class_forgives_nothing_while_the_clock_is_behind;
                debt:
                    a_charge_within_what_is_left_is_no_debt,
                    a_charge_of_zero_charges_nothing,
                    requests_wait_exactly_until_debt_is_paid,
                    at_most_one_more_capacity_is_charged_and_the_rest_is_forgiven,
                    no_look_and_no_refusal_forgives_debt,
                    debt_of_a_window_leaves_with_it,
                    a_leaky_bucket_forgives_debt,
                    a_bucket_that_cannot_pay_in_time_forgives_debt,
                    a_refund_of_a_grant_reduces_debt,
                    a_reset_forgets_debt,
                    more_units_than_fit_into_32_bits_are_charged,
                    a_clock_that_steps_back_cuts_debt_of_a_bucket_to_one_capacity;
                settle:
                    less_than_was_granted_is_refunded,
                    the_newest_grant_is_refunded_first,
                    more_than_was_granted_is_charged,
                    more_than_was_granted_is_charged_when_it_is_settled;
                sets:
                    a_denied_policy_charges_none_of_the_others,
                    only_policies_that_refuse_report_a_wait,
                    a_pair_named_twice_is_charged_the_sum,
                    an_empty_set_is_granted,
                    sets_are_granted_as_often_as_the_scarcest_policy_allows,
                    the_delay_of_a_set_is_the_longest_delay;
                concurrency:
                    a_burst_of_concurrent_requests_gets_the_limit,
                    concurrent_refunds_and_requests_are_counted_once,
                    concurrent_charges_and_requests_are_counted_once;
            }
            if self.atomic_across_keys {
                cases! { self, make, start;
                    sets: a_denied_key_charges_none_of_the_others;
                    concurrency: concurrent_sets_in_any_order_are_all_or_nothing;
                }
            }
            cases! { self, make, start;
                headroom:
                    a_class_leaves_its_units_to_others,
                    a_class_alone_gets_its_bound_and_then_the_whole_rate,
                    a_class_is_charged_and_in_debt_by_the_whole_quota;
                blocks:
                    a_block_allows_and_charges_nothing_until_it_starts,
                    a_block_refuses_until_it_ends,
                    a_reset_lifts_a_block,
                    another_time_changes_no_block_that_runs,
                    a_clock_that_steps_back_blocks_no_key_for_longer_than_its_block;
                slots:
                    no_more_than_the_limit_run_at_once,
                    a_second_release_frees_nothing,
                    a_release_frees_no_slot_that_was_claimed_later,
                    a_grant_of_several_is_released_in_parts,
                    a_refused_set_takes_no_slot_and_charges_no_rate,
                    a_set_takes_as_many_slots_as_the_scarcest_policy_has,
                    a_changed_limit_ends_no_slot,
                    a_grant_beyond_a_lowered_limit_is_released_as_a_whole,
                    a_denial_of_several_waits_unless_they_exceed_the_limit,
                    a_class_leaves_its_slots_to_others,
                    policies_of_another_name_share_no_slots,
                    concurrent_claims_and_second_releases_keep_the_limit,
                    concurrent_claims_of_several_overlap_nowhere;
                slot_times:
                    a_slot_is_held_for_a_time_to_live_or_until_it_is_released,
                    a_release_after_the_time_to_live_frees_nothing,
                    an_unknown_slot_is_taken_again_if_there_is_room,
                    looks_and_denials_prolong_no_slot,
                    a_denial_waits_until_enough_times_to_live_end,
                    another_time_to_live_ends_no_slot_and_adds_none,
                    a_clock_that_steps_back_holds_no_slot_beyond_a_time_to_live_from_now;
                credit:
                    the_newest_units_come_back,
                    a_credit_pays_debt_first,
                    a_credit_of_an_unused_key_gives_nothing,
                    queues_slots_and_blocks_take_no_credit;
            }
        }
        for algorithm in Suite::ALGORITHMS {
            self.steps_of(algorithm, make).await;
        }
        if self.excuses.leases.is_some() {
            return;
        }
        for vector in crate::vectors::all() {
            // A store for each, since the clock of one would step back from vector to vector.
            let time = ManualClock::new(Timestamp::EPOCH);
            let store = make(Clock::from(&time)).await;
            let case = Case::new("vectors::recorded_answers_are_given", 0, store, time).excused(self.excuses);
            vectors::recorded_answers_are_given(&case, &vector).await;
        }
    }

    /// Runs only the cases of [`RecentUsage`], for stores that say what a key used recently. `make`
    /// is that of [`Suite::run`].
    ///
    /// # Panics
    /// If a store breaks the contract, with the name of the case, the answer and the expected
    /// answer.
    pub async fn run_usage<S>(self, make: impl AsyncFn(Clock) -> S)
    where
        S: Store + RecentUsage,
        S::Error: Debug,
    {
        for start in STARTS {
            let case = async |name| {
                let time = ManualClock::new(Timestamp::from_micros(start));
                let store = make(Clock::from(&time)).await;
                (Case::new(name, start, Box::new(store.clone()), time).excused(self.excuses), store)
            };
            let (unused, store) = case("usage::an_unused_key_has_no_usage_and_stays_unused").await;
            usage::an_unused_key_has_no_usage_and_stays_unused(&unused, &store).await;
            let (without_times, store) = case("usage::an_algorithm_without_times_is_an_error").await;
            usage::an_algorithm_without_times_is_an_error(&without_times, &store).await;
            let (compared, store) = case("usage::counts_match_the_oracle").await;
            usage::counts_match_the_oracle(&compared, &store).await;
        }
    }

    /// Runs only the cases of [`UsageTotals`], for stores that keep the usage of policies that
    /// track it. `make` is that of [`Suite::run`].
    ///
    /// # Panics
    /// If a store breaks the contract, with the name of the case, the answer and the expected
    /// answer.
    pub async fn run_totals<S>(self, make: impl AsyncFn(Clock) -> S)
    where
        S: Store + UsageTotals,
        S::Error: Debug,
    {
        for start in STARTS {
            let case = async |name| {
                let time = ManualClock::new(Timestamp::from_micros(start));
                let store = make(Clock::from(&time)).await;
                let case = Case::new(name, start, Box::new(store.clone()), time);
                Totals::new(case.excused(self.excuses), store)
            };
            totals::grants_are_recorded_and_looks_and_denials_are_not(&case("totals of grants").await).await;
            totals::a_refund_lowers_the_total_and_a_reset_does_not(&case("totals after refunds").await).await;
            totals::charges_beyond_a_grant_are_recorded(&case("totals of charges").await).await;
            totals::policies_of_one_name_share_a_total(&case("totals of one name").await).await;
            totals::they_are_the_sums_of_what_random_sets_were_granted(&case("totals of sets").await).await;
        }
    }

    async fn steps_of(&self, algorithm: Algorithm, make: &Make<'_>) {
        let case = async |name| {
            let time = ManualClock::new(Timestamp::from_micros(STARTS[0]));
            let store = make(Clock::from(&time)).await;
            Case::new(name, STARTS[0], store, time).excused(self.excuses)
        };
        let counts_slots = algorithm == Algorithm::InFlight;
        if !counts_slots {
            let case = case("random_sets::match_the_oracle").await;
            random_sets::match_the_oracle(&case, algorithm, self.steps, self.atomic_across_keys).await;
            if self.excuses.leases.is_some() {
                // What a lease holds is charged ahead, so no answer is that of the oracle.
                return;
            }
        }
        // A clock that has come near its end has no room for long windows: a store for a few each.
        for first in self.histories.clone().step_by(histories::OF_A_STORE) {
            let numbers = first..self.histories.end;
            if counts_slots {
                let case = case("slot_histories::match_the_oracle").await;
                slot_histories::match_the_oracle(&case, numbers).await;
            } else {
                let case = case("histories::match_the_oracle").await;
                histories::match_the_oracle(&case, algorithm, numbers).await;
            }
        }
        if !counts_slots {
            let numbers: Vec<u32> = headroom::numbers(algorithm, self.histories.clone()).collect();
            for numbers in numbers.chunks(histories::OF_A_STORE) {
                let case = case("headroom::random_classes_match_the_oracle").await;
                headroom::random_classes_match_the_oracle(&case, algorithm, numbers).await;
            }
        }
        // A cached denial gives its version no entry.
        if algorithm == Algorithm::Gcra && !self.excuses.cached_denials {
            for first in self.histories.clone().step_by(histories::OF_A_STORE) {
                let numbers = (first..self.histories.end).take(histories::OF_A_STORE);
                let case = case("versions::random_versions_match_the_oracle").await;
                versions::random_versions_match_the_oracle(&case, numbers).await;
            }
        }
    }
}
