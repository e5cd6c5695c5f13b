//! Queues of callers that wait: their order, how often they ask, and outages.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{JoinSet, block_in_place, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::calls::CallLimitLayer;
use tollgate::store::{Check, End, Grant, NeverFails, Reply, Store, Times, Verdict};
use tollgate::{
    Algorithm, CircuitBreaker, Denial, Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Reason,
    StoreExt, Timestamp,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Connection, Failing, Fault, Log, clock, poll_once, store, timed};
use tower::{ServiceBuilder, ServiceExt, service_fn};

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A limiter that counts how often it asks.
fn counting<S: Store<Error: NeverFails>>(quota: Quota, store: S) -> (Limiter<S>, Arc<AtomicUsize>) {
    let checks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&checks);
    let limiter = Limiter::new([Policy::new("calls", quota)]).store(store).observe(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (limiter, checks)
}

fn ada() -> Key {
    Key::from("ada")
}

/// Callers of one key that arrive in the order of their numbers. Returns their outcomes by number,
/// and the numbers in the order in which they passed.
async fn crowd<S: Store<Error: NeverFails>>(
    limiter: &Limiter<S>,
    callers: usize,
    patience: Duration,
) -> (Vec<Result<(), Denial>>, Vec<usize>) {
    let passed = Arc::<Mutex<Vec<usize>>>::default();
    let waits = (0..callers).map(|caller| {
        let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
        tokio::spawn(async move {
            let _permit = limiter.until_ready(&ada(), 1, patience).await?;
            passed.lock().unwrap().push(caller);
            Ok(())
        })
    });
    let mut outcomes = Vec::new();
    for wait in waits.collect::<Vec<_>>() {
        outcomes.push(wait.await.unwrap());
    }
    let passed = std::mem::take(&mut *passed.lock().unwrap());
    (outcomes, passed)
}

#[tokio::test(start_paused = true)]
async fn callers_pass_in_order_of_arrival_and_ask_three_times_at_most() {
    let (limiter, checks) = counting(Quota::per_second(500).burst(3), InTokioTime::new());
    let (_, passed) = crowd(&limiter, 200, PATIENCE).await;
    assert_eq!(passed, (0..200).collect::<Vec<_>>());
    assert!(checks.load(Ordering::Relaxed) <= 3 * 200, "{checks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_of_many_threads_ask_three_times_at_most_for_each_that_passes() {
    let (limiter, checks) = counting(Quota::per_second(1_000).burst(10), MemoryStore::new());
    let (outcomes, _) = crowd(&limiter, 5_000, SECOND / 2).await;
    let passed = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    // Each thread may ask once before it finds that others wait.
    assert!(checks.load(Ordering::Relaxed) <= 3 * passed + 4, "{checks:?} for {passed}");
    // Those whose patience ended know why.
    let denial = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).unwrap();
    assert_eq!(
        (denial.reason(), denial.to_string().as_str()),
        (Reason::QuotaExceeded, "quota exceeded: calls")
    );
    assert!(denial.retry_after().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_over_redis_ask_three_times_at_most_for_each_that_passes() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap().timeout(10 * SECOND).fail_closed();
    let (limiter, checks) = counting(Quota::per_second(500).burst(20), redis);
    let (outcomes, _) = crowd(&limiter, 600, PATIENCE).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert!(checks.load(Ordering::Relaxed) <= 3 * 600, "{checks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_the_queue_is_skipped() {
    let time = clock();
    let (limiter, checks) = counting(Quota::per_second(1).burst(1), store(&time));
    let passed = Arc::<Mutex<Vec<usize>>>::default();
    let mut waits = Vec::new();
    for caller in 0..40 {
        let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
        waits.push(tokio::spawn(async move {
            let _permit = limiter.until_ready(&ada(), 1, PATIENCE).await.unwrap();
            passed.lock().unwrap().push(caller);
        }));
    }
    yield_now().await;
    // Among them the first of the queue, which sleeps. Some leave together, others one by one.
    let leaves = |caller: &usize| caller % 3 == 1;
    for caller in (0..40).filter(leaves) {
        waits[caller].abort();
        if caller % 2 == 1 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let moving = tokio::spawn(async move {
        loop {
            time.advance(SECOND);
            sleep(SECOND).await;
        }
    });
    for (caller, wait) in waits.into_iter().enumerate() {
        assert_eq!(wait.await.is_err(), leaves(&caller), "{caller}");
    }
    moving.abort();
    assert_eq!(*passed.lock().unwrap(), (0..40).filter(|caller| !leaves(caller)).collect::<Vec<_>>());
    assert!(checks.load(Ordering::Relaxed) <= 3 * 27, "{checks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_refused_at_once_if_the_first_waits_for_longer() {
    let (limiter, checks) = counting(Quota::per_minute(1), store(&clock()));
    let _permit = limiter.until_ready(&ada(), 1, PATIENCE).await.unwrap();
    let first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready(&ada(), 1, PATIENCE).await }
    });
    yield_now().await;
    let (refused, waited) = timed(limiter.until_ready(&ada(), 1, 59 * SECOND)).await;
    assert_eq!(refused.unwrap_err().retry_after(), Some(60 * SECOND));
    assert_eq!((waited, checks.load(Ordering::Relaxed)), (Duration::ZERO, 2));
    // Others have queues of their own.
    assert!(limiter.until_ready(&Key::from("bob"), 1, Duration::ZERO).await.is_ok());
    // Without the first, it is known no longer.
    first.abort();
    let _ = first.await;
    let refused = limiter.until_ready(&ada(), 1, 59 * SECOND).await;
    assert!(refused.is_err());
    assert_eq!(checks.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_passes_at_once_or_never_does_not_wait_in_the_queue() {
    let limiter = Limiter::new([Policy::new("calls", Quota::per_minute(2))]).store(store(&clock()));
    let _permit = limiter.until_ready(&ada(), 2, PATIENCE).await.unwrap();
    let first = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready(&ada(), 1, PATIENCE).await }
    });
    yield_now().await;
    let (free, waited) = timed(limiter.until_ready(&ada(), 0, PATIENCE)).await;
    assert!(free.is_ok() && waited.is_zero());
    let (never, waited) = timed(limiter.until_ready(&ada(), 3, PATIENCE)).await;
    assert_eq!((never.unwrap_err().reason(), waited), (Reason::NeverPossible, Duration::ZERO));
    assert!(!first.is_finished());
}

#[tokio::test(start_paused = true)]
async fn callers_behind_one_that_is_refused_for_good_leave_without_asking() {
    let time = clock();
    let (limiter, checks) = counting(Quota::per_minute(1), store(&time));
    let _permit = limiter.until_ready(&ada(), 1, PATIENCE).await.unwrap();
    let crowd = tokio::spawn(async move { timed(crowd(&limiter, 100, 61 * SECOND)).await });
    yield_now().await;
    time.advance(PATIENCE);
    let ((outcomes, passed), waited) = crowd.await.unwrap();
    assert_eq!((passed, waited), (vec![0], PATIENCE));
    assert!(outcomes.into_iter().filter_map(Result::err).all(|denial| denial.retry_after().is_some()));
    // Before, then the first twice, and the second once.
    assert_eq!(checks.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_a_smaller_cost_waits_until_its_patience_ends() {
    let time = clock();
    let (limiter, checks) = counting(Quota::per_minute(2), store(&time));
    let _permit = limiter.until_ready(&ada(), 2, PATIENCE).await.unwrap();
    let ask = |cost, patience| {
        let limiter = limiter.clone();
        tokio::spawn(async move { timed(limiter.until_ready(&ada(), cost, patience)).await })
    };
    let first = ask(2, PATIENCE);
    yield_now().await;
    // It may pass if the first leaves.
    let (cheap, patient, same) = (ask(1, 40 * SECOND), ask(1, PATIENCE), ask(2, 40 * SECOND));
    let (refused, waited) = cheap.await.unwrap();
    assert_eq!((refused.unwrap_err().reason(), waited), (Reason::QuotaExceeded, 40 * SECOND));
    let (refused, waited) = same.await.unwrap();
    assert!(refused.is_err() && waited.is_zero());
    assert_eq!(checks.load(Ordering::Relaxed), 2);
    first.abort();
    time.advance(40 * SECOND);
    let (passed, waited) = patient.await.unwrap();
    assert!(passed.is_ok() && waited == 40 * SECOND);
}

/// In the time of the runtime. One by one, they would take 100 round trips.
#[tokio::test(start_paused = true)]
async fn callers_share_round_trips_while_there_is_room() {
    let time = clock();
    let failing = Failing::new(store(&time), Connection::IsSlow(Duration::from_millis(100)));
    let (limiter, _) = counting(Quota::per_second(1_000), failing.fail_closed());
    let _permit = limiter.until_ready(&ada(), 1_000, PATIENCE).await.unwrap();
    let crowd = tokio::spawn(async move { timed(crowd(&limiter, 100, PATIENCE)).await });
    sleep(Duration::from_millis(50)).await;
    time.advance(SECOND);
    let ((_, passed), waited) = crowd.await.unwrap();
    assert_eq!(passed.len(), 100);
    assert!(waited < 2 * SECOND, "{waited:?}");
}

/// For longer than others wait for one that is not polled.
#[tokio::test(start_paused = true)]
async fn a_caller_that_asks_a_slow_store_keeps_its_turn() {
    let time = clock();
    let failing = Failing::new(store(&time), Connection::IsSlow(3 * SECOND));
    let (limiter, _) = counting(Quota::per_minute(1), failing.clone().fail_closed());
    let wait = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.until_ready(&ada(), 1, 5 * PATIENCE).await.is_ok() })
    };
    assert!(wait().await.unwrap());
    let first = wait();
    sleep(4 * SECOND).await;
    let _second = wait();
    sleep(SECOND).await;
    assert_eq!(failing.asked(), 2, "the second waits behind the first");
    time.advance(PATIENCE);
    while failing.asked() == 2 {
        sleep(SECOND / 10).await;
    }
    sleep(2 * SECOND).await;
    assert_eq!((failing.asked(), first.is_finished()), (3, false), "the first waits for its answer");
    assert!(first.await.unwrap());
}

/// Otherwise it asks after each release, and is refused.
#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_for_a_rate_does_not_listen_to_releases() {
    let rate = Policy::new("rate", Quota::per_minute(1));
    let limiter = Limiter::new([rate, Policy::in_flight("slots", 1)]).store(InTokioTime::new());
    let checks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&checks);
    let limiter = limiter.observe(move |decision| {
        count.fetch_add(usize::from(decision.policy().name() == "rate"), Ordering::Relaxed);
    });
    let only = async |policy| limiter.check_each(&[(policy, &ada(), 1)]).await.unwrap();
    let slot = only("slots").await;
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready(&ada(), 1, 2 * PATIENCE).await.is_ok() }
    });
    sleep(SECOND / 2).await;
    drop((only("rate").await, slot));
    sleep(SECOND / 2).await;
    let so_far = checks.load(Ordering::Relaxed);
    for _ in 0..20 {
        drop(only("slots").await);
        sleep(SECOND).await;
    }
    assert_eq!(checks.load(Ordering::Relaxed), so_far);
    assert!(waiting.await.unwrap());
}

#[tokio::test]
async fn a_long_key_waits_as_a_short_one_does() {
    let (limiter, _) = counting(Quota::per_second(100).burst(1), MemoryStore::new());
    let key = Key::from("x".repeat(400_000));
    let waits: JoinSet<_> = (0..5)
        .map(|_| {
            let (limiter, key) = (limiter.clone(), key.clone());
            async move { limiter.until_ready(&key, 1, PATIENCE).await.is_ok() }
        })
        .collect();
    assert_eq!(waits.join_all().await, [true; 5]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_layer_wait_in_one_queue() {
    let (limiter, checks) = counting(Quota::per_second(500).burst(1), InTokioTime::new());
    let passed = Arc::<Mutex<Vec<usize>>>::default();
    let seen = Arc::clone(&passed);
    let service = ServiceBuilder::new()
        .layer(CallLimitLayer::new(limiter, |_: &usize| Some(ada())).wait_at_most(PATIENCE))
        .service(service_fn(move |caller: usize| {
            seen.lock().unwrap().push(caller);
            async { Ok::<_, std::convert::Infallible>(()) }
        }));
    let calls: JoinSet<_> = (0..100).map(|caller| service.clone().oneshot(caller)).collect();
    assert!(calls.join_all().await.iter().all(Result::is_ok));
    assert_eq!(*passed.lock().unwrap(), (0..100).collect::<Vec<_>>());
    assert!(checks.load(Ordering::Relaxed) <= 300, "{checks:?}");
}

/// A limiter of tenants and of all of them, which counts how often it asks.
fn tenants(tenant: Quota, all: Quota) -> (Limiter<InTokioTime>, Arc<AtomicUsize>) {
    let checks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&checks);
    let limiter = Limiter::new([Policy::new("tenant", tenant), Policy::new("all", all)]);
    let limiter = limiter.store(InTokioTime::new()).observe(move |decision| {
        count.fetch_add(usize::from(decision.policy().name() == "all"), Ordering::Relaxed);
    });
    (limiter, checks)
}

/// Callers of these tenants, which arrive in this order. Returns the numbers of those that passed,
/// in the order in which they did.
async fn crowd_of_tenants<S: Store<Error: NeverFails>>(
    limiter: &Limiter<S>,
    tenants: impl Iterator<Item = usize>,
    patience: Duration,
) -> Vec<usize> {
    let passed = Arc::<Mutex<Vec<usize>>>::default();
    let callers: JoinSet<_> = tenants
        .enumerate()
        .map(|(caller, tenant)| {
            let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
            async move {
                let (tenant, all) = (Key::from(tenant as u64), Key::global());
                let asks = [("tenant", &tenant, 1), ("all", &all, 1)];
                if limiter.until_ready_each(&asks, patience).await.is_ok() {
                    passed.lock().unwrap().push(caller);
                }
            }
        })
        .collect();
    callers.join_all().await;
    std::mem::take(&mut *passed.lock().unwrap())
}

/// A store in memory whose clock is the paused time of the runtime.
#[derive(Clone)]
struct InTokioTime {
    store: MemoryStore,
    clock: ManualClock,
    start: (Timestamp, Instant),
}

impl InTokioTime {
    fn new() -> InTokioTime {
        let clock = clock();
        InTokioTime { store: store(&clock), start: (clock.now(), Instant::now()), clock }
    }
}

impl Store for InTokioTime {
    type Error = Infallible;
    type Acquire = <MemoryStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let (start, since) = self.start;
        self.clock.set(start.saturating_add(since.elapsed()));
        self.store.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.store.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.store.reset(key, policies)
    }
}

#[tokio::test(start_paused = true)]
async fn callers_of_many_tenants_wait_for_their_common_quota_in_one_queue() {
    let (limiter, checks) = tenants(Quota::per_second(1_000), Quota::per_second(500).burst(5));
    let passed = crowd_of_tenants(&limiter, 0..300, PATIENCE).await;
    assert_eq!(passed, (0..300).collect::<Vec<_>>());
    println!("{checks:?} checks for 300");
    assert!(checks.load(Ordering::Relaxed) <= 4 * 300, "{checks:?}");
}

/// Both quotas refuse: that of a tenant, whose callers are many, and that of all.
#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_two_quotas_ask_four_times_at_most() {
    let (limiter, checks) = tenants(Quota::per_second(10).burst(1), Quota::per_second(200).burst(5));
    let passed = crowd_of_tenants(&limiter, (0..600).map(|caller| caller % 30), PATIENCE).await;
    assert_eq!(passed.len(), 600);
    println!("{checks:?} checks for 600");
    assert!(checks.load(Ordering::Relaxed) <= 4 * 600, "{checks:?}");
    let of_tenant = |tenant| passed.iter().filter(move |caller| *caller % 30 == tenant);
    assert!((0..30).all(|tenant| of_tenant(tenant).is_sorted()), "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_used_up_tenants_do_not_hold_up_one_that_is_not() {
    let (limiter, checks) = tenants(Quota::per_minute(1), Quota::per_second(100).burst(1));
    for tenant in 0..1_000 {
        let _permit = limiter.check_each(&[("tenant", &Key::from(tenant), 1)]).await.unwrap();
    }
    let _permit = limiter.check_each(&[("all", &Key::global(), 1)]).await.unwrap();
    checks.store(0, Ordering::Relaxed);
    let used_up = tokio::spawn({
        let limiter = limiter.clone();
        async move { crowd_of_tenants(&limiter, 0..1_000, 2 * PATIENCE).await }
    });
    yield_now().await;
    let (passed, waited) = timed(crowd_of_tenants(&limiter, 1_000..1_001, PATIENCE)).await;
    assert_eq!(passed, [0]);
    assert!(waited < SECOND, "{waited:?}");
    let passed = used_up.await.unwrap();
    assert_eq!(passed, (0..1_000).collect::<Vec<_>>());
    println!("{checks:?} checks for 1001");
    assert!(checks.load(Ordering::Relaxed) <= 4 * 1_001, "{checks:?}");
}

/// Whatever it waits for first is kept for it while it waits for the other.
#[tokio::test(start_paused = true)]
async fn a_caller_of_two_quotas_passes_among_callers_of_either() {
    for rates in [[10, 10], [10, 40], [40, 10]] {
        let policies = ["user", "export"].into_iter().zip(rates);
        let policies = policies.map(|(name, rate)| Policy::new(name, Quota::per_second(rate).burst(1)));
        let limiter = Limiter::new(policies).store(InTokioTime::new());
        let mut others = JoinSet::new();
        for name in ["user", "export"] {
            for _ in 0..20 {
                let limiter = limiter.clone();
                others.spawn(async move {
                    loop {
                        let _permit = limiter.until_ready_each(&[(name, &ada(), 1)], PATIENCE).await.unwrap();
                    }
                });
            }
        }
        sleep(SECOND).await;
        let asks = [("user", &ada(), 1), ("export", &ada(), 1)];
        let (permit, waited) = timed(limiter.until_ready_each(&asks, PATIENCE)).await;
        assert!(permit.is_ok(), "{rates:?}");
        // Its turn among 20 others in each queue, one after the other.
        assert!(waited < 5 * SECOND, "{rates:?}: {waited:?}");
    }
}

/// Callers that pass again and again for some time, each holding its permit for `held`. Returns how
/// many passed, and the longest time in which none did.
async fn load<S: Store<Error: NeverFails>>(
    limiter: Limiter<S>,
    callers: usize,
    time: Duration,
    held: Duration,
) -> (u64, Duration) {
    let begin = Instant::now();
    let passes = Arc::new(Mutex::new((0, begin, Duration::ZERO)));
    let callers: JoinSet<_> = (0..callers)
        .map(|_| {
            let (limiter, passes) = (limiter.clone(), Arc::clone(&passes));
            async move {
                while begin.elapsed() < time {
                    let permit = limiter.until_ready(&ada(), 1, PATIENCE).await.unwrap();
                    {
                        let (passed, last, longest) = &mut *passes.lock().unwrap();
                        let now = Instant::now();
                        (*passed, *longest, *last) = (*passed + 1, (*longest).max(now - *last), now);
                    }
                    if !held.is_zero() {
                        sleep(held).await;
                    }
                    drop(permit);
                }
            }
        })
        .collect();
    callers.join_all().await;
    let (passed, _, longest) = *passes.lock().unwrap();
    (passed, longest)
}

/// `TOLLGATE_QUEUES_SECONDS` makes it last longer, for the figures that it prints.
#[test]
fn no_caller_sleeps_while_it_has_its_turn() {
    let logs = Arc::<Mutex<Vec<Log>>>::default();
    let of_threads = Arc::clone(&logs);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().worker_threads(2).on_thread_start(move || {
        let (log, guard) = Log::of_thread();
        // It captures as long as the thread lives.
        std::mem::forget(guard);
        of_threads.lock().unwrap().push(log);
    });
    let runtime = runtime.build().unwrap();
    runtime.block_on(runtime.spawn(loads())).unwrap();
    let lines = logs.lock().unwrap().iter().flat_map(Log::lines).collect::<Vec<_>>();
    let found = lines.iter().filter(|line| line.contains("was not woken"));
    assert_eq!(found.collect::<Vec<_>>(), [""; 0]);
}

/// Loads in memory, over Redis, and of slots in both.
async fn loads() {
    const CALLERS: usize = 300;
    let seconds = std::env::var("TOLLGATE_QUEUES_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(1));
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap().timeout(10 * SECOND).fail_closed();
    let rate = |limit| Limiter::new([Policy::new("calls", Quota::per_second(limit).burst(5))]);
    let slots = || Limiter::new([Policy::in_flight("jobs", 10)]);
    let work = SECOND / 1_000;
    for (name, (passed, longest)) in [
        ("memory", load(rate(100_000), CALLERS, time, Duration::ZERO).await),
        ("redis", load(rate(5_000).store(redis.clone()), CALLERS, time, Duration::ZERO).await),
        ("slots in memory", load(slots(), CALLERS, time, work).await),
        ("slots in redis", load(slots().store(redis), CALLERS, time, work).await),
    ] {
        println!("{name}: {passed} passed, none of them for {longest:?} at most");
        assert!(passed >= CALLERS as u64, "{name}: {passed} passed");
    }
}

/// The task of the first is not polled any more, as in a `select!` whose other branch runs.
#[tokio::test(start_paused = true)]
async fn a_first_caller_that_is_not_polled_holds_up_others_for_two_seconds_more() {
    let limiter =
        Limiter::new([Policy::new("calls", Quota::per_second(1).burst(1))]).store(InTokioTime::new());
    let _permit = limiter.check(&ada(), 1).await.unwrap();
    let ada = ada();
    let mut first = Box::pin(limiter.until_ready(&ada, 1, PATIENCE));
    poll_once(first.as_mut()).await;
    let ((_, passed), waited) = timed(crowd(&limiter, 3, PATIENCE)).await;
    println!("three passed after {waited:?}");
    assert_eq!(passed, [0, 1, 2]);
    assert!(waited <= 5 * SECOND, "{waited:?}");
    assert!(first.await.is_ok(), "it is polled again");
}

#[test]
fn callers_in_a_runtime_that_is_not_driven_hold_up_no_others() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stopped, driven) = (runtime(), runtime());
    let limiter = Limiter::new([Policy::in_flight("jobs", 1)]);
    let slot = driven.block_on(limiter.check(&ada(), 1)).unwrap();
    // The first asks, and the others sleep behind it.
    for _ in 0..3 {
        let limiter = limiter.clone();
        stopped.spawn(async move { limiter.until_ready(&ada(), 1, PATIENCE).await.map(drop) });
    }
    stopped.block_on(yield_now());
    let ((_, passed), waited) = driven.block_on(async {
        let crowd = tokio::spawn({
            let limiter = limiter.clone();
            async move { timed(crowd(&limiter, 3, PATIENCE)).await }
        });
        yield_now().await;
        drop(slot);
        crowd.await.unwrap()
    });
    println!("three passed after {waited:?}");
    assert_eq!(passed.len(), 3, "each within its patience");
}

/// A delay is not spent in the queue: those behind get their places in the bucket meanwhile.
#[tokio::test(start_paused = true)]
async fn callers_that_a_leaky_bucket_delays_do_not_hold_up_the_queue() {
    let bucket = Policy::new("bucket", Quota::per_second(1))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: 100 * SECOND });
    let limiter = Limiter::new([bucket]).store(store(&clock()));
    let (waits, waited) = timed(crowd(&limiter, 10, PATIENCE)).await;
    assert!(waits.0.iter().all(Result::is_ok));
    assert_eq!(waited, 9 * SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_wait_while_redis_is_down() {
    let server = Arc::new(Server::start(Kind::Redis8_2).unwrap());
    let redis = RedisStore::connect(&server.url()).await.unwrap();
    let redis = redis.timeout(SECOND / 4).circuit_breaker(CircuitBreaker::default()).fail_closed();
    let (limiter, _) = counting(Quota::per_second(20).burst(5), redis);
    let impatient = limiter.clone().wait_for_store(false);
    let jobs = tokio::spawn(async move { crowd(&limiter, 40, PATIENCE).await });
    sleep(SECOND / 2).await;
    block_in_place(|| server.kill());
    // Most jobs wait for their turn, and the first of them for Redis.
    let refused = loop {
        match impatient.until_ready(&Key::from("bob"), 1, PATIENCE).await {
            Ok(_) => yield_now().await,
            Err(denial) => break denial,
        }
    };
    assert_eq!(refused.reason(), Reason::Unavailable);
    sleep(SECOND).await;
    assert!(!jobs.is_finished());
    block_in_place(|| server.restart()).unwrap();
    let (outcomes, _) = jobs.await.unwrap();
    let lost = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert_eq!(lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_is_asked_by_the_first_only_and_ever_more_rarely() {
    for failure in [Connection::Fails(Fault::Unreachable), Connection::FailsLater(Fault::WrongPassword)] {
        let failing = Failing::new(MemoryStore::new(), failure);
        let (limiter, checks) = counting(Quota::per_second(1_000), failing.clone().fail_closed());
        let (waits, waited) = timed(crowd(&limiter, 1_000, 10 * SECOND)).await;
        let refused = waits.0.into_iter().filter_map(Result::err);
        assert_eq!(refused.filter(|denial| denial.reason() == Reason::Unavailable).count(), 1_000);
        assert_eq!(waited, 10 * SECOND);
        // 64 at first, if the answer must be awaited, and then 14 times in 10 seconds.
        assert!((10..=80).contains(&checks.load(Ordering::Relaxed)), "{checks:?}");
    }
}

/// After 50 ms, and then after twice as long each time.
#[tokio::test(start_paused = true)]
async fn a_caller_asks_a_failing_store_after_pauses_that_double() {
    let failing = Failing::new(MemoryStore::new(), Connection::FailsLater(Fault::Unreachable));
    let (limiter, checks) = counting(Quota::per_second(1), failing.fail_closed());
    let patient = tokio::spawn(async move { limiter.until_ready(&ada(), 1, PATIENCE).await });
    let mut asked = Vec::new();
    // At 40, 60, 140, 160, 340, 360, 740 and 760 ms.
    for pause in [40, 20, 80, 20, 180, 20, 380, 20] {
        sleep(Duration::from_millis(pause)).await;
        asked.push(checks.load(Ordering::Relaxed));
    }
    assert_eq!(asked, [1, 2, 2, 3, 3, 4, 4, 5]);
    patient.abort();
}

#[tokio::test(start_paused = true)]
async fn behind_one_that_waits_for_the_store_the_less_patient_leave_at_once() {
    let failing = Failing::new(MemoryStore::new(), Connection::FailsLater(Fault::Unreachable));
    let (limiter, checks) = counting(Quota::per_second(1), failing.fail_closed());
    let patient = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready(&ada(), 1, PATIENCE).await }
    });
    // By now it pauses for longer than the next waits.
    sleep(10 * SECOND).await;
    let asked = checks.load(Ordering::Relaxed);
    let (refused, waited) = timed(limiter.until_ready(&ada(), 1, SECOND / 10)).await;
    assert_eq!((refused.unwrap_err().reason(), waited), (Reason::Unavailable, Duration::ZERO));
    assert_eq!(checks.load(Ordering::Relaxed), asked);
    patient.abort();
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_choose_not_to_wait_for_the_store() {
    let failing =
        || Failing::new(MemoryStore::new(), Connection::FailsLater(Fault::Unreachable)).fail_closed();
    let limiter = Limiter::new([Policy::new("calls", Quota::per_second(1))]);
    let limiter = limiter.wait_for_store(false).store(failing());
    let (refused, waited) = timed(limiter.until_ready(&ada(), 1, PATIENCE)).await;
    assert_eq!((refused.unwrap_err().reason(), waited), (Reason::Unavailable, Duration::ZERO));
    // Nor does a caller without patience.
    let limiter = limiter.wait_for_store(true);
    let (refused, waited) = timed(limiter.until_ready(&ada(), 1, Duration::ZERO)).await;
    assert_eq!((refused.unwrap_err().reason(), waited), (Reason::Unavailable, Duration::ZERO));
    let patient = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.until_ready(&ada(), 1, PATIENCE).await }
    });
    // It is refused meanwhile, and sleeps.
    sleep(Duration::from_millis(10)).await;
    // Nor do the impatient wait behind the patient.
    let impatient = limiter.wait_for_store(false);
    let (refused, waited) = timed(impatient.until_ready(&ada(), 1, PATIENCE)).await;
    assert_eq!((refused.unwrap_err().reason(), waited), (Reason::Unavailable, Duration::ZERO));
    assert!(!patient.is_finished());
}
