//! Limits that are raised and lowered under load.
//!
//! The clock of the stores stands still, so nothing comes back by time: what was used is known
//! exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::{Request, request};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::store::{NeverFails, Store};
use tollgate::{Algorithm, Head, Lease, PolicyExt, RateLimitLayer, Rule, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, clock, store, user};

/// The requests a minute, one after the other. Each divides the microseconds of a minute.
const LIMITS: [u64; 8] = [60, 150, 300, 150, 60, 600, 60, 300];
const CALLERS: u32 = 6;
const PHASE: Duration = Duration::from_millis(60);
const LIFE: Duration = Duration::from_millis(40);

fn rule(algorithm: Algorithm, limit: u64) -> Rule {
    a_minute("p", algorithm, limit).by(user())
}

/// What counts: the units of a window, or the microseconds until a bucket is full.
fn used_by_one(algorithm: Algorithm, limit: u64) -> u64 {
    if is_bucket(algorithm) { 60_000_000 / limit } else { 1 }
}

fn room(algorithm: Algorithm, limit: u64) -> u64 {
    if is_bucket(algorithm) { 60_000_000 } else { limit }
}

fn is_bucket(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Gcra | Algorithm::LeakyBucket { .. })
}

fn ada() -> request::Parts {
    Request::get("/").header("x-user", "ada").body(()).unwrap().into_parts().0
}

#[derive(Default)]
struct Work {
    is_over: AtomicBool,
    phase: AtomicUsize,
    used: AtomicU64,
}

/// Asks until it is over. Returns the phase in which each grant was asked for, and its limit.
async fn ask<S>(layer: RateLimitLayer<S>, algorithm: Algorithm, work: Arc<Work>) -> Vec<(usize, u64)>
where
    S: Store<Error: NeverFails>,
{
    let (ada, mut granted) = (ada(), Vec::new());
    while !work.is_over.load(SeqCst) {
        let phase = work.phase.load(SeqCst);
        if let Ok(permit) = layer.limiter().check(&Head::from(&ada)).await {
            let limit = permit.report().policies().next().unwrap().quota().limit();
            work.used.fetch_add(used_by_one(algorithm, limit), SeqCst);
            granted.push((phase, limit));
        }
        tokio::task::yield_now().await;
    }
    granted
}

async fn raise_and_lower<S: Store<Error: NeverFails>>(store: S, algorithm: Algorithm, what: &str) {
    let layer = RateLimitLayer::new(rule(algorithm, LIMITS[0])).store(store);
    let work = Arc::new(Work::default());
    let callers: JoinSet<_> =
        (0..CALLERS).map(|_| ask(layer.clone(), algorithm, Arc::clone(&work))).collect();
    let mut used_before = vec![0];
    for (phase, limit) in LIMITS.into_iter().enumerate().skip(1) {
        sleep(PHASE).await;
        used_before.push(work.used.load(SeqCst));
        layer.replace(rule(algorithm, limit)).unwrap();
        work.phase.store(phase, SeqCst);
    }
    sleep(PHASE).await;
    work.is_over.store(true, SeqCst);
    let granted = callers.join_all().await.concat();

    for (phase, limit) in LIMITS.into_iter().enumerate() {
        let of_phase = granted.iter().filter(|of| **of == (phase, limit)).count() as u64;
        let left = room(algorithm, limit).saturating_sub(used_before[phase]);
        assert!(
            of_phase * used_by_one(algorithm, limit) <= left,
            "{what}, {algorithm:?}: {of_phase} passed in phase {phase} of limit {limit}, with {used_before:?}"
        );
    }
    let used: u64 = granted.iter().map(|(_, limit)| used_by_one(algorithm, *limit)).sum();
    assert!(used > room(algorithm, LIMITS[0]) / 2, "{what}, {algorithm:?}: nothing passed");
    // What leases hold comes back by the end of their lives.
    let last = LIMITS[LIMITS.len() - 1];
    let left = room(algorithm, last).saturating_sub(used) / used_by_one(algorithm, last);
    let look = async || {
        let report = layer.limiter().look(&Head::from(&ada())).await.unwrap();
        report.statuses()[0].remaining()
    };
    for _ in 0..200 {
        if look().await == left {
            return;
        }
        sleep(LIFE).await;
    }
    assert_eq!(look().await, left, "{what}, {algorithm:?}: what is used is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory() {
    for algorithm in EVERY_ALGORITHM {
        raise_and_lower(store(&clock()), algorithm, "memory").await;
        let lease = Lease::at_most(20).lasting(LIFE);
        raise_and_lower(store(&clock()).leased(lease), algorithm, "memory, leased").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_redis() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    for algorithm in EVERY_ALGORITHM {
        for is_leased in [false, true] {
            let prefix = format!("{}-{is_leased}", algorithm.name());
            let builder = RedisStore::builder(&server.url()).prefix(&prefix).clock(&clock());
            let redis = builder.connect().await.unwrap();
            if is_leased {
                let lease = Lease::at_most(20).lasting(LIFE);
                raise_and_lower(redis.leased(lease).fail_closed(), algorithm, "Redis, leased").await;
            } else {
                raise_and_lower(redis.fail_closed(), algorithm, "Redis").await;
            }
            server.command(&["FLUSHALL"]).unwrap();
        }
    }
}
