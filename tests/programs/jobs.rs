//! A queue of jobs: a Tower service without HTTP, with the stores and failure policies of a layer.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::calls::{CallError, CallLimitLayer};
use tollgate::{Algorithm, Key, Limiter, MemoryStore, Policy, Quota, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, clock, poll_once, store};
use tower::{Layer, Service, ServiceExt, service_fn};

struct Job {
    tenant: &'static str,
    rows: u64,
}

fn job(tenant: &'static str, rows: u64) -> Job {
    Job { tenant, rows }
}

/// Counts jobs. Panics if it is called without having been polled ready.
#[derive(Default)]
struct Workers {
    done: Arc<AtomicU32>,
    is_ready: bool,
}

impl Clone for Workers {
    fn clone(&self) -> Workers {
        Workers { done: Arc::clone(&self.done), is_ready: false }
    }
}

impl Service<Job> for Workers {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been polled ready");
        self.done.fetch_add(1, Ordering::Relaxed);
        ready(Ok(job.rows))
    }
}

fn by_tenant(job: &Job) -> Option<Key> {
    (!job.tenant.is_empty()).then(|| Key::from(job.tenant))
}

fn rows(limit: u64) -> Limiter {
    Limiter::new([Policy::new("rows", Quota::per_minute(limit))]).store(store(&clock()))
}

#[tokio::test]
async fn a_call_is_charged_its_cost_by_its_key() {
    let workers = Workers::default();
    let mut service = CallLimitLayer::new(rows(10), by_tenant).cost(|job| job.rows).layer(workers.clone());
    assert_eq!(service.ready().await.unwrap().call(job("a", 8)).await.unwrap(), 8);
    let refused = service.ready().await.unwrap().call(job("a", 3)).await.unwrap_err();
    let CallError::Denied(denial) = refused else { panic!("{refused:?}") };
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(6)));
    assert_eq!(service.ready().await.unwrap().call(job("b", 3)).await.unwrap(), 3);
    assert_eq!(workers.done.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_call_without_a_key_is_refused() {
    let mut service = CallLimitLayer::new(rows(10), by_tenant).layer(Workers::default());
    let refused = service.ready().await.unwrap().call(job("", 1)).await.unwrap_err();
    assert_eq!(refused.to_string(), "the request carries no key: rows");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_it_may_pass_and_no_longer() {
    let limiter = Limiter::new([Policy::new("jobs", Quota::per_second(1))]);
    // The store follows the time of the runtime.
    let time = clock();
    let limiter = limiter.store(store(&time));
    let layer = CallLimitLayer::new(limiter, by_tenant).wait_at_most(Duration::from_millis(1_500));
    let service = layer.layer(Workers::default());
    tokio::spawn(async move {
        let start = Instant::now();
        let begin = time.now();
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            time.set(tollgate::Timestamp::from_micros(
                begin.as_micros() + u64::try_from(start.elapsed().as_micros()).unwrap(),
            ));
        }
    });
    let start = Instant::now();
    for seconds in 0..3 {
        service.clone().oneshot(job("a", 1)).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
    // The third of these would wait for more than 1.5 s, and is refused at once.
    let calls = [1, 2, 3].map(|_| service.clone().oneshot(job("a", 1)));
    let [a, b, c] = calls.map(tokio::spawn);
    let passed = [a.await.unwrap().is_ok(), b.await.unwrap().is_ok(), c.await.unwrap().is_ok()];
    assert_eq!(passed.iter().filter(|passed| **passed).count(), 1, "{passed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_leaves_its_place_in_the_queue() {
    let queue = Policy::new("queue", Quota::per_second(1))
        .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) });
    let service = CallLimitLayer::new(Limiter::new([queue]).store(store(&clock())), by_tenant)
        .layer(Workers::default());
    service.clone().oneshot(job("a", 1)).await.unwrap();
    poll_once(service.clone().oneshot(job("a", 1))).await;
    // It has the place that the dropped one had.
    let start = Instant::now();
    service.clone().oneshot(job("a", 1)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn a_store_that_fails_is_answered_by_its_failure_policy() {
    let failing = || Failing::new(MemoryStore::new(), Connection::FailsLater(Fault::Unreachable));
    let limiter = || Limiter::new([Policy::new("jobs", Quota::per_second(1))]);
    let open = CallLimitLayer::new(limiter().store(failing().fail_open()), by_tenant);
    let closed = CallLimitLayer::new(limiter().store(failing().fail_closed()), by_tenant);
    for _ in 0..3 {
        assert!(open.layer(Workers::default()).oneshot(job("a", 1)).await.is_ok());
        let refused = closed.layer(Workers::default()).oneshot(job("a", 1)).await.unwrap_err();
        assert!(matches!(refused, CallError::Denied(denial) if denial.retry_after().is_none()));
    }
}

#[tokio::test]
async fn an_error_of_the_service_is_passed_on_with_its_text_and_source() {
    let fails = service_fn(async |_: Job| Err::<(), _>(std::io::Error::other(Cause)));
    let error = CallLimitLayer::new(rows(10), by_tenant).layer(fails).oneshot(job("a", 1)).await.unwrap_err();
    assert_eq!(error.to_string(), "disk full");
    // As `io::Error` has it: the source is that of the wrapped error.
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no inodes"));
    assert!(error.into_box().downcast::<std::io::Error>().is_ok());
}

#[derive(Debug)]
struct Cause;

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("disk full")
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&NoInodes)
    }
}

#[derive(Debug)]
struct NoInodes;

impl std::fmt::Display for NoInodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no inodes")
    }
}

impl Error for NoInodes {}
