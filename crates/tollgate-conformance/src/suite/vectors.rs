//! The golden vectors, as a case.

use tollgate_core::{Check, Grant, Key, Stamp, Wait};

use super::case::Case;
use super::slots::{has_ttl, slot};
use crate::vectors::{Action, Expected, Vector};

pub(super) async fn recorded_answers_are_given(case: &Case, vector: &Vector) {
    if vector.has_ttl && !has_ttl(case).await {
        return;
    }
    let key = Key::from(format!("{}: {}", vector.file, vector.title));
    let mut stamps: Vec<Stamp> = Vec::new();
    for step in &vector.steps {
        case.time.set(step.now);
        match step.action {
            Action::Acquire { cost, times, expected } => {
                let set = [Check::new(&step.policy, &key, cost)];
                let verdict = case.acquire(&set, times).await;
                let status = verdict.each()[0];
                // The files have the time to live, also for a store that keeps slots.
                let ttl = step.policy.ttl().filter(|_| status.ends_after().is_none());
                let mut answer = Expected {
                    times: verdict.times(),
                    remaining: status.remaining(),
                    wait: if verdict.is_granted() { Wait::None } else { status.wait() },
                    reset_after: ttl.unwrap_or(status.reset_after()),
                    delay: verdict.delay(),
                };
                if let Some(due) = expected
                    && case.excuses.cached_denials
                    && !verdict.is_granted()
                    && case.denials.excuse(&set[0], &status, due.remaining, due.wait, step.now)
                {
                    (answer.remaining, answer.wait) = (due.remaining, due.wait);
                }
                if Some(answer) != expected {
                    let due = expected.map_or_else(|| "(nothing yet)".to_owned(), |due| due.to_string());
                    let at = format!("{}.txt, line {} ({})", vector.file, step.line, vector.title);
                    case.fail(&format!("{at}: the store returned {answer}, expected {due}"));
                }
                stamps.push(status.stamp());
            }
            Action::Refund { of, units } => case.refund(&step.policy, &key, units, stamps[of]).await,
            Action::Renew { of, expected } => {
                let renewals = case.renew(&[slot(&step.policy, &key, stamps[of])]).await;
                let at = format!("{}.txt, line {}", vector.file, step.line);
                case.same(&at, renewals, expected.into_iter().collect());
            }
            Action::Settle { of, from, to } => {
                let (policy, stamp) = (&step.policy, stamps[of]);
                case.settle(&[Grant { policy, key: &key, units: from, stamp, share: None }], to).await;
            }
        }
    }
}
