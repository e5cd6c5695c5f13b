//! What the test binaries share: clocks that stand still, stores, and strict services.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::extract::{KeyExtractor, header};
use tollgate::{Algorithm, ManualClock, MemoryStore, Policy, PolicyExt, Quota, Rule, Timestamp};
use tower::{Service, ServiceExt};

mod claims;
mod contract;
mod failing;
#[cfg(doctest)]
mod guide;
mod later;
mod leasing;
mod log;
mod proxy;
mod strict;
mod watchdog;
mod web;

pub use claims::Claims;
pub use contract::{keeps_the_contract, keeps_the_contract_of};
pub use failing::{Connection, Failing, Fault};
pub use later::{Later, at_hand, at_once};
pub use leasing::{Leasing, Renewals};
pub use log::{Level, Log};
pub use proxy::{Proxy, Way};
pub use strict::Strict;
pub use watchdog::within;
pub use web::{Answer, Client, serve};

/// Every algorithm; the leaky bucket without a queue, so that none of them delays.
pub const EVERY_ALGORITHM: [Algorithm; 7] = [
    Algorithm::Gcra,
    Algorithm::LeakyBucket { max_wait: Duration::ZERO },
    Algorithm::FIXED_WINDOW,
    Algorithm::FIXED_WINDOW_ALIGNED,
    Algorithm::SlidingWindow,
    Algorithm::SLIDING_BUCKETS,
    Algorithm::SLIDING_LOG,
];

/// A policy of that algorithm which grants `limit` units at once, in a window of a minute.
pub fn a_minute(name: &str, algorithm: Algorithm, limit: u64) -> Policy {
    let quota = Quota::per_minute(limit);
    // Of a leaky bucket the burst is 1 unless said.
    let is_leaky = matches!(algorithm, Algorithm::LeakyBucket { .. });
    let quota = if is_leaky { quota.burst(limit) } else { quota };
    Policy::try_from_parts(name, quota, algorithm).expect("a valid policy")
}

/// A clock that stands still in 2026, at no round number.
pub fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_767_225_600_123_457))
}

/// A store with that clock.
pub fn store(clock: &ManualClock) -> MemoryStore {
    MemoryStore::builder().clock(clock).build()
}

/// The header `x-user` as a key.
pub fn user() -> impl KeyExtractor {
    header("x-user")
}

/// `limit` requests a minute.
pub fn per_minute(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_minute(limit))
}

/// [`per_minute`] by each user.
pub fn per_user(name: &str, limit: u64) -> Rule {
    per_minute(name, limit).by(user())
}

/// A leaky bucket: one request each 100 ms, and a queue as long as `max_wait`.
pub fn bucket(name: &str, max_wait: Duration) -> Policy {
    Policy::new(name, Quota::per_second(10)).with_algorithm(Algorithm::LeakyBucket { max_wait })
}

/// A [`bucket`] for each user.
pub fn queue(name: &str, max_wait: Duration) -> Rule {
    bucket(name, max_wait).by(user())
}

/// A request of that user.
pub fn request(user: &str) -> Request<Body> {
    Request::builder().header("x-user", user).body(Body::empty()).expect("a valid request")
}

/// Polls a service ready and calls it.
pub async fn call<S, B, R>(service: &mut S, request: Request<B>) -> Response<R>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: std::fmt::Debug,
{
    let ready = service.ready().await.expect("the service is ready");
    ready.call(request).await.expect("the service answers")
}

/// The value of a header, as text.
pub fn field<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().expect("a text"))
}

/// The output of a future, and how long it took in tokio's time.
pub async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    let output = future.await;
    (output, start.elapsed())
}

/// The lateness of tasks that only sleep until `is_over`, at the 95th percentile.
pub async fn lateness(tasks: u32, pause: Duration, is_over: Arc<AtomicBool>) -> Duration {
    let sleeps = |is_over: Arc<AtomicBool>| async move {
        let mut late = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let start = Instant::now();
            sleep(pause).await;
            late.push(start.elapsed().saturating_sub(pause));
        }
        late
    };
    let sleepers: JoinSet<_> = (0..tasks).map(|_| sleeps(Arc::clone(&is_over))).collect();
    let mut late: Vec<Duration> = sleepers.join_all().await.concat();
    late.sort_unstable();
    late.get(late.len() * 95 / 100).copied().unwrap_or_default()
}

/// Polls a future once.
///
/// # Panics
/// If it is ready.
pub async fn poll_once(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "ready at once");
        Poll::Ready(())
    })
    .await;
}
