//! The contract, case by case.

mod basics;
mod bench;
mod changes;
mod concurrency;
mod keys;
mod partial;
mod queue;
mod random_sets;
mod refunds;
mod sets;
mod vectors;
mod waits;

use std::fmt::Debug;

use tollgate_core::{Algorithm, Clock, ManualClock, Store, Timestamp};

use bench::Bench;

/// The contract of [`Store`] as a test suite, and what a store is excused from.
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
/// use tollgate_core::{Check, Clock, Grant, Key, Policy, Reply, Store, Times, Verdict};
///
/// /// A store of one lock: of no use under load, but right.
/// #[derive(Clone)]
/// struct OneLock {
///     clock: Clock,
///     states: Arc<Mutex<HashMap<(String, Key), State>>>,
/// }
///
/// /// The distinct pairs of a set with the sum of their costs, and which of them each check means.
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
///         pairs[at].2 += u64::from(check.cost);
///         at
///     });
///     let of_check = of_check.collect();
///     (pairs, of_check)
/// }
///
/// impl Store for OneLock {
///     type Error = Infallible;
///     type Acquire = Ready<Result<Verdict, Infallible>>;
///     type Done = Ready<Result<(), Infallible>>;
///
///     fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
///         let mut states = self.states.lock().unwrap();
///         let now = self.clock.now();
///         let (pairs, of_check) = pairs(set);
///         // First look at all ...
///         let mut granted = times.max();
///         let mut looks = Vec::new();
///         for (policy, key, cost) in &pairs {
///             let state = states.entry((policy.scope().into(), (*key).clone()));
///             let look = state.or_insert_with(|| State::new(policy)).look(policy, now);
///             if let Some(most) = u64::from(look.room).checked_div(*cost) {
///                 granted = granted.min(u32::try_from(most).unwrap_or(u32::MAX));
///             }
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
///                 let wanted = cost.saturating_mul(times.min().max(1).into());
///                 state.refuse(policy, now, look, wanted)
///             } else {
///                 let units = u32::try_from(cost * u64::from(granted)).unwrap();
///                 let charge = state.charge(policy, now, look, units);
///                 delay = delay.max(charge.delay);
///                 charge.status
///             });
///         }
///         Reply::Now(Ok(Verdict::new(granted, delay, of_check.into_iter().map(|at| statuses[at]))))
///     }
///
///     fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
///         let mut states = self.states.lock().unwrap();
///         for grant in grants {
///             if let Some(state) = states.get_mut(&(grant.policy.scope().into(), grant.key.clone())) {
///                 state.refund(grant.policy, self.clock.now(), grant.units, grant.stamp);
///             }
///         }
///         Reply::Now(Ok(()))
///     }
///
///     fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
///         let mut states = self.states.lock().unwrap();
///         for policy in policies {
///             states.remove(&(policy.scope().into(), key.clone()));
///         }
///         Reply::Now(Ok(()))
///     }
/// }
///
/// // In a test of your own this is `#[tokio::test] async fn conforms()`.
/// # fn main() {
/// let run = Suite::new().steps(500).run(async |clock| OneLock { clock, states: Arc::default() });
/// // A store that answers at once needs no runtime.
/// assert!(pin!(run).poll(&mut Context::from_waker(Waker::noop())).is_ready());
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Suite {
    atomic_across_keys: bool,
    steps: u32,
    only_steps_of: Option<Algorithm>,
}

impl Default for Suite {
    fn default() -> Suite {
        Suite::new()
    }
}

/// Where in time the cases begin. The first is in 2026, on no round number; at the epoch nothing has gone before; and
/// the last leaves three years to [`Timestamp::MAX`].
const STARTS: [u64; 3] = [1_767_225_600_123_457, 0, (1 << 52) - 100_000_000_000_001];

/// Runs each case with a store of its own, at each start.
macro_rules! cases {
    ($suite:ident, $make:ident, $start:expr; $($module:ident: $($case:ident),+;)+) => {$($(
        let time = ManualClock::new(Timestamp::from_micros($start));
        let store = $make(Clock::from(&time)).await;
        let case = concat!(stringify!($module), "::", stringify!($case));
        $module::$case(&Bench::new(case, $start, store, time)).await;
    )+)+};
}

impl Suite {
    /// The algorithms whose random steps are compared: each of them, the log not at its largest, since some stores keep an
    /// entry for each unit.
    pub const ALGORITHMS: [Algorithm; 7] = random_sets::EVERY;

    /// The whole contract.
    pub fn new() -> Suite {
        Suite { atomic_across_keys: true, steps: 2_000, only_steps_of: None }
    }

    /// For a store in which the keys of a set may live in different places that cannot be decided in one step: a Redis
    /// Cluster, say. Sets of several policies must still be atomic for each key.
    pub fn without_atomic_sets_across_keys(mut self) -> Suite {
        self.atomic_across_keys = false;
        self
    }

    /// How many random steps are compared with the [oracle](crate::oracle), for each algorithm: 2,000 unless said.
    pub fn steps(mut self, steps: u32) -> Suite {
        self.steps = steps;
        self
    }

    /// Only the random steps, and only those of this algorithm: so that very many, of a store that takes its time, can be
    /// spread over tests that run at the same time. Besides, not instead of, the whole contract.
    pub fn only_steps_of(mut self, algorithm: Algorithm) -> Suite {
        self.only_steps_of = Some(algorithm);
        self
    }

    /// Holds stores to the contract: `make` is called for each case and must return a store in which nothing has been
    /// used yet, not even by the stores made before, and which goes by the clock that it is given.
    ///
    /// The future is never spawned; it runs in whatever runtime awaits it. A store that answers on the spot
    /// ([`Reply::Now`](tollgate_core::Reply::Now)) is asked from several threads as well.
    ///
    /// # Panics
    /// If the store breaks the contract: with the name of the case, and with what it answered and what was due.
    pub async fn run<S>(self, make: impl AsyncFn(Clock) -> S)
    where
        S: Store,
        S::Error: Debug,
    {
        if let Some(algorithm) = self.only_steps_of {
            return self.steps_of(algorithm, &make).await;
        }
        for start in STARTS {
            cases! { self, make, start;
                basics:
                    the_limit_is_granted_and_not_one_more,
                    the_first_request_on_a_fresh_key_passes,
                    a_cost_equal_to_the_capacity_passes,
                    what_can_never_pass_is_told_so_and_recorded_nowhere,
                    a_cost_of_zero_passes_and_charges_nothing,
                    a_look_charges_nothing_and_tells_the_wait_of_its_cost,
                    denied_requests_are_not_recorded,
                    the_wait_does_not_follow_a_large_cost_that_was_denied;
                waits:
                    a_retry_passes_exactly_at_its_wait,
                    a_large_cost_waits_for_all_of_it,
                    the_quota_is_back_at_its_reset_and_not_before,
                    a_new_window_does_not_inherit_the_old_count,
                    requests_do_not_prolong_the_window,
                    limits_above_a_thousand_a_second_are_not_truncated,
                    three_a_second_and_seven_lose_nothing_to_rounding,
                    microseconds_of_a_16_digit_time_are_kept;
                partial:
                    as_many_are_granted_as_there_is_room_for,
                    less_than_the_least_is_denied_and_charges_nothing,
                    a_grant_of_none_at_all_is_no_denial;
                queue:
                    what_comes_too_early_is_delayed_behind_what_came_before,
                    beyond_the_longest_wait_it_is_denied,
                    a_look_and_a_cost_of_zero_are_not_queued,
                    only_the_latest_grant_comes_back;
                refunds:
                    a_refund_restores_the_quota,
                    a_refund_does_not_land_in_the_next_window,
                    a_refund_never_exceeds_the_capacity,
                    a_refund_creates_no_quota_on_a_fresh_key,
                    a_refund_gives_back_no_more_than_is_still_owed,
                    every_policy_of_a_set_is_refunded,
                    each_of_several_grants_comes_back_to_its_own_key;
                keys:
                    keys_do_not_share_a_quota,
                    policies_of_another_name_window_or_algorithm_do_not_share_a_quota,
                    long_keys_and_binary_keys_are_told_apart,
                    what_ends_a_key_does_not_begin_a_policy,
                    clones_share_their_state,
                    a_reset_forgets_the_key_under_these_policies_only;
                changes:
                    a_wait_is_there_after_the_limit_was_lowered,
                    a_raised_limit_counts_at_once,
                    a_debt_of_a_policy_beside_is_not_forgiven,
                    a_stamp_in_parts_of_another_size_is_not_the_latest,
                    a_clock_that_steps_back_refills_nothing_and_locks_nobody_out,
                    a_refund_from_before_the_clock_stepped_back_is_void;
                sets:
                    a_denied_policy_charges_none_of_the_others,
                    only_those_that_refuse_report_a_wait,
                    a_pair_named_twice_is_charged_the_sum,
                    an_empty_set_is_granted,
                    sets_are_granted_as_often_as_the_scarcest_policy_allows,
                    the_delay_of_a_set_is_its_longest;
                concurrency:
                    a_burst_of_concurrent_requests_gets_the_limit,
                    refunds_among_requests_are_counted_once;
            }
            if self.atomic_across_keys {
                cases! { self, make, start;
                    sets: a_denied_key_charges_none_of_the_others;
                    concurrency: concurrent_sets_in_any_order_are_all_or_nothing;
                }
            }
        }
        for algorithm in Suite::ALGORITHMS {
            self.steps_of(algorithm, &make).await;
        }
        let time = ManualClock::new(Timestamp::EPOCH);
        let store = make(Clock::from(&time)).await;
        vectors::are_answered_as_written(&Bench::new("vectors::are_answered_as_written", 0, store, time))
            .await;
    }

    async fn steps_of<S>(&self, algorithm: Algorithm, make: &impl AsyncFn(Clock) -> S)
    where
        S: Store,
        S::Error: Debug,
    {
        let time = ManualClock::new(Timestamp::from_micros(STARTS[0]));
        let store = make(Clock::from(&time)).await;
        let bench = Bench::new("random_sets::are_decided_as_by_the_oracle", STARTS[0], store, time);
        random_sets::are_decided_as_by_the_oracle(&bench, algorithm, self.steps, self.atomic_across_keys)
            .await;
    }
}
