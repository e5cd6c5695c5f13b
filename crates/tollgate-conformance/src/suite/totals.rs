//! Cases of the last use and the total of each key.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use tollgate_core::{
    Algorithm, Check, Grant, Key, KeyTotal, Policy, Quota, Stamp, Times, Timestamp, UsageTotals,
};

use super::case::{Case, SECOND, WINDOW, plain, with_debt};
use crate::random::Random;

/// Random steps of the comparison.
const STEPS: u32 = 300;

/// A case, and the store that it is of.
pub(super) struct Totals<S> {
    case: Case,
    store: S,
}

impl<S> Deref for Totals<S> {
    type Target = Case;

    fn deref(&self) -> &Case {
        &self.case
    }
}

impl<S: UsageTotals> Totals<S> {
    pub(super) fn new(case: Case, store: S) -> Totals<S> {
        Totals { case, store }
    }

    /// Fails unless the store knows this of a key.
    async fn known(&self, policy: &Policy, key: &Key, due: Option<(u64, Timestamp)>) {
        let known = self.store.total_of(policy.name(), key).await;
        let known = known.map(|of| of.map(|of| (of.total, of.last_use)));
        self.same(&format!("the usage of {}", policy.name()), known, Ok(due));
    }

    /// All that the store knows of a policy, by key.
    async fn scanned(&self, policy: &str) -> BTreeMap<String, KeyTotal> {
        let mut totals = BTreeMap::new();
        let each = |total: KeyTotal| drop(totals.insert(total.key.clone(), total));
        self.same("the scan", self.store.scan_totals(policy, each).await, Ok(()));
        totals
    }
}

pub(super) async fn grants_are_recorded_and_looks_and_denials_are_not<S: UsageTotals>(case: &Totals<S>) {
    let (key, other) = (Key::from("caller"), Key::from("other"));
    for policy in plain() {
        let tracked = policy.clone().track_usage();
        case.look(&tracked, &key, 1).await;
        case.take(&tracked, &key, 0).await;
        case.take(&tracked, &key, 6).await;
        case.known(&tracked, &key, None).await;
        case.must_take(&tracked, &key, 2).await;
        let first = case.time.now();
        case.known(&tracked, &key, Some((2, first))).await;
        case.advance(1);
        case.denied(&tracked, &key, 4).await;
        case.look(&tracked, &key, 1).await;
        case.take(&tracked, &key, 0).await;
        case.known(&tracked, &key, Some((2, first))).await;
        let granted = case.acquire(&[Check::new(&tracked, &key, 1)], Times::up_to(100)).await.times();
        case.same("times granted", granted, 3);
        case.known(&tracked, &key, Some((5, case.time.now()))).await;
        case.advance(2 * WINDOW);
        // Not tracked, although it shares the state.
        case.must_take(&policy, &key, 2).await;
        case.must_take(&policy, &other, 1).await;
        case.known(&tracked, &other, None).await;
        case.must_take(&tracked, &key, 1).await;
        case.known(&tracked, &key, Some((6, case.time.now()))).await;
        let keys = case.scanned(policy.name()).await;
        case.same("the keys", keys.into_values().map(|of| of.total).collect::<Vec<_>>(), vec![6]);
    }
}

pub(super) async fn a_refund_lowers_the_total_and_a_reset_does_not<S: UsageTotals>(case: &Totals<S>) {
    let key = Key::from("caller");
    for policy in plain() {
        let tracked = policy.track_usage();
        let stamp = case.must_take(&tracked, &key, 4).await;
        let used = case.time.now();
        case.advance(1);
        case.refund(&tracked, &key, 1, stamp).await;
        case.known(&tracked, &key, Some((3, used))).await;
        case.reset(&key, &[&tracked]).await;
        case.known(&tracked, &key, Some((3, used))).await;
        // The limit has nothing left to give back.
        case.advance(2 * WINDOW);
        case.refund(&tracked, &key, 2, stamp).await;
        case.known(&tracked, &key, Some((1, used))).await;
        case.refund(&tracked, &key, 2, stamp).await;
        case.known(&tracked, &key, Some((0, used))).await;
        case.refund(&tracked, &Key::from("other"), 2, stamp).await;
        case.known(&tracked, &Key::from("other"), None).await;
    }
}

pub(super) async fn charges_beyond_a_grant_are_recorded<S: UsageTotals>(case: &Totals<S>) {
    let key = Key::from("caller");
    for policy in with_debt(5) {
        let tracked = policy.track_usage();
        case.charge(&tracked, &key, 0).await;
        case.known(&tracked, &key, None).await;
        case.charge(&tracked, &key, 3).await;
        case.known(&tracked, &key, Some((3, case.time.now()))).await;
        case.advance(1);
        case.charge(&tracked, &key, 5).await;
        case.known(&tracked, &key, Some((8, case.time.now()))).await;
        let charged = case.charge(&tracked, &key, 100).await.charged;
        let used = case.time.now();
        case.known(&tracked, &key, Some((8 + charged, used))).await;
        // The rest was forgiven, and so is this.
        case.advance(1);
        case.charge(&tracked, &key, 100).await;
        case.known(&tracked, &key, Some((8 + charged, used))).await;
    }
    let queue = &plain()[1].clone().track_usage();
    case.charge(queue, &key, 3).await;
    case.known(queue, &key, None).await;
}

pub(super) async fn policies_of_one_name_share_a_total<S: UsageTotals>(case: &Totals<S>) {
    let key = Key::from("caller");
    let policy = |limit, window, algorithm| {
        let quota = Quota::new(limit, Duration::from_micros(window));
        Policy::new("api", quota).with_algorithm(algorithm).track_usage()
    };
    let minute = policy(50, WINDOW, Algorithm::Gcra);
    let hour = policy(500, 100 * WINDOW, Algorithm::FIXED_WINDOW);
    case.must_take(&minute, &key, 1).await;
    case.must_take(&hour, &key, 2).await;
    case.known(&minute, &key, Some((3, case.time.now()))).await;
    // Both in a set, and one of them twice.
    let set = [(&minute, 4), (&hour, 5), (&minute, 6)].map(|(policy, cost)| Check::new(policy, &key, cost));
    let stamps: Vec<Stamp> =
        case.acquire(&set, Times::ONCE).await.each().iter().map(|status| status.stamp()).collect();
    case.known(&minute, &key, Some((18, case.time.now()))).await;
    let grants = set.iter().zip(stamps).map(|(check, stamp)| {
        let Check { policy, key, cost } = *check;
        Grant { policy, key, units: cost, stamp, share: None }
    });
    case.refund_all(&grants.collect::<Vec<_>>()).await;
    case.known(&hour, &key, Some((3, case.time.now()))).await;
}

pub(super) async fn they_are_the_sums_of_what_random_sets_were_granted<S: UsageTotals>(case: &Totals<S>) {
    let mut random = Random::new(0x0d0e_5ab1);
    // Every other one is tracked.
    let track = |(n, policy): (usize, Policy)| if n % 2 == 0 { policy.track_usage() } else { policy };
    let policies: Vec<Policy> = plain().into_iter().enumerate().map(track).collect();
    let keys: Vec<Key> = (0..3).map(|n| Key::from(format!("caller {n}"))).collect();
    let mut due: BTreeMap<(usize, usize), (u64, Timestamp)> = BTreeMap::new();
    let mut grants: Vec<(usize, usize, u64, Stamp)> = Vec::new();
    let below = |random: &mut Random, n: usize| usize::try_from(random.below(n as u64)).unwrap_or(0);
    for _ in 0..STEPS {
        match random.below(10) {
            0 | 1 => case.advance(random.below(3 * SECOND)),
            2 | 3 => {
                let Some((policy, key, units, stamp)) = grants.pop() else { continue };
                let units = random.one_of(&[units, 1]);
                case.refund(&policies[policy], &keys[key], units, stamp).await;
                if let Some((total, _)) = due.get_mut(&(policy, key)) {
                    *total = total.saturating_sub(units);
                }
            }
            4 => {
                let (policy, key) = (below(&mut random, policies.len()), below(&mut random, keys.len()));
                case.reset(&keys[key], &[&policies[policy]]).await;
                // Grants from before a reset are not refunded.
                grants.retain(|grant| (grant.0, grant.1) != (policy, key));
            }
            5 => {
                let (policy, key) = (below(&mut random, policies.len()), below(&mut random, keys.len()));
                let units = random.one_of(&[0, 1, 3, 20]);
                let charged = case.charge(&policies[policy], &keys[key], units).await.charged;
                if charged > 0 && policies[policy].numbers().tracks_usage() {
                    let (total, last_use) = due.entry((policy, key)).or_default();
                    (*total, *last_use) = (*total + charged, case.time.now());
                }
            }
            _ => {
                let checks: Vec<(usize, usize, u64)> = (0..random.one_of(&[1, 1, 2, 3, 6]))
                    .map(|_| {
                        let cost = random.one_of(&[0, 1, 1, 2, 3]);
                        (below(&mut random, policies.len()), below(&mut random, keys.len()), cost)
                    })
                    .collect();
                let set: Vec<Check<'_>> = checks
                    .iter()
                    .map(|(policy, key, cost)| Check::new(&policies[*policy], &keys[*key], *cost))
                    .collect();
                let times = random.one_of(&[Times::ONCE, Times::ONCE, Times::up_to(3), Times::LOOK]);
                let verdict = case.acquire(&set, times).await;
                if verdict.times() == 0 {
                    continue;
                }
                for ((policy, key, cost), status) in checks.into_iter().zip(verdict.each()) {
                    let units = cost * u64::from(verdict.times());
                    if units == 0 {
                        continue;
                    }
                    grants.push((policy, key, units, status.stamp()));
                    if policies[policy].numbers().tracks_usage() {
                        let (total, last_use) = due.entry((policy, key)).or_default();
                        *total += units;
                        *last_use = case.time.now();
                    }
                }
            }
        }
    }
    for (n, policy) in policies.iter().enumerate() {
        for (m, key) in keys.iter().enumerate() {
            case.known(policy, key, due.get(&(n, m)).copied()).await;
        }
        let mut of_policy: Vec<_> = case.scanned(policy.name()).await.into_values().collect();
        of_policy.sort_by_key(|of| (of.total, of.last_use));
        let mut expected: Vec<_> = due.iter().filter(|of| of.0.0 == n).map(|of| *of.1).collect();
        expected.sort_unstable();
        let of_policy: Vec<_> = of_policy.into_iter().map(|of| (of.total, of.last_use)).collect();
        case.same(&format!("the scan of {}", policy.name()), of_policy, expected);
    }
}
