//! The golden vectors.

use std::fmt::Debug;

use tollgate_core::{Check, Key, Stamp, Store, Wait};

use super::bench::Bench;
use crate::vectors::{self, Action, Expected};

pub(super) async fn are_answered_as_written<S: Store<Error: Debug>>(bench: &Bench<S>) {
    for vector in vectors::all() {
        let key = Key::from(format!("{}: {}", vector.file, vector.title));
        let mut stamps: Vec<Stamp> = Vec::new();
        for step in &vector.steps {
            bench.time.set(step.now);
            match step.action {
                Action::Acquire { cost, times, expected } => {
                    let set = [Check::new(&step.policy, &key, cost)];
                    let verdict = bench.acquire(&set, times).await;
                    let status = verdict.each()[0];
                    let told = Expected {
                        times: verdict.times(),
                        remaining: status.remaining(),
                        wait: if verdict.is_granted() { Wait::None } else { status.wait() },
                        reset_after: status.reset_after(),
                        delay: verdict.delay(),
                    };
                    if Some(told) != expected {
                        let due = expected.map_or_else(|| "(nothing yet)".to_owned(), |due| due.to_string());
                        let at = format!("{}.txt, line {} ({})", vector.file, step.line, vector.title);
                        bench.fail(&format!("{at}: the store says {told}, should say {due}"));
                    }
                    stamps.push(status.stamp());
                }
                Action::Refund { of, units } => bench.refund(&step.policy, &key, units, stamps[of]).await,
            }
        }
    }
}
