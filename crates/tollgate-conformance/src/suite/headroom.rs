//! Cases of classes that leave units to others.

use std::time::Duration;

use tollgate_core::{Check, Key, Policy, Times};

use super::case::{Case, WINDOW, plain_with_limit};
use crate::oracle::Ledger;
use crate::random::Random;

fn leaving(case: &Case, policy: &Policy, units: u64) -> Policy {
    policy.leaving(units).unwrap_or_else(|error| case.fail(&format!("{units} of {policy:?}: {error}")))
}

pub(super) async fn a_class_leaves_its_units_to_others(case: &Case) {
    let key = Key::from("caller");
    for policy in plain_with_limit(10) {
        let class = leaving(case, &policy, 4);
        let verdict = case.acquire(&[Check::new(&class, &key, 1)], Times::up_to(99)).await;
        case.same(&format!("granted to the class, {}", policy.name()), verdict.times(), 6);
        case.left("to the class", &class, &key, 0).await;
        case.left("to others", &policy, &key, 4).await;
        let verdict = case.acquire(&[Check::new(&policy, &key, 1)], Times::up_to(99)).await;
        case.same(&format!("granted to others, {}", policy.name()), verdict.times(), 4);
    }
}

/// Three classes of each algorithm, of which each request may be.
pub(super) async fn random_requests_of_three_classes_match_the_oracle(case: &Case) {
    for (number, policy) in (0_u32..).zip(plain_with_limit(12)) {
        let classes = [policy.clone(), leaving(case, &policy, 3), leaving(case, &policy, 8)];
        let (mut random, mut ledger) = (Random::new(number.into()), Ledger::default());
        for n in 0..200_u32 {
            if case.excuses.leases.is_some() {
                // What a lease holds is charged ahead.
                return;
            }
            let class = random.one_of(&[0, 1, 2]);
            let (key, cost) = (Key::from(n / 100), random.below(4));
            let set = [Check::new(&classes[class], &key, cost)];
            let times = Times::between(1, random.small(1, 3));
            let now = case.time.now();
            let mut due = ledger.acquire(&set, times, now);
            let verdict = case.acquire(&set, times).await;
            if case.excuses.cached_denials {
                case.denials.relax(&mut due, &set, &verdict, now);
            }
            if let Some(difference) = due.difference(&verdict) {
                case.fail(&format!("{difference}; {times:?} of {set:#?}"));
            }
            case.time.advance(Duration::from_micros(random.below(WINDOW / 8)));
        }
    }
}
