//! What many callers that wait for one key cost: checks for each one that passes, and processor
//! time. In memory, over Redis, and over a Redis that is killed for 1.2 seconds.
//!
//! `cargo bench -p tollgate-benches --bench waiting`

#![expect(clippy::disallowed_methods, clippy::float_arithmetic, reason = "it measures")]

use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::task::JoinSet;
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

fn main() {
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
}
