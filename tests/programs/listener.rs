//! A program that cannot wait for an answer.

use tollgate::{Key, Limiter, Outcome, Policy, Reason, StoreExt};
use tollgate_tests::{clock, per_minute, store};

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Accepts connections in a function that is not `async`.
fn accepted<S>(limiter: &Limiter<S>, peers: &[&str]) -> Vec<bool>
where
    S: tollgate::store::Store<Error: tollgate::store::NeverFails> + tollgate::store::AnswersNow,
{
    peers.iter().map(|peer| limiter.check_now(&Key::from(*peer), 1).is_ok()).collect()
}

#[test]
fn a_store_in_memory_answers_without_a_runtime() {
    let refused = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&refused);
    let limiter = Limiter::new([per_minute("connections", 2), per_minute("more", 9)]).store(store(&clock()));
    let limiter = limiter.observe(move |decision| {
        count.fetch_add((decision.outcome() == Outcome::Denied).into(), Ordering::Relaxed);
    });
    assert_eq!(accepted(&limiter, &["a", "b", "a", "a", "b", "b"]), [true, true, true, false, true, false]);
    assert_eq!(refused.load(Ordering::Relaxed), 2);
    assert_eq!(limiter.check_now(&Key::from(""), 1).unwrap_err().reason(), Reason::NoKey);
}

#[test]
fn slots_and_blocks_are_decided_at_once_too() {
    let policies = [
        Policy::in_flight("open", 1),
        per_minute("tries", 1).block_after(1, std::time::Duration::from_secs(60)),
    ];
    let limiter = Limiter::new(policies).store(store(&clock()).deny_cache(1_000));
    let ada = Key::from("ada");
    let permit = limiter.check_now(&ada, 1).unwrap();
    assert_eq!(limiter.check_now(&ada, 1).unwrap_err().reason(), Reason::QuotaExceeded);
    drop(permit);
    assert_eq!(limiter.check_now(&ada, 1).unwrap_err().reason(), Reason::Blocked);
}
