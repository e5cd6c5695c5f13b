//! What many callers that wait for one key cost: checks for each one that passes, and processor
//! time. In memory, over Redis, and over a Redis that is killed for 1.2 seconds. Then the longest
//! time in which none of 300 callers passes, that ask again and again on two threads.
//!
//! `cargo bench -p tollgate-benches --bench waiting`, with `-- pauses 60` for the pauses alone,
//! each measured for 60 seconds.

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs, mem};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::Store;
use tollgate::{CircuitBreaker, Key, Limiter, MemoryStore, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

/// Callers of one key that arrive together, and how long each of them waits at most.
#[derive(Clone, Copy)]
struct Crowd {
    callers: u64,
    quota: Quota,
    patience: Duration,
}

/// The processor time of this process, by Linux, in ticks of 10 ms.
fn processor() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

async fn wait(name: &str, crowd: Crowd, store: impl Store<Error = Infallible>) {
    let policy = Policy::new("waiting", crowd.quota);
    let capacity = policy.capacity() as f64;
    let checks = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&checks);
    let limiter = Limiter::new([policy]).store(store).observe(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (start, before) = (Instant::now(), processor());
    let arrivals = Arc::new(AtomicU64::new(0));
    let callers: JoinSet<_> = (0..crowd.callers)
        .map(|_| {
            let (limiter, arrivals) = (limiter.clone(), Arc::clone(&arrivals));
            async move {
                let caller = arrivals.fetch_add(1, Ordering::Relaxed);
                let passed = limiter.until_ready(&Key::from("ada"), 1, crowd.patience).await;
                passed.is_ok().then(|| (start.elapsed(), caller))
            }
        })
        .collect();
    let mut passed: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    let (elapsed, spent) = (start.elapsed(), processor() - before);
    passed.sort_unstable();
    let early = passed.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    let (passed, checks) = (passed.len() as f64, checks.load(Ordering::Relaxed));
    let possible = capacity
        + crowd.patience.as_secs_f64() * crowd.quota.limit() as f64 / crowd.quota.window().as_secs_f64();
    println!(
        "{name:<8} {} of {} passed, {:.0} % of what the quota allows, in {elapsed:.1?}: {checks} checks, {:.2} for each \
         that passed; {spent:.2?} of processor time; {early} passed before their predecessor",
        passed,
        crowd.callers,
        100.0 * passed / possible.min(crowd.callers as f64),
        checks as f64 / passed,
    );
}

/// 300 callers that ask again and again, and hold what they got for `work`. Prints the longest time
/// in which none of them passed, and the one that the limit allows.
async fn pauses(
    name: &str,
    store: impl Store<Error = Infallible>,
    policy: Policy,
    work: Duration,
    time: Duration,
) {
    let allowed = match policy.is_in_flight() {
        true => work,
        false => policy.quota().window() / u32::try_from(policy.quota().limit()).expect("a small limit"),
    };
    let limiter = Limiter::new([policy]).store(store);
    let (start, longest) = (Instant::now(), Arc::new(Mutex::new((Instant::now(), Duration::ZERO, 0_u64))));
    let callers: JoinSet<_> = (0..300)
        .map(|_| {
            let (limiter, longest) = (limiter.clone(), Arc::clone(&longest));
            async move {
                while start.elapsed() < time {
                    let permit = limiter.until_ready(&Key::from("ada"), 1, Duration::from_secs(600)).await;
                    {
                        let (last, pause, passed) = &mut *longest.lock().expect("no panic");
                        *pause = (*pause).max(mem::replace(last, Instant::now()).elapsed());
                        *passed += 1;
                    }
                    if !work.is_zero() {
                        sleep(work).await;
                    }
                    drop(permit);
                }
            }
        })
        .collect();
    callers.join_all().await;
    let (_, pause, passed) = *longest.lock().expect("no panic");
    println!(
        "{name:<8} {passed} passed in {:.1?}, the longest pause {pause:.1?}: {:.1} x the {allowed:?} of the limit",
        start.elapsed(),
        pause.as_secs_f64() / allowed.as_secs_f64(),
    );
}

fn all_pauses(time: Duration) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let server = Server::start(Kind::Redis8_2).expect("a server");
    let redis = runtime.block_on(RedisStore::connect(&server.url())).expect("a store");
    let redis = redis.timeout(Duration::from_secs(10)).fail_closed();
    let work = Duration::from_millis(20);
    for quota in [Quota::per_second(100_000), Quota::per_second(100).burst(1)] {
        let quota = Policy::new("rate", quota);
        runtime.block_on(pauses("memory", MemoryStore::new(), quota.clone(), Duration::ZERO, time));
        runtime.block_on(pauses("redis", redis.clone(), quota, Duration::ZERO, time));
    }
    let slots = Policy::in_flight("slots", 20);
    runtime.block_on(pauses("slots", MemoryStore::new(), slots.clone(), work, time));
    runtime.block_on(pauses("redis", redis, slots, work, time));
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [pauses, seconds] = &arguments[..]
        && pauses == "pauses"
    {
        return all_pauses(Duration::from_secs(seconds.parse().expect("a number of seconds")));
    }
    let runtime = Runtime::new().expect("a runtime");
    let seconds = Duration::from_secs;
    let crowd = Crowd { callers: 20_000, quota: Quota::per_second(1_000).burst(80), patience: seconds(5) };
    runtime.block_on(wait("memory", crowd, MemoryStore::new()));

    let server = Server::start(Kind::Redis8_2).expect("a server");
    let store = runtime.block_on(RedisStore::connect(&server.url())).expect("a store");
    let store = store.timeout(seconds(1)).fail_closed();
    let crowd = Crowd { callers: 5_000, quota: Quota::per_second(300).burst(80), patience: seconds(10) };
    runtime.block_on(wait("redis", crowd, store.clone()));
    let crowd = Crowd { callers: 20_000, quota: Quota::per_second(5_000).burst(100), patience: seconds(4) };
    runtime.block_on(wait("fast", crowd, store));

    let store = runtime.block_on(RedisStore::connect(&server.url())).expect("a store");
    let store =
        store.timeout(Duration::from_millis(50)).circuit_breaker(CircuitBreaker::default()).fail_closed();
    let crowd = Crowd { callers: 60, quota: Quota::per_second(20).burst(5), patience: seconds(60) };
    let outage = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        server.kill();
        thread::sleep(Duration::from_millis(1_200));
        server.restart().expect("a restart");
        server
    });
    runtime.block_on(wait("outage", crowd, store));
    drop(outage.join());
    all_pauses(seconds(5));
}
