//! What decided.

use std::time::Duration;

use tollgate::store::{BoxStore, Source};
use tollgate::{Key, Lease, Limiter, Outcome, Share, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, clock, per_minute, store};

use crate::observe::Eye;

#[tokio::test]
async fn a_failure_policy_and_a_fallback_are_shown_while_the_store_fails() {
    let ada = Key::from("ada");
    let inner = Failing::new(store(&clock()), Connection::Works);
    let share = Share::new(1, 2);
    let policies: [(BoxStore<_>, Source, [Outcome; 2]); 3] = [
        (inner.clone().fail_open().boxed(), Source::FailurePolicy, [Outcome::Allowed; 2]),
        (inner.clone().fail_closed().boxed(), Source::FailurePolicy, [Outcome::Denied; 2]),
        (
            inner.clone().fall_back_to(store(&clock()), share).boxed(),
            Source::Fallback,
            [Outcome::Allowed, Outcome::Denied],
        ),
    ];
    for (number, (store, source, outcomes)) in policies.into_iter().enumerate() {
        let eye = Eye::default();
        let policy = per_minute(&format!("p{number}"), 2);
        let limiter = Limiter::new([policy]).store(store).observe(eye.watch());
        for fails in [Connection::Fails(Fault::Unreachable), Connection::FailsLater(Fault::Unreachable)] {
            inner.set(fails);
            for outcome in outcomes {
                let _ = limiter.check(&ada, 1).await;
                let seen = eye.take();
                assert_eq!((seen[0].outcome, seen[0].source), (outcome, source), "{fails:?}");
            }
            limiter.reset(&ada).await;
        }
        inner.set(Connection::Works);
        let _ = limiter.check(&ada, 1).await;
        assert_eq!(eye.take()[0].source, Source::Store);
    }
}

#[tokio::test]
async fn a_remembered_denial_is_shown_as_such() {
    let eye = Eye::default();
    let cached = store(&clock()).deny_cache(100).clock(&clock());
    let limiter = Limiter::new([per_minute("p", 1)]).store(cached).observe(eye.watch());
    for (outcome, source) in [
        (Outcome::Allowed, Source::Store),
        (Outcome::Denied, Source::Store),
        (Outcome::Denied, Source::DenyCache),
    ] {
        let _ = limiter.check(&Key::from("ada"), 1).await;
        let seen = eye.take();
        assert_eq!((seen[0].outcome, seen[0].source), (outcome, source));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_shown_for_single_rules_and_for_sets() {
    for rules in [1, 2] {
        let eye = Eye::default();
        let leased = store(&clock()).leased(Lease::default());
        let policies = (0..rules).map(|n| per_minute(&format!("p{n}"), 1_000_000));
        let limiter = Limiter::new(policies).store(leased).observe(eye.watch());
        for _ in 0..1_000 {
            let _ = limiter.check(&Key::from("ada"), 1).await;
            tokio::time::sleep(Duration::from_micros(1)).await;
        }
        let seen = eye.take();
        let count = |source| seen.iter().filter(|seen| seen.source == source).count();
        let (stored, leased) = (count(Source::Store), count(Source::Lease));
        assert_eq!(stored + leased, seen.len());
        assert!(leased > stored && stored > 0, "{stored} by the store and {leased} by leases");
        assert!(seen.iter().all(|seen| seen.outcome == Outcome::Allowed));
    }
}
