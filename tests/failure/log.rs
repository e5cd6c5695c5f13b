//! The log says when a store begins to fail and when it answers again, and no more.

use tollgate::{Key, Limiter};
use tollgate_tests::{Connection, Fault, Log, per_minute};

use crate::failure::{FAILURES, closed, failing, open};

/// The levels of what was logged.
fn levels(log: &Log) -> Vec<String> {
    let level = |line: &String| line.split_whitespace().nth(1).expect("a level").to_owned();
    log.lines().iter().map(level).collect()
}

#[tokio::test(start_paused = true)]
async fn an_outage_logs_one_warning_and_one_line_at_its_end() {
    for (policy, meaning) in [(open as fn(&_) -> _, "pass without limit"), (closed, "are refused")] {
        let (log, _guard) = Log::of_thread();
        let store = failing(Connection::Works);
        let limiter = Limiter::new([per_minute("p", 100)]).store(policy(&store));
        let ada = Key::from("ada@example.com");
        let permit = limiter.check(&ada, 1).await.expect("room");
        assert_eq!(log.lines(), [""; 0]);
        for failure in FAILURES {
            store.set(failure);
            for _ in 0..5 {
                let _ = limiter.clone().check(&ada, 1).await;
                let _ = limiter.look(&ada).await;
            }
        }
        permit.refund().await;
        limiter.reset(&ada).await;
        let lines = log.lines();
        let [line] = &lines[..] else { panic!("not one line but {lines:#?}") };
        assert!(line.contains("WARN") && line.contains("unreachable") && line.contains(meaning), "{line}");
        store.set(Connection::Works);
        for _ in 0..5 {
            let _ = limiter.check(&ada, 1).await;
        }
        assert_eq!(levels(&log), ["WARN", "INFO"]);
        assert!(log.lines()[1].contains("answers again"));
        assert!(!log.lines().concat().contains("ada"), "a key is nobody's business");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_refund_or_reset_is_logged() {
    let ada = Key::from("ada");
    for failure in FAILURES {
        for refund in [true, false] {
            let (log, _guard) = Log::of_thread();
            let store = failing(Connection::Works);
            let limiter = Limiter::new([per_minute("p", 100)]).store(open(&store));
            let permit = limiter.check(&ada, 1).await.expect("room");
            store.set(failure);
            if refund {
                permit.refund().await;
            } else {
                limiter.reset(&ada).await;
            }
            assert_eq!(levels(&log), ["WARN"], "{failure:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_misconfiguration_is_logged_as_an_error_even_after_a_warning() {
    let (log, _guard) = Log::of_thread();
    let store = failing(Connection::Fails(Fault::Unreachable));
    let limiter = Limiter::new([per_minute("p", 100)]).store(open(&store));
    let ada = Key::from("ada");
    for fault in [Fault::Unreachable, Fault::WrongPassword, Fault::Unreachable, Fault::WrongPassword] {
        store.set(Connection::Fails(fault));
        let _ = limiter.check(&ada, 1).await;
    }
    store.set(Connection::Works);
    let _ = limiter.check(&ada, 1).await;
    assert_eq!(levels(&log), ["WARN", "ERROR", "INFO"]);
    assert!(log.lines()[1].contains("wrong password"), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_every_other_request_does_not_fill_the_log() {
    let (log, _guard) = Log::of_thread();
    let store = failing(Connection::Works);
    let limiter = Limiter::new([per_minute("p", 100)]).store(open(&store));
    for _ in 0..50 {
        for connection in [Connection::Fails(Fault::Unreachable), Connection::Works] {
            store.set(connection);
            let _ = limiter.check(&Key::from("ada"), 1).await;
        }
    }
    assert_eq!(levels(&log), ["WARN", "INFO"]);
}

#[tokio::test(start_paused = true)]
async fn separately_wrapped_stores_are_logged_separately() {
    let (log, _guard) = Log::of_thread();
    let store = failing(Connection::Fails(Fault::Unreachable));
    for policy in [open, closed] {
        let limiter = Limiter::new([per_minute("p", 100)]).store(policy(&store));
        let _ = limiter.check(&Key::from("ada"), 1).await;
    }
    assert_eq!(levels(&log), ["WARN", "WARN"]);
}
