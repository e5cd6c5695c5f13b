//! Many callers at once: calls that carry many checks, from one process and from several.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::store::{Check, Grant, Reply, Stamp, Store, StoreError, Times, Verdict};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_redis::{Error, RedisStore};
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{EVERY_ALGORITHM, within};

use crate::redis::{BothLayouts, Fresh, acquire, builder, every_policy, shared, try_acquire, used};

fn a_day(limit: u64) -> Policy {
    Policy::new("p", Quota::per_day(limit)).with_algorithm(Algorithm::FIXED_WINDOW)
}

/// Asks for all of these costs before the first answer is awaited.
async fn ask_at_once(
    store: &RedisStore,
    policy: &Policy,
    costs: impl Iterator<Item = u64>,
) -> Vec<(u64, Verdict)> {
    let key = Key::from("ada");
    let replies: Vec<_> =
        costs.map(|cost| (cost, store.acquire(&[Check::new(policy, &key, cost)], Times::ONCE))).collect();
    let mut verdicts = Vec::new();
    for (cost, reply) in replies {
        verdicts.push((cost, reply.wait().await.unwrap()));
    }
    verdicts
}

#[tokio::test]
async fn merged_callers_get_exactly_the_limit() {
    for &kind in Kind::EVERY {
        let stores = BothLayouts::on(shared(kind)).await;
        for (policy, layout) in every_policy(500, Duration::from_secs(36_000)) {
            let store = &stores.of(layout).store;
            let verdicts = ask_at_once(store, &policy, (0..1_536).map(|n| [1, 2, 3, 1][n % 4])).await;
            let granted: u64 =
                verdicts.iter().filter(|(_, verdict)| verdict.is_granted()).map(|(cost, _)| cost).sum();
            // The requests of cost 1 alone are enough to use up the rest.
            assert_eq!(granted, policy.largest_cost(), "{} on {kind}", policy.name());
            assert_eq!(used(store, &policy, "ada").await, policy.capacity(), "{}", policy.name());
            // Each verdict reports the state after its own turn.
            if let Algorithm::FixedWindow { .. } | Algorithm::CalendarWindow { .. } = policy.algorithm() {
                let mut left: Vec<u64> = verdicts
                    .iter()
                    .filter(|(_, verdict)| verdict.is_granted())
                    .map(|(_, verdict)| verdict.each()[0].remaining())
                    .collect();
                let all = left.len();
                left.sort_unstable();
                left.dedup();
                assert_eq!(left.len(), all, "two were told the same");
            }
        }
    }
}

#[tokio::test]
async fn a_queue_delays_in_the_order_of_arrival() {
    // On one connection, because the order of calls on two connections is not fixed.
    let fresh =
        Fresh::with(shared(Kind::Redis8_2), Default::default(), |builder| builder.connections(1)).await;
    let max_wait = Duration::from_secs(3_600);
    let policy =
        Policy::new("queue", Quota::per_second(100)).with_algorithm(Algorithm::LeakyBucket { max_wait });
    let verdicts = ask_at_once(&fresh.store, &policy, (0..512).map(|_| 1)).await;
    let stamps: Vec<u64> = verdicts.iter().map(|(_, verdict)| verdict.each()[0].stamp().micros()).collect();
    assert!(stamps.windows(2).all(|two| two[1] == two[0] + 10_000), "{stamps:?}");
    // Within a call, delays grow by the interval. Between two calls some time passes.
    assert!(verdicts.iter().all(|(_, verdict)| verdict.is_granted()));
    assert!(verdicts[511].1.delay() > verdicts[1].1.delay());
}

/// Checks that wait keep all connections busy: the next call follows without a gap.
#[tokio::test]
async fn refunds_under_load_get_a_connection() {
    let fresh =
        Fresh::with(shared(Kind::Redis8_2), Default::default(), |builder| builder.connections(1)).await;
    let mut callers = JoinSet::new();
    // More than two calls carry.
    for caller in 0..512 {
        let store = fresh.store.clone();
        callers.spawn(async move {
            let busy = a_day(1_000_000);
            for n in 0_u64.. {
                acquire(&store, &busy, format!("{caller} {n}").as_str(), 1).await;
            }
        });
    }
    let (policy, key) = (a_day(10), Key::from("ada"));
    for n in 0..10 {
        let stamp = acquire(&fresh.store, &policy, "ada", 1).await.each()[0].stamp();
        let grant = Grant { policy: &policy, key: &key, units: 1, stamp, share: None };
        let refund = fresh.store.refund(&[grant]);
        timeout(Duration::from_secs(30), refund).await.expect("an end").expect("given back");
        assert_eq!(used(&fresh.store, &policy, "ada").await, 0, "{n}");
        timeout(Duration::from_secs(30), fresh.store.reset(&key, &[&policy]))
            .await
            .expect("an end")
            .expect("forgotten");
    }
}

/// Handles with connections of their own are like several processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_share_a_limit_get_it_exactly() {
    const ROUNDS: u32 = 600;
    let server = shared(Kind::Valkey9_1);
    let fresh = Fresh::on(server).await;
    let interval = Duration::from_millis(2);
    let bucket = Policy::new("bucket", Quota::new(500, Duration::from_secs(1)).burst(100));
    let fixed = a_day(5_000);
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let store = fresh.again(&server.url()).await;
        for _ in 0..4 {
            let (store, bucket, fixed) = (store.clone(), bucket.clone(), fixed.clone());
            callers.spawn(async move {
                let (mut stamps, mut granted) = (Vec::new(), 0);
                for _ in 0..ROUNDS {
                    let verdict = acquire(&store, &bucket, "ada", 1).await;
                    stamps.extend(verdict.is_granted().then(|| verdict.each()[0].stamp().micros()));
                    granted += u64::from(acquire(&store, &fixed, "ada", 1).await.times());
                }
                (stamps, granted)
            });
        }
    }
    let all = callers.join_all().await;
    assert_eq!(all.iter().map(|(_, granted)| granted).sum::<u64>(), 5_000);
    // Each grant moves TAT by the interval or more. Some caller always asks, so no interval is left
    // out.
    let mut stamps: Vec<u64> = all.into_iter().flat_map(|(stamps, _)| stamps).collect();
    stamps.sort_unstable();
    let interval = u64::try_from(interval.as_micros()).unwrap();
    assert!(stamps.windows(2).all(|two| two[1] >= two[0] + interval), "one interval was given twice");
    assert!(stamps.len() > 100, "{}: no more than the burst", stamps.len());
}

/// A store whose one connection waits for a server that is paused.
async fn stalled(
    server: &Server,
    most_waiting: usize,
) -> (Fresh, Reply<Result<Verdict, Error>, tollgate_redis::AcquireFuture>) {
    let fresh =
        Fresh::with(server, Default::default(), |builder| builder.connections(1).most_waiting(most_waiting))
            .await;
    acquire(&fresh.store, &a_day(1_000_000), "ada", 1).await;
    server.pause().unwrap();
    let (policy, key) = (a_day(1_000_000), Key::from("ada"));
    let sent = fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE);
    // By then the call has been sent. Otherwise it would carry the next callers too.
    sleep(Duration::from_millis(50)).await;
    (fresh, sent)
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_call_is_sent_is_not_charged() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let (fresh, sent) = stalled(&server, 10_000).await;
    let (policy, key) = (a_day(1_000_000), Key::from("ada"));
    let replies: Vec<_> = (0..600)
        .map(|n| (n, fresh.store.acquire(&[Check::new(&policy, &key, 1 + n % 2)], Times::ONCE)))
        .collect();
    let stays = |n: u64| n.is_multiple_of(6) || n % 6 == 1;
    let kept: Vec<_> = replies.into_iter().filter(|(n, _)| stays(*n)).collect();
    server.resume().unwrap();
    assert!(sent.wait().await.unwrap().is_granted());
    let mut due = 2;
    for (n, reply) in kept {
        assert!(reply.wait().await.unwrap().is_granted());
        due += 1 + n % 2;
    }
    assert_eq!(used(&fresh.store, &policy, "ada").await, due);
}

#[tokio::test]
async fn a_hanging_redis_does_not_accumulate_callers() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let (fresh, sent) = stalled(&server, 100).await;
    let (policy, ada) = (a_day(1_000_000), Key::from("ada"));
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for n in 0..20_000_u32 {
        // Merged callers count like others.
        let key = if n.is_multiple_of(2) { ada.clone() } else { Key::from(n) };
        match fresh.store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE) {
            Reply::Now(Err(error)) => {
                assert!(error.is_overloaded() && error.is_transient() && !error.is_timeout(), "{error}");
                refused += 1;
            }
            reply => waiting.push(reply),
        }
    }
    assert_eq!((waiting.len(), refused), (100, 19_900));
    server.resume().unwrap();
    sent.wait().await.unwrap();
    for reply in waiting {
        assert!(reply.wait().await.unwrap().is_granted());
    }
    assert_eq!(
        used(&fresh.store, &policy, "ada").await,
        2 + 50,
        "the first two, and half of those who waited"
    );
    for _ in 0..200 {
        acquire(&fresh.store, &policy, "bob", 1).await;
    }
}

/// The callers wait in another runtime, or ask after the store's runtime has ended.
#[test]
fn a_dropped_runtime_leaves_no_caller_waiting() {
    within(Duration::from_secs(60), || {
        let server = Server::start(Kind::Installed).unwrap();
        let (theirs, ours) = (runtime(), runtime());
        let (fresh, sent) = theirs.block_on(stalled(&server, 10_000));
        let (policy, key) = (a_day(1_000_000), Key::from("ada"));
        let set = [Check::new(&policy, &key, 1)];
        let waiting: Vec<_> = (0..200).map(|_| fresh.store.acquire(&set, Times::ONCE)).collect();
        theirs.shutdown_background();
        ours.block_on(async {
            for reply in [sent].into_iter().chain(waiting) {
                reply.wait().await.unwrap_err();
            }
            server.resume().unwrap();
            for _ in 0..3 {
                let error = fresh.store.acquire(&set, Times::ONCE).wait().await.unwrap_err();
                assert!(!error.is_overloaded(), "{error}");
            }
            let grant = Grant { policy: &policy, key: &key, units: 1, stamp: Stamp::new(1, 0), share: None };
            let done = timeout(Duration::from_secs(30), fresh.store.refund(&[grant])).await;
            done.expect("an end of a refund").unwrap_err();
            let done = timeout(Duration::from_secs(30), fresh.store.reset(&key, &[&policy])).await;
            done.expect("an end of a reset").unwrap_err();
        });
    });
}

fn runtime() -> tokio::runtime::Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_fifty_checks_with_the_largest_values_are_decided() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let ada = Key::from("ada");
        // A bucket takes no more in a millisecond, which has few divisors.
        let most_in_a_millisecond = u64::from(u32::MAX);
        let quotas = [
            Quota::new(most_in_a_millisecond, Duration::from_millis(1)),
            Quota::new(Quota::MAX_UNITS, Duration::from_secs(366 * 86_400)),
        ];
        // A log has a lower limit, and a leaky bucket takes less at once.
        let is_limited =
            |of: &Algorithm| matches!(of, Algorithm::LeakyBucket { .. } | Algorithm::SlidingLog { .. });
        let most_buckets = Algorithm::SlidingBuckets { buckets: Algorithm::MAX_BUCKETS };
        let algorithms = EVERY_ALGORITHM.into_iter().filter(|of| !is_limited(of)).chain([most_buckets]);
        for algorithm in algorithms {
            for quota in quotas {
                let (policy, most) = (Policy::new("p", quota).with_algorithm(algorithm), quota.limit());
                let window = quota.window();
                let what = format!("{policy:?} on {kind}");
                for _ in 0..3 {
                    // In a millisecond all of it may be back.
                    let verdict = acquire(&fresh.store, &policy, "ada", most).await;
                    assert!(
                        verdict.each()[0].reset_after() <= 2 * window + Duration::from_micros(1),
                        "{what}"
                    );
                    fresh
                        .store
                        .acquire(&[Check::new(&policy, &ada, most)], Times::up_to(u32::MAX))
                        .wait()
                        .await
                        .unwrap();
                }
                if window > Duration::from_secs(1) {
                    // A unit comes back every 28 µs, so not all of them are back.
                    let again = acquire(&fresh.store, &policy, "ada", most).await;
                    assert!(!again.is_granted(), "{what}");
                }
            }
        }
        let log = Policy::new("log", Quota::per_day(100_000)).with_algorithm(Algorithm::SLIDING_LOG);
        assert!(acquire(&fresh.store, &log, "ada", 100_000).await.is_granted());
        assert!(!acquire(&fresh.store, &log, "ada", 1).await.is_granted());

        let policies: Vec<Policy> =
            (0..50).map(|n| Policy::new(&format!("p{n}"), Quota::per_day(50 + n))).collect();
        let set: Vec<Check<'_>> = policies.iter().map(|policy| Check::new(policy, &ada, 1)).collect();
        assert_eq!(fresh.store.acquire(&set, Times::up_to(u32::MAX)).wait().await.unwrap().times(), 50);
        let mut replies = Vec::new();
        for _ in 0..300 {
            replies.push(fresh.store.acquire(&set, Times::ONCE));
        }
        for reply in replies {
            let verdict = reply.wait().await.unwrap();
            assert!(!verdict.is_granted() && verdict.each().len() == 50);
        }
        // More numbers than `unpack` returns: 64 sets of 200 checks.
        let keys: Vec<Key> = (0..200_u32).map(Key::from).collect();
        let many = Policy::new("many", Quota::per_day(64)).with_algorithm(Algorithm::SLIDING_BUCKETS);
        let set: Vec<Check<'_>> = keys.iter().map(|key| Check::new(&many, key, 1)).collect();
        let replies: Vec<_> = (0..64).map(|_| fresh.store.acquire(&set, Times::between(1, 2))).collect();
        let mut granted = 0;
        for reply in replies {
            granted += reply.wait().await.unwrap().times();
        }
        assert_eq!(granted, 64);
    }
}

/// The server accepts one connection, and the store wants two. All calls use that one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_connection_fails_no_caller_while_another_lives() {
    let server = Server::start_with(Kind::Redis8_2, &["--maxclients", "1"]).unwrap();
    let store = builder(&server.url()).connect().await.unwrap();
    let policy = Policy::new("p", Quota::per_day(1_000_000));
    let callers = (0..64).map(|n| {
        let (store, policy) = (store.clone(), policy.clone());
        tokio::spawn(async move {
            for _ in 0..50 {
                try_acquire(&store, &policy, &format!("caller {n}"), 1).await?;
            }
            Ok::<_, Error>(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap().unwrap();
    }
    drop(store);
    // Until the one connection is free.
    let mut tried = 0;
    let refused = loop {
        if let Ok(stats) = server.command(&["INFO", "stats"]) {
            let refused = stats.lines().find_map(|line| line.strip_prefix("rejected_connections:"));
            break refused.unwrap().trim().parse::<u64>().unwrap();
        }
        tried += 1;
        sleep(Duration::from_millis(10)).await;
    };
    assert!(refused <= tried + 30, "{refused} were refused: it is tried again and again");
}
