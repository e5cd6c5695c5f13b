//! The usage of an interval while a store fails: an error, under every failure policy.

use std::time::Duration;

use tollgate::extract::header;
use tollgate::{
    Algorithm, CircuitBreaker, ErrorKind, FailureExt, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota,
    Share, StoreExt, UsageError,
};
use tollgate_tests::{Connection, Fault};

use crate::{FAILURES, TIMEOUT, closed, failing, open};

const MINUTE: Duration = Duration::from_secs(60);

fn logins() -> Policy {
    Policy::new("logins", Quota::per_hour(5)).with_algorithm(Algorithm::SLIDING_LOG)
}

#[tokio::test(start_paused = true)]
async fn no_failure_policy_invents_a_count() {
    let key = Key::from("ada");
    for failure in FAILURES {
        let store = failing(Connection::Works);
        let fall_back = store.clone().timeout(TIMEOUT).fall_back_to(MemoryStore::new(), Share::WHOLE);
        for wrapped in [open(&store), closed(&store), fall_back.boxed()] {
            store.set(Connection::Works);
            let limiter = Limiter::new([logins().by(header("x-user"))]).store(wrapped);
            let _ = limiter.check_key(&key, 1).await.unwrap();
            assert!(limiter.usage("logins", &key, MINUTE).await.is_ok());
            store.set(failure);
            let kind = match limiter.usage("logins", &key, MINUTE).await {
                Err(UsageError::Store { kind, .. }) => kind,
                other => panic!("{failure:?}: {other:?}"),
            };
            let due =
                if failure == Connection::IsSilent { ErrorKind::Timeout } else { ErrorKind::Unavailable };
            assert_eq!(kind, due, "{failure:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_asks_for_no_count() {
    let store = failing(Connection::Fails(Fault::Unreachable));
    let wrapped = store.clone().circuit_breaker(CircuitBreaker::default().failures_in_a_row(1)).fail_open();
    let limiter = Limiter::new([logins().by(header("x-user"))]).store(wrapped);
    let key = Key::from("ada");
    let _ = limiter.check_key(&key, 1).await.unwrap();
    let asked = store.asked();
    let usage = limiter.usage("logins", &key, MINUTE).await;
    assert!(matches!(usage, Err(UsageError::Store { kind: ErrorKind::CircuitOpen, .. })), "{usage:?}");
    assert_eq!(store.asked(), asked);
}

#[tokio::test]
async fn an_unknown_policy_is_named() {
    let limiter = Limiter::new([logins().by(header("x-user"))]);
    let usage = limiter.usage("log-ins", &Key::from("ada"), MINUTE).await;
    assert_eq!(usage, Err(UsageError::UnknownPolicy("log-ins".to_owned())));
    assert_eq!(usage.unwrap_err().to_string(), "no rule has a policy named \"log-ins\"");
}
