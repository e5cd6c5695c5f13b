//! Cases of classes that leave units to others.

use std::ops::Range;
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Quota, Times, Timestamp, Verdict};

use super::case::{Case, SECOND, WINDOW, micros, plain_with_limit, with_debt};
use super::concurrency::ask_all;
use super::random_sets::EVERY;
use crate::oracle::Ledger;
use crate::random::Random;

fn leaving(case: &Case, policy: &Policy, units: u64) -> Policy {
    policy.leaving(units).unwrap_or_else(|error| case.fail(&format!("{units} of {policy:?}: {error}")))
}

async fn takes_all(case: &Case, policy: &Policy, key: &Key, due: u32) {
    let verdict = case.acquire(&[Check::new(policy, key, 1)], Times::up_to(99)).await;
    case.same(&format!("granted of {} at once", policy.name()), verdict.times(), due);
}

pub(super) async fn a_class_leaves_its_units_to_others(case: &Case) {
    let key = Key::from("caller");
    for policy in plain_with_limit(10) {
        let class = leaving(case, &policy, 4);
        takes_all(case, &class, &key, 6).await;
        case.left("to the class", &class, &key, 0).await;
        case.left("to others", &policy, &key, 4).await;
        takes_all(case, &policy, &key, 4).await;
    }
}

/// A bucket refills its class as fast as all others.
pub(super) async fn a_class_alone_gets_its_bound_and_then_the_whole_rate(case: &Case) {
    let key = Key::from("caller");
    for policy in plain_with_limit(10) {
        let class = leaving(case, &policy, 4);
        for _ in 0..3 {
            takes_all(case, &class, &key, 6).await;
            case.left("to others", &policy, &key, 4).await;
            case.advance(micros(case.look(&class, &key, 1).await.reset_after()));
        }
        if matches!(policy.algorithm(), Algorithm::Gcra | Algorithm::LeakyBucket { .. }) {
            takes_all(case, &class, &key, 6).await;
            for _ in 0..20 {
                case.advance(SECOND);
                takes_all(case, &class, &key, 1).await;
            }
        }
    }
}

/// Also the class of a class: it has one unit, and others have the rest.
pub(super) async fn a_class_is_charged_and_in_debt_by_the_whole_quota(case: &Case) {
    let key = Key::from("caller");
    for policy in with_debt(10) {
        let class = leaving(case, &policy, 4);
        let class_of_class = leaving(case, &class, 5);
        for class in [class, class_of_class] {
            case.must_take(&class, &key, 1).await;
            case.charged(&class, &key, 7, (7, 0, 0)).await;
            case.left("to the class", &class, &key, 0).await;
            case.left("to others", &policy, &key, 2).await;
            case.charged(&class, &key, 7, (7, 5, 0)).await;
            case.charged(&class, &key, 7, (5, 5, 2)).await;
            case.denied(&policy, &key, 1).await;
            case.reset(&key, &[&policy]).await;
        }
    }
}

/// Of the numbers of histories, those of this algorithm: a part of all.
pub(super) fn numbers(algorithm: Algorithm, histories: Range<u32>) -> impl Iterator<Item = u32> {
    let place = EVERY.iter().position(|of| *of == algorithm).unwrap_or(0);
    histories.skip(place).step_by(EVERY.len())
}

/// Histories of three classes of one key, whose requests come several at a time.
pub(super) async fn random_classes_match_the_oracle(case: &Case, algorithm: Algorithm, numbers: &[u32]) {
    for number in numbers {
        let mut random = Random::new(u64::from(*number));
        let capacity = 3 + random.below(30);
        let quota = Quota::new(1 + random.below(30), Duration::from_micros(WINDOW));
        let policy = match algorithm {
            Algorithm::Gcra | Algorithm::LeakyBucket { .. } => Policy::new("classes", quota.burst(capacity)),
            _ => Policy::new("classes", Quota::new(capacity, quota.window())),
        };
        let waits = Duration::from_micros(random.one_of(&[0, WINDOW / 8, WINDOW]));
        let policy = policy.with_algorithm(match algorithm {
            Algorithm::LeakyBucket { .. } => Algorithm::LeakyBucket { max_wait: waits },
            algorithm => algorithm,
        });
        let floor = 1 + random.below(capacity - 2);
        let higher = floor + 1 + random.below(capacity - 1 - floor);
        let mut run = Run {
            case,
            ledger: Ledger::default(),
            classes: [leaving(case, &policy, floor), leaving(case, &policy, higher), policy],
            key: Key::from(*number),
        };
        for _ in 0..3 + random.below(6) {
            run.play(&mut random).await;
            let far = random.below(3 * WINDOW);
            case.advance(random.one_of(&[0, 0, 1, WINDOW / 8, WINDOW / 3, WINDOW, far]));
        }
    }
}

struct Run<'a> {
    case: &'a Case,
    ledger: Ledger,
    classes: [Policy; 3],
    key: Key,
}

impl Run<'_> {
    /// Asks several times at one moment.
    async fn play(&mut self, random: &mut Random) {
        let now = self.case.time.now();
        let classes = &self.classes;
        // The search knows no delays, so a request that may be delayed comes alone.
        let is_one = !self.classes[2].longest_wait().is_zero();
        let count = if is_one { 1 } else { 1 + random.below(6) };
        let mut request = || {
            let class = random.one_of(&[0, 1, 2]);
            let some = random.small(1, 3);
            let times = random.one_of(&[Times::ONCE, Times::ONCE, Times::between(1, some), Times::LOOK]);
            (Check::new(&classes[class], &self.key, random.one_of(&[1, 1, 1, 0, 2, 5])), times)
        };
        let requests: Vec<(Check<'_>, Times)> = (0..count).map(|_| request()).collect();
        let verdicts = ask_all(self.case, &requests).await;
        let mut asked: Vec<_> = requests.into_iter().zip(verdicts).collect();
        // A store decides requests of one moment in any order. The search takes those first that
        // charge nothing, since they fit before one that does.
        asked.sort_by_key(|((check, _), verdict)| charged(verdict.times(), check) > 0);
        while !asked.is_empty() {
            let is_last = asked.len() == 1;
            let next = asked.iter().position(|((check, times), verdict)| {
                let may_be_next = is_last || may_be_next(&mut self.ledger, check, *times, verdict, now);
                may_be_next && is_next(self.case, &mut self.ledger, check, *times, verdict)
            });
            let Some(next) = next else {
                self.case.fail(&format!("no order explains {asked:#?}"));
            };
            asked.remove(next);
        }
    }
}

/// Whether a store that has so many units left may have decided this next. Of grants that charge
/// units, only one finds so many.
fn may_be_next(
    ledger: &mut Ledger,
    check: &Check<'_>,
    times: Times,
    verdict: &Verdict,
    now: Timestamp,
) -> bool {
    let left = ledger.acquire(&[*check], Times::LOOK, now).each[0].remaining;
    match verdict.times() {
        0 => times.max() == 0 || left < check.cost,
        granted => verdict.each()[0].remaining() + charged(granted, check) == left,
    }
}

/// Whether a request is the next that the store has decided. If so, the oracle decides it too.
fn is_next(case: &Case, ledger: &mut Ledger, check: &Check<'_>, times: Times, verdict: &Verdict) -> bool {
    let (set, now) = ([*check], case.time.now());
    let mut due = ledger.acquire(&set, times, now);
    if case.excuses.cached_denials {
        case.denials.relax(&mut due, &set, verdict, now);
    }
    let difference = due.difference(verdict);
    if let (Some(difference), true) = (&difference, charged(verdict.times(), check) > 0) {
        case.fail(&format!("{difference}; {times:?} of {check:#?}"));
    }
    difference.is_none()
}

/// The units that so many grants have charged.
fn charged(granted: u32, check: &Check<'_>) -> u64 {
    u64::from(granted) * check.cost
}
