//! Compares the algorithms with the oracles over random histories.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tollgate_conformance::CALENDAR_WINDOW;
use tollgate_conformance::history::{self, History, Mix};
use tollgate_core::Algorithm;

/// A thirtieth of them without `TOLLGATE_LONG=1`.
fn cases() -> u32 {
    if std::env::var_os("TOLLGATE_LONG").is_some() { 100_000 } else { 3_000 }
}

const EVERY: [Algorithm; 8] = [
    Algorithm::Gcra,
    Algorithm::LeakyBucket { max_wait: Duration::ZERO },
    Algorithm::FIXED_WINDOW,
    Algorithm::FIXED_WINDOW_ALIGNED,
    CALENDAR_WINDOW,
    Algorithm::SlidingWindow,
    Algorithm::SLIDING_BUCKETS,
    // No limit is too large for a log here, since units of one microsecond share an entry.
    Algorithm::SlidingLog { max_limit: u32::MAX },
];

/// Checks random histories of one algorithm. A failing one is shrunk word by word.
fn histories(algorithm: Algorithm, mix: Mix, cases: u32) {
    // No files of failures: users of the published crate do not need them.
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let words = vec(any::<u64>(), 2..40);
    let result = TestRunner::new(config).run(&words, |words| {
        let history = History::of_words(algorithm, mix, &words);
        let outcome = std::panic::catch_unwind(|| history::check(&history));
        outcome.map_err(|panic| {
            let reason = panic.downcast_ref::<String>().map_or("a panic", |reason| reason);
            TestCaseError::fail(format!("{reason}\n{history:#?}"))
        })
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

macro_rules! histories {
    ($($name:ident: $algorithm:expr;)*) => {$(
        #[test]
        fn $name() {
            histories($algorithm, Mix::default(), cases());
        }
    )*};
}

histories! {
    gcra: EVERY[0];
    leaky_bucket: EVERY[1];
    fixed_window: EVERY[2];
    fixed_window_aligned: EVERY[3];
    calendar_window: EVERY[4];
    sliding_window: EVERY[5];
    sliding_buckets: EVERY[6];
    sliding_log: EVERY[7];
}

#[test]
fn a_clock_that_steps_back_matches_the_oracle() {
    for algorithm in EVERY {
        histories(algorithm, Mix { step_back: true, ..Mix::default() }, cases() / 4);
    }
}

#[test]
fn waits_stay_exact_when_the_limit_changes() {
    for algorithm in EVERY {
        histories(algorithm, Mix { change: true, ..Mix::default() }, cases() / 4);
    }
}

#[test]
fn grants_settled_to_less_or_more_match_the_oracle() {
    for algorithm in EVERY {
        histories(algorithm, Mix { debt: true, ..Mix::default() }, cases() / 4);
        histories(algorithm, Mix { debt: true, step_back: true, ..Mix::default() }, cases() / 4);
    }
}

#[test]
fn random_histories_with_all_changes_match_the_oracle() {
    for algorithm in EVERY {
        histories(algorithm, Mix { step_back: true, change: true, debt: true }, cases() / 4);
    }
}
