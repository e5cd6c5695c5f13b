//! Cases of the usage of an interval.

use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, RecentUsage, Stamp, Times, Timestamp, UsageError};

use super::case::{Case, SECOND, WINDOW, micros, plain};
use crate::oracle::{Ledger, Mark};
use crate::random::Random;

/// Rounds of the comparison for each policy.
const ROUNDS: u32 = 60;

fn stores_times(policy: &Policy) -> bool {
    matches!(policy.algorithm(), Algorithm::SlidingBuckets { .. } | Algorithm::SlidingLog { .. })
}

pub(super) async fn an_unused_key_has_no_usage_and_stays_unused(case: &Case, store: &impl RecentUsage) {
    let key = Key::from("caller");
    for policy in plain().iter().filter(|policy| stores_times(policy)) {
        for interval in [0, 1, WINDOW, u64::MAX].map(Duration::from_micros) {
            case.same("the usage", store.recent_usage(policy, &key, interval).await, Ok(0));
        }
        case.same("the reset", case.look(policy, &key, 1).await.reset_after(), Duration::ZERO);
    }
}

pub(super) async fn an_algorithm_without_times_is_an_error(case: &Case, store: &impl RecentUsage) {
    let key = Key::from("caller");
    for policy in plain().iter().filter(|policy| !stores_times(policy)) {
        case.must_take(policy, &key, 1).await;
        let usage = store.recent_usage(policy, &key, Duration::from_secs(1)).await;
        case.same("the usage", usage, Err(UsageError::Algorithm(policy.algorithm())));
    }
}

pub(super) async fn counts_match_the_oracle(case: &Case, store: &impl RecentUsage) {
    let mut random = Random::new(0x05a6_e0f2);
    let quota = |limit, micros| Quota::new(limit, Duration::from_micros(micros));
    let policies = [
        Policy::new("log", quota(40, WINDOW)).with_algorithm(Algorithm::SLIDING_LOG),
        Policy::new("ring", quota(40, WINDOW)).with_algorithm(Algorithm::SLIDING_BUCKETS),
        // Sub-windows of a length that does not divide the window.
        Policy::new("odd", quota(1_000, 9_999_991)).with_algorithm(Algorithm::SlidingBuckets { buckets: 7 }),
    ];
    for policy in &policies {
        let mut compared = Compared {
            case,
            store,
            policy,
            key: Key::from("caller"),
            ledger: Ledger::default(),
            grant: None,
        };
        for _ in 0..ROUNDS {
            compared.step(&mut random).await;
            let window = micros(policy.quota().window());
            let some = random.magnitude(1, 2 * window);
            for interval in [random.one_of(&[0, 1, window / 10]), window, some] {
                compared.compare(interval).await;
            }
        }
    }
}

/// A store and the oracle of one policy and key.
struct Compared<'a, S> {
    case: &'a Case,
    store: &'a S,
    policy: &'a Policy,
    key: Key,
    ledger: Ledger,
    /// The units, the stamp and the mark of the last grant.
    grant: Option<(u64, Stamp, Mark)>,
}

impl<S: RecentUsage> Compared<'_, S> {
    async fn step(&mut self, random: &mut Random) {
        let (case, now) = (self.case, self.case.time.now());
        match random.below(10) {
            0 => {
                case.reset(&self.key, &[self.policy]).await;
                self.ledger.reset(self.policy, &self.key);
            }
            1 | 2 => {
                let Some((units, stamp, mark)) = self.grant.take() else { return };
                let units = random.one_of(&[1, units]);
                case.refund(self.policy, &self.key, units, stamp).await;
                self.ledger.refund(self.policy, &self.key, units, mark, now);
            }
            // The clock steps back.
            3 => case.time.set(Timestamp::from_micros(now.as_micros().saturating_sub(random.below(SECOND)))),
            4..=6 => case.advance(random.magnitude(1, WINDOW)),
            _ => {
                let check = Check::new(self.policy, &self.key, random.magnitude(1, 20));
                let verdict = case.acquire(&[check], Times::ONCE).await;
                let due = self.ledger.acquire(&[check], Times::ONCE, now);
                case.same("times granted", verdict.times(), due.times);
                let mark = due.each[0].mark.filter(|_| due.times > 0);
                self.grant = mark.map(|mark| (check.cost, verdict.each()[0].stamp(), mark));
            }
        }
    }

    async fn compare(&mut self, interval: u64) {
        let (policy, key, now) = (self.policy, &self.key, self.case.time.now());
        let interval = Duration::from_micros(interval);
        let due = self.ledger.usage(policy, key, now, interval);
        let usage = self.store.recent_usage(policy, key, interval).await;
        self.case.same(&format!("the usage of {} in {interval:?}", policy.name()), usage.ok(), due);
    }
}
