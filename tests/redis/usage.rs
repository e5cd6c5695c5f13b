//! The usage of an interval, by the server's clock. The contract compares it with the oracle.

use std::pin::pin;
use std::time::Duration;

use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate::store::{Check, ErrorKind, Store, Times};
use tollgate::usage::{RecentUsage, UsageError};
use tollgate::{Algorithm, Key, Limiter, Policy, Quota, StoreExt};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::Kind;
use tollgate_tests::{Proxy, Way};

use crate::redis::{BothLayouts, Fresh, acquire, builder, connect_to, prefix, shared};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_limiter_counts_an_interval_in_every_layout() {
    for &kind in Kind::EVERY {
        let stores = BothLayouts::on(shared(kind)).await;
        for (algorithm, layout) in [
            (Algorithm::SLIDING_BUCKETS, SlidingLogLayout::List),
            (Algorithm::SLIDING_LOG, SlidingLogLayout::List),
            (Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet),
        ] {
            let policy = Policy::new("logins", Quota::per_day(50_000)).with_algorithm(algorithm);
            let store = stores.of(layout).store.clone();
            let limiter = Limiter::new([policy.clone()]).store(store.clone().fail_closed());
            let key = Key::from("ada");
            for _ in 0..5 {
                let _ = limiter.check(&key, 7).await.unwrap();
            }
            assert!(limiter.check(&key, 50_000).await.is_err());
            let usage = store.recent_usage(&policy, &key, HOUR).await;
            assert_eq!(usage, Ok(35), "{algorithm:?} in {layout:?} on {kind}");
            assert_eq!(store.recent_usage(&policy, &Key::from("bob"), HOUR).await, Ok(0));
            limiter.reset(&key).await;
            assert_eq!(store.recent_usage(&policy, &key, HOUR).await, Ok(0));
        }
    }
}

#[tokio::test]
async fn a_foreign_value_has_no_usage() {
    let server = shared(Kind::Redis8_2);
    for layout in [SlidingLogLayout::List, SlidingLogLayout::SortedSet] {
        let fresh = Fresh::with(server, layout, |builder| builder).await;
        let policy = Policy::new("p", Quota::per_day(10)).with_algorithm(Algorithm::SLIDING_LOG);
        let mut redis = connect_to(&server.url()).unwrap();
        let name = fresh.name(&policy, "ada");
        let _: () = cmd("SET").arg(&name).arg("foreign").arg("EX").arg(60).query(&mut redis).unwrap();
        assert_eq!(fresh.store.recent_usage(&policy, &Key::from("ada"), HOUR).await, Ok(0), "{layout:?}");
    }
}

#[tokio::test]
async fn usage_is_counted_again_after_scripts_are_flushed() {
    let server = tollgate_test_servers::Server::start(Kind::Installed).unwrap();
    let fresh = Fresh::on(&server).await;
    let policy = Policy::new("p", Quota::per_day(10)).with_algorithm(Algorithm::SLIDING_BUCKETS);
    let key = Key::from("ada");
    for used in 1..=3 {
        let verdict = fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await.unwrap();
        assert!(verdict.is_granted());
        let mut redis = connect_to(&server.url()).unwrap();
        let _: () = cmd("SCRIPT").arg("FLUSH").query(&mut redis).unwrap();
        assert_eq!(fresh.store.recent_usage(&policy, &key, HOUR).await, Ok(used));
    }
    drop(server);
    let usage = fresh.store.recent_usage(&policy, &key, HOUR).await;
    assert!(matches!(usage, Err(UsageError::Store { .. })), "{usage:?}");
}

/// Questions have a connection of their own. They used to take those of checks, in turn.
#[tokio::test]
async fn a_check_does_not_wait_behind_questions_about_usage() {
    let fresh = Fresh::on(shared(Kind::Redis8_2)).await;
    let policy = Policy::new("p", Quota::per_day(10)).with_algorithm(Algorithm::SLIDING_BUCKETS);
    acquire(&fresh.store, &policy, "ada", 1).await;
    let mut questions = JoinSet::new();
    for _ in 0..2_000 {
        let (store, policy) = (fresh.store.clone(), policy.clone());
        questions.spawn(async move { store.recent_usage(&policy, &Key::from("ada"), HOUR).await });
    }
    // The first questions are under way, and all others wait.
    assert_eq!(questions.join_next().await.unwrap().unwrap(), Ok(1));
    acquire(&fresh.store, &policy, "bob", 1).await;
    let mut answered = 0;
    while let Some(answer) = questions.try_join_next() {
        assert_eq!(answer.unwrap(), Ok(1));
        answered += 1;
    }
    assert!(answered < 1_000, "{answered} questions were answered before the check");
    assert!(questions.join_all().await.into_iter().all(|usage| usage == Ok(1)));
}

/// A store behind a proxy, with one connection, over which one question was answered.
async fn behind(proxy: &Proxy, policy: &Policy, timeout: Duration) -> RedisStore {
    let builder = builder(&format!("redis://{}/", proxy.address())).prefix(prefix());
    let store = builder.response_timeout(timeout).connect().await.unwrap();
    acquire(&store, policy, "ada", 1).await;
    assert_eq!(store.recent_usage(policy, &Key::from("ada"), HOUR).await, Ok(1));
    assert_eq!(proxy.accepted(), 1);
    store
}

#[tokio::test]
async fn a_slow_answer_does_not_hold_up_the_next_question() {
    let proxy = Proxy::before(shared(Kind::Redis8_2).address()).await;
    let policy = Policy::new("p", Quota::per_day(10)).with_algorithm(Algorithm::SLIDING_BUCKETS);
    let store = behind(&proxy, &policy, Duration::from_secs(5)).await;
    // The connection answers no more, and others do.
    proxy.strand();
    let ask = async |n: usize| (n, store.recent_usage(&policy, &Key::from("ada"), HOUR).await);
    let mut slow = pin!(ask(1));
    assert!(timeout(Duration::from_millis(100), &mut slow).await.is_err());
    let (first, second) = tokio::select! {
        answer = &mut slow => (answer, None),
        answer = ask(2) => (answer, Some(slow.await)),
    };
    assert_eq!(first, (2, Ok(1)), "the second question is answered first");
    assert!(
        matches!(second, Some((1, Err(UsageError::Store { kind: ErrorKind::Timeout, .. })))),
        "{second:?}"
    );
}

#[tokio::test]
async fn a_question_waits_no_longer_than_the_response_timeout_for_others() {
    let proxy = Proxy::before(shared(Kind::Redis8_2).address()).await;
    let policy = Policy::new("p", Quota::per_day(10)).with_algorithm(Algorithm::SLIDING_BUCKETS);
    let store = behind(&proxy, &policy, Duration::from_millis(500)).await;
    proxy.set(Way::HoldsAnswersBack);
    let mut questions = JoinSet::new();
    for _ in 0..100 {
        let (store, policy) = (store.clone(), policy.clone());
        questions.spawn(async move { store.recent_usage(&policy, &Key::from("ada"), HOUR).await });
    }
    // The others wait for an answer, or for a connection.
    for n in 0..90 {
        let answer = timeout(Duration::from_secs(30), questions.join_next()).await;
        let answer = answer.unwrap_or_else(|_| panic!("{n} questions have an end")).unwrap().unwrap();
        let is_bounded = |kind| matches!(kind, ErrorKind::Overloaded | ErrorKind::Timeout);
        assert!(matches!(answer, Err(UsageError::Store { kind, .. }) if is_bounded(kind)), "{answer:?}");
    }
}
