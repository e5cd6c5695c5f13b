//! The golden vectors equal the oracle's answers.
//!
//! Run with `TOLLGATE_BLESS=1` to write the answers into the files.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tollgate_conformance::oracle::Ledger;
use tollgate_conformance::vectors::{self, Action, Expected};
use tollgate_core::{Check, Key};

/// The oracle's answer to each acquire of a file, by line.
fn answers(file: &'static str, text: &str) -> HashMap<usize, Expected> {
    let mut answers = HashMap::new();
    let key = Key::from("caller");
    for vector in vectors::parse(file, text) {
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
                    answers.insert(step.line, expected);
                }
                Action::Refund { of, units } => {
                    let mark = marks[of].unwrap_or_else(|| panic!("{file}:{}: that was a denial", step.line));
                    ledger.refund(&step.policy, &key, units, mark, step.now);
                }
                Action::Settle { of, from, to } => {
                    let mark = marks[of].unwrap_or_else(|| panic!("{file}:{}: that was a denial", step.line));
                    ledger.settle(&step.policy, &key, &[(from, mark)], to, step.now);
                }
            }
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
