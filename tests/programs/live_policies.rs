//! Policies of a limiter that are replaced while callers use it.

use std::convert::Infallible;
use std::time::Duration;

use tollgate::calls::{CallError, CallLimitLayer};
use tollgate::layer::RuleChange;
use tollgate::{Algorithm, Key, Limiter, Policy, SetupError};
use tollgate_tests::{a_minute, clock, per_minute, store};
use tower::{Layer, Service, ServiceExt, service_fn};

const PATIENCE: Duration = Duration::from_secs(3_600);

fn mails(limit: u64) -> Policy {
    a_minute("mails", Algorithm::FIXED_WINDOW, limit)
}

fn ada() -> Key {
    Key::from("ada")
}

/// Lets callers begin to wait.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn clones_follow_and_keys_keep_what_they_have_used() {
    let limiter = Limiter::new([mails(2)]).store(store(&clock()));
    let (clone, changed) = (limiter.clone(), limiter.clone().observe(|_| {}));
    limiter.check(&ada(), 2).await.map(drop).unwrap();
    let changes = limiter.replace([mails(5), per_minute("more", 9)]).unwrap();
    assert_eq!(
        (changes.of("mails"), changes.of("more")),
        (Some(RuleChange::Changed), Some(RuleChange::Added))
    );
    assert_eq!((limiter.version(), clone.version(), changed.version()), (2, 2, 1));
    let report = clone.check(&ada(), 1).await.unwrap().report().clone();
    assert_eq!(report.statuses().iter().map(|status| status.remaining()).collect::<Vec<_>>(), [2, 8]);
    assert!(changed.check(&ada(), 1).await.is_err(), "it has policies of its own, on the same state");

    assert!(matches!(limiter.replace([mails(1), mails(2)]), Err(SetupError::PolicyTwice(_))));
    assert_eq!(limiter.version(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_raise_reaches_callers_that_wait() {
    let limiter = Limiter::new([mails(1)]).store(store(&clock()));
    limiter.check(&ada(), 1).await.map(drop).unwrap();
    let wait = |by_name: bool| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            match by_name {
                true => limiter.until_ready_each(&[("mails", &ada(), 1)], PATIENCE).await,
                false => limiter.until_ready(&ada(), 1, PATIENCE).await,
            }
        })
    };
    let waits = [wait(true), wait(false)];
    settled().await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    limiter.replace([mails(3)]).unwrap();
    for wait in waits {
        assert_eq!(wait.await.unwrap().unwrap().report().get("mails").unwrap().0.capacity(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_by_a_name_that_is_gone_hears_of_it() {
    let limiter = Limiter::new([mails(1)]).store(store(&clock()));
    limiter.check(&ada(), 1).await.map(drop).unwrap();
    let waits = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.try_until_ready_each(&[("mails", &ada(), 1)], PATIENCE).await }
    });
    settled().await;
    limiter.replace([per_minute("letters", 9)]).unwrap();
    assert!(matches!(waits.await.unwrap(), Err(SetupError::UnknownPolicy(name, _)) if name == "mails"));
}

#[tokio::test]
async fn a_service_of_calls_follows() {
    let limiter = Limiter::new([mails(1)]).store(store(&clock()));
    let layer = CallLimitLayer::new(limiter.clone(), |()| Some(ada()));
    let mut service = layer.layer(service_fn(async |()| Ok::<_, Infallible>(())));
    service.ready().await.unwrap().call(()).await.unwrap();
    let refused = service.ready().await.unwrap().call(()).await.unwrap_err();
    assert!(matches!(refused, CallError::Denied(_)));
    limiter.replace([mails(2)]).unwrap();
    service.ready().await.unwrap().call(()).await.unwrap();
}

#[tokio::test]
async fn a_limiter_that_is_switched_off_charges_nothing_and_knows_its_names() {
    let limiter = Limiter::new([mails(1), per_minute("more", 9)]).store(store(&clock()));
    limiter.set_enabled(false);
    for _ in 0..3 {
        limiter.check(&ada(), 1).await.map(drop).unwrap();
        let mut permit = limiter.check_each(&[("mails", &ada(), 1)]).await.unwrap();
        permit.charge("mails").settle(5).await;
    }
    let unknown = limiter.try_check_each(&[("letters", &ada(), 1)]).await;
    assert!(matches!(unknown, Err(SetupError::UnknownPolicy(..))));
    limiter.set_enabled(true);
    let left = limiter.look(&ada()).await.unwrap();
    assert_eq!(left.statuses().iter().map(|status| status.remaining()).collect::<Vec<_>>(), [1, 9]);
}
