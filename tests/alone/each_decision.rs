//! What the log reports about single decisions at level debug.

use tollgate::{CircuitBreaker, Key, Limiter, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, Level, Log, clock, per_minute, store};

#[tokio::test]
async fn debug_logs_name_each_decision_and_circuit_change_but_no_key() {
    if crate::ran_in_own_process(debug_logs_name_each_decision_and_circuit_change_but_no_key) {
        return;
    }
    let log = Log::of_process(Level::TRACE);
    let store = Failing::new(store(&clock()), Connection::Works);
    let breaker = CircuitBreaker::default().failures_in_a_row(2).clock(&clock());
    let breaking = store.clone().circuit_breaker(breaker);
    let limiter = Limiter::new([per_minute("p", 100)]).store(breaking.fail_open());
    for connection in
        [Connection::Works, Connection::Fails(Fault::TooSlow), Connection::Fails(Fault::Unreachable)]
    {
        store.set(connection);
        let _ = limiter.check(&Key::from("ada@example.com"), 1).await;
    }
    let _ = limiter.check(&Key::from("ada@example.com"), 1).await;
    let lines = log.lines();
    let levels: Vec<_> = lines.iter().map(|line| line.split_whitespace().nth(1).expect("a level")).collect();
    let due = [
        ("TRACE", "source=\"store\""),
        ("WARN", "pass without limit"),
        ("DEBUG", "kind=\"timeout\""),
        ("TRACE", "source=\"failure-policy\""),
        ("WARN", "circuit breaker of the rate limit store opens"),
        ("DEBUG", "kind=\"unavailable\""),
        ("TRACE", "source=\"failure-policy\""),
        ("DEBUG", "kind=\"circuit-open\""),
        ("TRACE", "source=\"failure-policy\""),
    ];
    assert_eq!(levels, due.map(|(level, _)| level), "{lines:#?}");
    for (line, (_, text)) in lines.iter().zip(due) {
        assert!(line.contains(text) && !line.contains("ada"), "{line}");
    }
}
