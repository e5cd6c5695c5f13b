//! Waits that the store ends by itself. Calls may take a minute here, so nothing else ends a wait.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::failure::GuardError;
use tollgate::store::{Check, ErrorKind, Grant, Stamp, Store, StoreError, Times, renewals};
use tollgate::time::Clock;
use tollgate::{Key, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Server};
use tollgate_tests::{Proxy, Way, within};

use crate::redis::{Fresh, acquire, builder, crowd, prefix, try_acquire, used};

const MS: Duration = Duration::from_millis(1);

fn a_day(limit: u64) -> Policy {
    Policy::new("p", Quota::per_day(limit))
}

async fn patient(server: &Server, most_waiting: usize) -> Fresh {
    Fresh::with(server, Default::default(), |builder| builder.connections(2).most_waiting(most_waiting)).await
}

/// A handle to the same store whose callers wait for so long.
fn limited(store: &RedisStore, limit: Duration) -> RedisStore {
    store.with_deadline(Some(limit))
}

/// Asks until there is no answer in time.
async fn is_late(store: &RedisStore, policy: &Policy, key: &str, limit: Duration) {
    let clock = Clock::system();
    let asked = clock.now();
    let error = try_acquire(store, policy, key, 1).await.unwrap_err();
    assert!(error.is_timeout() && error.is_transient() && !error.is_configuration(), "{error}");
    assert_eq!(error.to_string(), "redis did not answer in time");
    let told = clock.now();
    assert!(told >= asked.saturating_add(limit), "asked at {asked:?}, told at {told:?}, with {limit:?}");
}

/// Callers in the call that hangs, and callers in the queue behind it. A check that was not sent
/// charges nothing.
#[tokio::test]
async fn a_call_times_out_at_its_deadline_and_not_before() {
    for kind in [Kind::Redis6_2, Kind::Valkey9_1] {
        let server = Server::start(kind).unwrap();
        let fresh = patient(&server, 10_000).await;
        let policy = a_day(1_000_000);
        acquire(&fresh.store, &policy, "ada", 1).await;
        server.pause().unwrap();
        let mut waits = JoinSet::new();
        for n in 0..400_u32 {
            let limit = [50 * MS, 150 * MS, 400 * MS][n as usize % 3];
            let (store, policy) = (limited(&fresh.store, limit), policy.clone());
            let key = if n.is_multiple_of(2) { "ada".to_owned() } else { format!("user {n}") };
            waits.spawn(async move { is_late(&store, &policy, &key, limit).await });
            if n.is_multiple_of(20) {
                // In between, so that some are in a call and most are not.
                tokio::time::sleep(3 * MS).await;
            }
        }
        let all = timeout(Duration::from_secs(30), waits.join_all());
        all.await.expect("ends of all waits, long before that of a call");
        server.resume().unwrap();
        let charged = used(&fresh.store, &policy, "ada").await;
        assert!(charged <= 1 + 1 + 10, "{charged}: more than one before, and what two connections had sent");
        assert!(acquire(&fresh.store, &policy, "ada", 1).await.is_granted());
    }
}

/// Two callers share a merged call, and one of them leaves. The other gets the answer that it would
/// get with both there.
#[tokio::test]
async fn a_caller_that_times_out_takes_nothing_from_others() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = patient(&server, 10_000).await;
    let (policy, key) = (a_day(5), Key::from("ada"));
    let set = [Check::new(&policy, &key, 1)];
    acquire(&fresh.store, &policy, "eve", 1).await;
    crowd(&fresh.store).await;
    let (hasty, steady) = (limited(&fresh.store, 50 * MS), limited(&fresh.store, Duration::from_secs(50)));
    server.pause().unwrap();
    // All are queued together, because nothing is sent before this task waits.
    let replies: Vec<_> =
        (0..8).map(|n| if n < 3 { &hasty } else { &steady }.acquire(&set, Times::ONCE)).collect();
    let (mut late, mut granted) = (0, 0);
    for (n, reply) in replies.into_iter().enumerate() {
        match timeout(Duration::from_secs(30), reply.wait()).await.expect("an end") {
            Err(error) => {
                assert!(n < 3 && error.is_timeout(), "{n}: {error}");
                late += 1;
            }
            Ok(verdict) => granted += verdict.times(),
        }
        if n == 2 {
            server.resume().unwrap();
        }
    }
    assert_eq!((late, granted), (3, 2), "five in all, of which three were of those who left");
    assert_eq!(used(&fresh.store, &policy, "ada").await, 5);
}

/// Callers that leave also make room in the queue, so a Redis that hangs is not reported as
/// overloaded.
#[tokio::test]
async fn callers_that_timed_out_no_longer_count_as_waiting() {
    let server = Server::start(Kind::Installed).unwrap();
    let fresh = patient(&server, 50).await;
    let policy = a_day(1_000_000);
    acquire(&fresh.store, &policy, "ada", 1).await;
    let store = limited(&fresh.store, 40 * MS);
    server.pause().unwrap();
    for round in 0..5 {
        let mut waits = JoinSet::new();
        for n in 0..40 {
            let (store, policy) = (store.clone(), policy.clone());
            waits.spawn(async move { try_acquire(&store, &policy, &format!("{round} {n}"), 1).await });
        }
        for answer in timeout(Duration::from_secs(30), waits.join_all()).await.expect("an end") {
            let error = answer.unwrap_err();
            assert!(error.is_timeout() && !error.is_overloaded(), "round {round}: {error}");
        }
    }
    server.resume().unwrap();
    assert!(acquire(&fresh.store, &policy, "ada", 1).await.is_granted());
}

/// Also if patient callers are in the same call and in the same queue.
#[tokio::test]
async fn each_caller_that_times_out_makes_room_for_another() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let fresh = patient(&server, 50).await;
    let policy = a_day(1_000_000);
    acquire(&fresh.store, &policy, "ada", 1).await;
    let store = limited(&fresh.store, 30 * MS);
    server.pause().unwrap();
    let mut waits = JoinSet::new();
    let key = Key::from("ada");
    for _ in 0..10 {
        waits.spawn(fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait());
    }
    // Some caller always waits, and never more than the queue has room for.
    for n in 0..200 {
        let (store, policy) = (store.clone(), policy.clone());
        waits.spawn(async move { try_acquire(&store, &policy, "ada", 1).await });
        tokio::time::sleep(2 * MS).await;
        while let Some(answer) = waits.try_join_next() {
            let error = answer.unwrap().unwrap_err();
            assert!(!error.is_overloaded(), "{n}: {error}");
        }
    }
    server.resume().unwrap();
    let granted = waits.join_all().await.iter().filter(|answer| answer.is_ok()).count();
    assert!(granted >= 10, "{granted}");
}

/// The later caller has a shorter timeout than all that wait already.
#[tokio::test]
async fn a_later_call_with_a_shorter_timeout_ends_first() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let fresh = patient(&server, 1_000).await;
    let policy = a_day(1_000_000);
    acquire(&fresh.store, &policy, "ada", 1).await;
    server.pause().unwrap();
    let mut waits = JoinSet::new();
    for limit in [None, Some(Duration::from_secs(50)), Some(1_500 * MS), Some(600 * MS), Some(40 * MS)] {
        let store = limit.map_or_else(|| fresh.store.clone(), |limit| limited(&fresh.store, limit));
        for n in 0..5 {
            let (store, policy) = (store.clone(), policy.clone());
            waits.spawn(async move {
                let answer = try_acquire(&store, &policy, &format!("user {n}"), 1).await;
                (limit, answer.is_ok())
            });
        }
        // All have asked, and the calls of the first two are sent.
        tokio::time::sleep(5 * MS).await;
    }
    let mut ends = Vec::new();
    for _ in 0..15 {
        let next = timeout(Duration::from_secs(30), waits.join_next()).await.expect("an end");
        ends.push(next.unwrap().unwrap());
    }
    let late = |limit| [(Some(limit * MS), false); 5];
    assert_eq!(ends, [late(40), late(600), late(1_500)].concat());
    server.resume().unwrap();
    for (_, is_ok) in waits.join_all().await {
        assert!(is_ok);
    }
    // A deadline replaces the one before.
    let twice = limited(&limited(&fresh.store, Duration::from_secs(50)), 40 * MS);
    server.pause().unwrap();
    let error =
        timeout(Duration::from_secs(30), try_acquire(&twice, &policy, "ada", 1)).await.expect("an end");
    assert!(error.unwrap_err().is_timeout());
}

/// The server is silent for one and a half timeouts: 2,000 callers a second in several calls, and
/// in the queue behind them, wait for the same silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_is_one_failure_whatever_the_load() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = patient(&server, 100_000).await;
    let policy = a_day(1_000_000);
    acquire(&fresh.store, &policy, "ada", 1).await;
    let store = limited(&fresh.store, 400 * MS);
    for (silence, is_stall) in [(600 * MS, true), (1_400 * MS, false)] {
        server.pause().unwrap();
        let start = Instant::now();
        let mut callers = JoinSet::new();
        while start.elapsed() < silence {
            for n in 0..2_u32 {
                let (store, policy) = (store.clone(), policy.clone());
                callers.spawn(async move { try_acquire(&store, &policy, &format!("user {n}"), 1).await });
            }
            sleep(MS).await;
        }
        server.resume().unwrap();
        let late = callers.join_all().await.into_iter().filter_map(Result::err);
        let calls: Vec<Option<u64>> =
            late.filter(|error| error.kind() == ErrorKind::Timeout).map(|error| error.call()).collect();
        let stalls: HashSet<u64> = calls.iter().flatten().copied().collect();
        let failures = calls.iter().filter(|call| call.is_none()).count();
        assert_eq!(stalls.len(), 1, "{stalls:?}");
        assert_eq!(failures > 5, !is_stall, "{failures} failures: enough to open a circuit");
        acquire(&fresh.store, &policy, "ada", 1).await;
    }
}

#[tokio::test]
async fn refunds_and_resets_time_out() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let fresh = patient(&server, 50).await;
    let (policy, key) = (a_day(1_000_000), Key::from("ada"));
    acquire(&fresh.store, &policy, "ada", 1).await;
    let store = limited(&fresh.store, 40 * MS);
    server.pause().unwrap();
    let grant = Grant { policy: &policy, key: &key, units: 1, stamp: Stamp::new(1, 0), share: None };
    let ends: [Pin<Box<dyn Future<Output = _>>>; 2] =
        [Box::pin(store.refund(&[grant])), Box::pin(store.reset(&key, &[&policy]))];
    for end in ends {
        let done = timeout(Duration::from_secs(30), end).await.expect("an end");
        assert_eq!(done.unwrap_err().kind(), ErrorKind::Timeout);
    }
}

/// Redis answers each call in 60 ms, so most deadlines pass in the queue. Refunds and resets are
/// sent all the same.
#[tokio::test]
async fn a_late_refund_or_reset_is_not_reported_as_never_sent() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let proxy = Proxy::before(server.address()).await;
    let url = format!("redis://{}/", proxy.address());
    let store = RedisStore::builder(&url).prefix(prefix()).connect().await.unwrap();
    let policy = a_day(1_000_000);
    let keys: Vec<Key> = (0..400_u32).map(Key::from).collect();
    let charged: Vec<_> =
        keys.iter().map(|key| store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE)).collect();
    let mut stamps = Vec::new();
    for charge in charged {
        stamps.push(charge.wait().await.unwrap().each()[0].stamp());
    }
    // From here on Redis knows the script.
    let (ada, stamp) = (Key::from("ada"), acquire(&store, &policy, "ada", 1).await.each()[0].stamp());
    let grant = Grant { policy: &policy, key: &ada, units: 1, stamp, share: None };
    store.refund(&[grant]).await.unwrap();
    proxy.set(Way::IsSlow(60 * MS));
    let hasty = limited(&store, 100 * MS);
    let returned: Vec<_> = keys
        .iter()
        .zip(stamps)
        .enumerate()
        .map(|(n, (key, stamp))| -> Pin<Box<dyn Future<Output = _>>> {
            match n % 2 {
                0 => Box::pin(hasty.refund(&[Grant { policy: &policy, key, units: 1, stamp, share: None }])),
                _ => Box::pin(hasty.reset(key, &[&policy])),
            }
        })
        .collect();
    let mut late = 0;
    for done in returned {
        let Err(error) = done.await else { continue };
        assert!(error.is_timeout() && !error.is_overloaded(), "{error}");
        late += 1;
    }
    assert!(late >= 400 - 3 * 128, "those behind the first calls: {late}");
    proxy.set(Way::IsOpen);
    for key in keys {
        crate::redis::eventually("it is returned", async || {
            let look = store.acquire(&[Check::new(&policy, &key, 1)], Times::LOOK).wait().await;
            look.unwrap().each()[0].remaining() == 1_000_000
        })
        .await;
    }
}

/// A test or a warm-up connects in a runtime, which nothing drives afterwards.
#[test]
fn a_caller_does_not_hang_if_the_runtime_of_the_store_is_not_driven() {
    let server = Server::start(Kind::Installed).unwrap();
    let [theirs, ours] = [(); 2].map(|()| Builder::new_current_thread().enable_all().build().unwrap());
    let store = theirs.block_on(async {
        let builder = builder(&server.url()).connect_timeout(100 * MS).response_timeout(100 * MS);
        builder.connect().await.unwrap()
    });
    let policy = a_day(5);
    ours.block_on(async {
        let answer = timeout(Duration::from_secs(30), try_acquire(&store, &policy, "ada", 1)).await;
        assert_eq!(answer.expect("an end").unwrap_err().kind(), ErrorKind::Timeout);
    });
}

/// The runtime of a store ends with the part of a program that made it. A call without a limit was
/// sent, and its server is silent.
#[test]
fn a_patient_call_ends_with_the_runtime_of_its_store() {
    within(Duration::from_secs(60), || {
        let server = Server::start(Kind::Installed).unwrap();
        let theirs = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ours = Builder::new_current_thread().enable_all().build().unwrap();
        let slots = Policy::in_flight("slots", 5);
        let (store, granted) = theirs.block_on(async {
            let builder = builder(&server.url()).response_timeout(Duration::from_secs(3_600));
            let store = builder.connect().await.unwrap();
            let granted = acquire(&store, &slots, "ada", 1).await;
            (store.with_deadline(None), granted)
        });
        let grant = Grant {
            policy: &slots,
            key: &Key::from("ada"),
            units: 1,
            stamp: granted.each()[0].stamp(),
            share: None,
        };
        server.pause().unwrap();
        ours.block_on(async {
            let check = store.acquire(&[Check::new(&slots, grant.key, 1)], Times::ONCE).wait();
            let release = store.refund(&[grant]);
            let grants = [grant];
            let renewal = async { renewals(&store, &grants).await.map(drop) };
            let calls = async { tokio::join!(async { check.await.map(drop) }, release, renewal) };
            let end = async {
                // Long enough for the calls to be sent: the test holds without it.
                sleep(100 * MS).await;
                theirs.shutdown_background();
            };
            let ((check, release, renewal), ()) = tokio::join!(calls, end);
            for answer in [check, release, renewal] {
                let error = answer.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            }
        });
        server.resume().unwrap();
    });
}

/// If the store's runtime is blocked, callers in another runtime still get their error in time.
#[test]
fn a_blocked_runtime_does_not_delay_callers_in_another() {
    within(Duration::from_secs(60), || {
        let server = Server::start(Kind::Redis6_2).unwrap();
        let theirs = Builder::new_current_thread().enable_all().build().unwrap();
        let ours = Builder::new_current_thread().enable_all().build().unwrap();
        // From here on no task runs in that runtime.
        let fresh = theirs.block_on(patient(&server, 1_000));
        let store = limited(&fresh.store, 40 * MS);
        ours.block_on(async {
            for _ in 0..3 {
                is_late(&store, &a_day(5), "ada", 40 * MS).await;
            }
        });
        // The call was never sent, so nothing is charged.
        theirs.block_on(async { assert_eq!(used(&fresh.store, &a_day(5), "ada").await, 0) });
    });
}

/// A circuit breaker counts a late call once, and none that was never sent.
#[test]
fn callers_in_another_runtime_learn_which_call_was_late_if_any() {
    within(Duration::from_secs(60), || {
        let theirs = Builder::new_current_thread().enable_all().build().unwrap();
        let ours = Builder::new_current_thread().enable_all().build().unwrap();
        let server = crate::redis::shared(Kind::Redis8_2);
        let fresh =
            theirs.block_on(Fresh::with(server, Default::default(), |builder| builder.connections(1)));
        let (store, policy) = (limited(&fresh.store, 200 * MS), a_day(5));
        let keys: Vec<Key> = (0..400_u32).map(Key::from).collect();
        let ask = |key| store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE).wait();
        let mut asked: Vec<_> = ours.block_on(async { keys.iter().map(ask).collect() });
        // The first call is answered. From then on no task runs in that runtime.
        let _ = theirs.block_on(asked.remove(0));
        let mut late = 0;
        for answer in asked {
            let Err(error) = ours.block_on(answer) else { continue };
            assert_eq!(error.is_overloaded(), error.call().is_none(), "{error}");
            late += 1;
        }
        assert!(late >= 400 - 2 * 128, "{late}");
    });
}

/// All slots are looked at first, and a look that is late charges nothing.
#[tokio::test]
async fn a_set_over_several_slots_times_out_without_a_partial_charge() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let url = format!("redis-cluster://{}", cluster.nodes()[0].address());
    let builder = builder(&url).prefix(prefix());
    let store = builder.connect().await.unwrap();
    let policy = a_day(1_000);
    let keys: Vec<Key> = (0..20).map(|n| Key::from(format!("user {n}"))).collect();
    let set: Vec<Check<'_>> = keys.iter().map(|key| Check::new(&policy, key, 1)).collect();
    assert!(store.acquire(&set, Times::ONCE).wait().await.unwrap().is_granted());
    let hasty = limited(&store, 60 * MS);
    for master in cluster.masters().unwrap() {
        master.pause().unwrap();
    }
    let asked = hasty.acquire(&set, Times::ONCE).wait();
    let error = timeout(Duration::from_secs(30), asked).await.expect("an end").unwrap_err();
    assert!(error.is_timeout(), "{error}");
    for master in cluster.masters().unwrap() {
        master.resume().unwrap();
    }
    for key in &keys {
        let look = store.acquire(&[Check::new(&policy, key, 1)], Times::LOOK).wait().await.unwrap();
        assert_eq!(look.each()[0].remaining(), 999);
    }
}

/// A wrapper leaves its shorter timeout to the store.
#[tokio::test]
async fn a_timeout_around_the_store_needs_no_timer_of_its_own() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = patient(&server, 50).await;
    let (policy, key) = (a_day(5), Key::from("ada"));
    let store = fresh.store.clone().timeout(40 * MS);
    server.pause().unwrap();
    let asked = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait();
    let error = timeout(Duration::from_secs(30), asked).await.expect("an end").unwrap_err();
    assert!(matches!(error, GuardError::Store(_)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // A second timeout is left to the store too.
    let twice = store.timeout(MS);
    let asked = twice.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait();
    let error = asked.await.unwrap_err();
    assert!(matches!(error, GuardError::Store(_)) && error.is_timeout(), "{error}");
}

#[tokio::test]
async fn the_longest_possible_timeout_is_accepted() {
    let fresh = Fresh::on(crate::redis::shared(Kind::Installed)).await;
    let store = fresh.store.clone().timeout(Duration::MAX).fail_closed();
    let (policy, key) = (a_day(5), Key::from("ada"));
    let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await.unwrap();
    assert!(verdict.is_granted());
}

/// Redis answers the first call and then no more. The third call would be sent after its callers'
/// deadline.
#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_no_timeout_of_redis() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let proxy = Proxy::before(server.address()).await;
    let url = format!("redis://{}/", proxy.address());
    let store = builder(&url).prefix(prefix()).connections(1).connect().await.unwrap();
    let policy = a_day(1_000_000);
    acquire(&store, &policy, "ada", 1).await;
    let store = limited(&store, 2_000 * MS);
    let keys: Vec<Key> = (0..600_u32).map(Key::from).collect();
    let asked: Vec<_> =
        keys.iter().map(|key| store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE)).collect();
    let (mut granted, mut kinds) = (0, Vec::new());
    for answer in asked {
        match answer.wait().await {
            Ok(verdict) => {
                proxy.set(Way::HoldsAnswersBack);
                granted += verdict.times();
            }
            Err(error) => {
                assert_eq!(error.is_overloaded(), error.call().is_none(), "{error}");
                kinds.push(error.kind());
            }
        }
    }
    let count = |kind| kinds.iter().filter(|one| **one == kind).count();
    assert!(granted >= 128, "the first call: {granted}");
    assert!(count(ErrorKind::Timeout) <= 128, "the second call: {kinds:?}");
    assert!(count(ErrorKind::Overloaded) >= 600 - 3 * 128, "those behind: {kinds:?}");
    assert_eq!(granted as usize + count(ErrorKind::Timeout) + count(ErrorKind::Overloaded), 600);
    // A call that was never sent charges nothing.
    proxy.set(Way::IsOpen);
    for key in keys.iter().skip(3 * 128) {
        let look = store.acquire(&[Check::new(&policy, key, 1)], Times::LOOK).wait().await.unwrap();
        assert_eq!(look.each()[0].remaining(), 1_000_000, "{key:?}");
    }
}
