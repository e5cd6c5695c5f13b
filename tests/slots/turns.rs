//! Whose turn it is: clients with one slot, and many that wait for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::{Router, routing::get};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::extract::global;
use tollgate::store::{BlockStart, Check, End, Grant, RenewalReport, Reply, Store, Times, Verdict};
use tollgate::{Key, Limiter, Policy, PolicyExt, RateLimitLayer, Share, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server, short_or_long};
use tollgate_tests::{Client, serve};

async fn redis() -> (Server, RedisStore) {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let store = RedisStore::builder(&server.url()).response_timeout(Duration::from_secs(30));
    let store = store.connect().await.unwrap();
    (server, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_one_slot_is_never_refused_for_its_own_last_request() {
    let (_server, store) = redis().await;
    let layer = RateLimitLayer::new(Policy::in_flight("one", 1).by(global())).store(store.fail_closed());
    let app = Router::new().route("/", get(async || "done\n")).layer(layer);
    let address = serve(app).await;
    let mut client = Client::connect(address).await;
    let requests = short_or_long(300, 10_000);
    for n in 0..requests {
        assert_eq!(client.get("/", &[]).await.status, 200, "request {n} over HTTP/1");
    }
    let http2 = HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
    for n in 0..requests {
        let answer = http2.get(format!("http://{address}/").parse().unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "request {n} over HTTP/2");
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "done\n");
    }
}

/// Counts how often the store is asked.
#[derive(Clone)]
struct Counting {
    store: RedisStore,
    asked: Arc<AtomicUsize>,
}

impl Store for Counting {
    type Error = tollgate_redis::Error;
    type Acquire = <RedisStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Self::Error>, Self::Acquire> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.store.acquire(set, times)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Self::Error> + use<> {
        self.store.refund(grants)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Self::Error> + use<> {
        self.store.renew(grants, report)
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, Self::Error> + use<> {
        self.store.block(policy, key, share)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Self::Error> + use<> {
        self.store.reset(key, policies)
    }
}

/// In one thread, where callers arrive in the order in which they are spawned.
#[tokio::test]
async fn thousands_that_wait_take_few_calls_and_turns_in_order() {
    const CALLERS: usize = 5_000;
    let (_server, store) = redis().await;
    let asked = Arc::<AtomicUsize>::default();
    let store = Counting { store, asked: Arc::clone(&asked) };
    let jobs = Limiter::new([Policy::in_flight("jobs", 10)]).store(store.fail_closed());
    let (passed, begin) = (Arc::<AtomicUsize>::default(), Instant::now());
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let (jobs, passed) = (jobs.clone(), Arc::clone(&passed));
        let arrives = async move {
            let permit = jobs.until_ready(&Key::from("all"), 1, Duration::from_secs(300)).await.unwrap();
            let place = passed.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(2)).await;
            drop(permit);
            place.abs_diff(n)
        };
        callers.spawn(arrives);
    }
    let off = callers.join_all().await;
    let calls = asked.load(Ordering::Relaxed);
    let polls = usize::try_from(5 * (1 + begin.elapsed().as_secs())).unwrap();
    println!(
        "{calls} calls for {CALLERS} in {:?}, at most {:?} places off",
        begin.elapsed(),
        off.iter().max()
    );
    // While nothing is refused, 64 ask at once.
    assert!(calls <= 3 * CALLERS + polls + 64, "{calls} calls");
    assert!(off.iter().all(|places| *places <= 64), "{:?} places off", off.iter().max());
}
