//! The golden vectors equal the oracle's answers.
//!
//! Run with `TOLLGATE_BLESS=1` to write the answers into the files.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate_conformance::oracle::{Ledger, SlotOracle};
use tollgate_conformance::vectors::{self, Action, Expected, Vector};
use tollgate_core::{Check, Key, Stamp, Wait};

/// The oracle's answer to each acquire or renewal of a file, by line.
fn answers(file: &'static str, text: &str) -> HashMap<usize, String> {
    let mut answers = HashMap::new();
    let key = Key::from("caller");
    for vector in vectors::parse(file, text) {
        if file == "in-flight" {
            answers.extend(answers_of_slots(&vector));
            continue;
        }
        let mut ledger = Ledger::default();
        let mut marks = Vec::new();
        for step in &vector.steps {
            match step.action {
                Action::Acquire { cost, times, .. } => {
                    let answer = ledger.acquire(&[Check::new(&step.policy, &key, cost)], times, step.now);
                    let standing = answer.each[0];
                    marks.push(standing.mark);
                    let expected = Expected {
                        times: answer.times,
                        remaining: standing.remaining,
                        wait: standing.wait,
                        reset_after: standing.reset_after,
                        delay: answer.delay,
                    };
                    answers.insert(step.line, expected.to_string());
                }
                Action::Refund { of, units } => {
                    let mark = marks[of].unwrap_or_else(|| panic!("{file}:{}: that was a denial", step.line));
                    ledger.refund(&step.policy, &key, units, mark, step.now);
                }
                Action::Renew { .. } => panic!("{file}:{}: only slots are renewed", step.line),
                Action::Settle { of, from, to } => {
                    let mark = marks[of].unwrap_or_else(|| panic!("{file}:{}: that was a denial", step.line));
                    ledger.settle(&step.policy, &key, &[(from, mark)], to, step.now);
                }
            }
        }
    }
    answers
}

/// The same for requests in flight, in a store that ends slots.
fn answers_of_slots(vector: &Vector) -> HashMap<usize, String> {
    let mut answers = HashMap::new();
    let mut oracle = SlotOracle::new(true);
    let mut stamps = Vec::new();
    for step in &vector.steps {
        let (policy, now) = (&step.policy, step.now);
        match step.action {
            Action::Acquire { cost, times, .. } => {
                let left = oracle.left(policy, now);
                let most = match cost {
                    0 => times.max(),
                    1 => u32::try_from(left).map_or(times.max(), |left| left.min(times.max())),
                    _ => 0,
                };
                let granted = if most < times.min() { 0 } else { most };
                // Any identity will do, if none occurs twice.
                let stamp =
                    Stamp::new(now.as_micros(), u32::try_from(step.line).expect("a line of a file") << 16);
                for turn in 0..u64::from(granted) * cost {
                    oracle.claim(policy, stamp.after_refund(policy, turn), now);
                }
                stamps.push(stamp);
                let remaining = oracle.left(policy, now);
                let least = u64::from(times.min().max(1));
                let wait = match cost {
                    _ if granted > 0 || cost == 0 => Wait::None,
                    1 if left >= least => Wait::None,
                    1 => oracle
                        .refuse(policy, least, now)
                        .map_or(Wait::Never, |us| Wait::For(Duration::from_micros(us))),
                    _ => Wait::Never,
                };
                let reset_after =
                    if oracle.is_unused(policy, now) { Duration::ZERO } else { policy.quota().window() };
                let answer = Expected { times: granted, remaining, wait, reset_after, delay: Duration::ZERO };
                answers.insert(step.line, answer.to_string());
            }
            Action::Refund { of, units } => {
                for turn in 0..units {
                    oracle.release(stamps[of].after_refund(policy, turn));
                }
            }
            Action::Renew { of, .. } => {
                let renewal = oracle.renew(policy, stamps[of], now);
                answers.insert(step.line, format!("{renewal:?}").to_lowercase());
            }
            Action::Settle { .. } => panic!("in-flight:{}: slots are not settled", step.line),
        }
    }
    answers
}

#[test]
fn the_oracle_matches_the_vectors() {
    for (file, text) in vectors::FILES {
        let answers = answers(file, text);
        let lines = text.lines().enumerate().map(|(i, line)| match answers.get(&(i + 1)) {
            Some(answer) => {
                let asked = line.split("=>").next().unwrap_or(line).trim_end();
                format!("{asked} => {answer}\n")
            }
            None => format!("{line}\n"),
        });
        let should: String = lines.collect();
        if std::env::var_os("TOLLGATE_BLESS").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(format!("{file}.txt"));
            fs::write(path, should).unwrap();
            continue;
        }
        for (i, (line, should)) in text.lines().zip(should.lines()).enumerate() {
            assert_eq!(line, should, "{file}.txt, line {} (left: written, right: the oracle)", i + 1);
        }
    }
}

#[test]
fn every_file_has_vectors_of_its_algorithm() {
    for (file, text) in vectors::FILES {
        let vectors = vectors::parse(file, text);
        let steps = vectors.iter().flat_map(|vector| &vector.steps);
        assert!(steps.clone().count() > 200, "{file}");
        assert!(steps.clone().all(|step| step.policy.algorithm().name() == file), "{file}");
        let scopes = vectors
            .iter()
            .map(|vector| &vector.steps)
            .all(|steps| steps.iter().all(|step| step.policy.scope() == steps[0].policy.scope()));
        assert!(scopes, "the scope changes within a vector of {file}");
    }
}
