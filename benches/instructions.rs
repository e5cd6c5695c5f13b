//! Instructions of the client process per request. A busy machine does not change them, unlike
//! time.
//!
//! Each row runs in a process of its own under callgrind, with two numbers of requests. The figure
//! is the difference in instructions over the difference in requests, so a start costs nothing.
//! Rows over Redis depend a little on how threads interleave: the figure is the median of three.
//!
//! `cargo bench -p tollgate-benches --bench instructions`, with `-- redis` for the rows whose name
//! contains that. Needs valgrind: `apt-get install valgrind`.

use std::convert::Infallible;
use std::env;
use std::future::{Future, Ready};
use std::hint::black_box;
use std::mem;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tollgate::extract;
use tollgate::store::{Check, End, Grant, NeverFails, Reply, Store, Times, Verdict};
use tollgate::{
    CircuitBreaker, Fields, Key, Lease, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer,
    Share, StoreExt,
};
use tollgate_benches::ready_service;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tower::{Layer, Service, ServiceExt, service_fn};

/// In the order of the table. `run` has what each of them does.
const ROWS: [&str; 18] = [
    "memory: no layer",
    "by hand: fields",
    "by hand: denied",
    "memory: layer, off",
    "memory: layer, no fields",
    "memory: layer, fields",
    "memory: layer, fields, 3 rules",
    "memory: layer, fields, denied",
    "memory: limiter",
    "leased: store",
    "leased: store, deny cache",
    "later: store",
    "later: layer, no fields",
    "later: layer, fields",
    "later: layer, no fields, wrapped store",
    "redis: store",
    "redis: layer, no fields",
    "redis: layer, fields",
];
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// No request is denied.
const AMPLE: Quota = Quota::per_hour(1_000_000).burst(1_000_000);
/// Each request after the first is denied.
const SCANT: Quota = Quota::per_day(1);
/// A timeout that never ends a wait, however slow valgrind is.
const PATIENCE: Duration = Duration::from_secs(600);
/// Callers that share a connection to Redis, and their keys.
const TASKS: u32 = 512;
const KEYS: u32 = 10_000;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [row, requests, redis] = &arguments[..] {
        return measured(row, requests.parse().expect("a number"), redis);
    }
    let server = Server::start(Kind::Redis8_2).expect("a server");
    let without_layer = per_request(ROWS[0], &server.url());
    println!("| instructions per request | all | without those of the first row |\n|---|--:|--:|");
    for row in ROWS.into_iter().filter(|row| arguments.iter().all(|word| row.contains(word))) {
        let all = per_request(row, &server.url());
        let is_of_layer = row.contains("layer, ") || row.starts_with("by hand");
        let of_layer = is_of_layer.then(|| (all - without_layer).to_string());
        println!("| {row} | {all} | {} |", of_layer.unwrap_or_default());
    }
}

fn per_request(row: &str, redis: &str) -> u64 {
    let (few, many, repeats) = if row.starts_with("redis") { (20, 120, 3) } else { (2, 42, 1) };
    let mut figures: Vec<u64> = (0..repeats)
        .map(|_| count(row, many * TASKS, redis) - count(row, few * TASKS, redis))
        .map(|instructions| instructions / u64::from((many - few) * TASKS))
        .collect();
    figures.sort_unstable();
    figures[figures.len() / 2]
}

/// The instructions of a whole process.
fn count(row: &str, requests: u32, redis: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        // Not counted: it takes a time, not a number of instructions.
        .args(["--toggle-collect=quanta::Clock::new", "--collect-atstart=yes"])
        .arg(env::current_exe().expect("this program"))
        .args([row, &requests.to_string(), redis])
        .output();
    let output = output.expect("valgrind is not on the PATH: apt-get install valgrind");
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match collected {
        Some(instructions) if output.status.success() => instructions,
        _ => panic!("{row} failed under valgrind:\n{report}"),
    }
}

/// The process that is measured.
fn measured(row: &str, requests: u32, redis: &str) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if row.starts_with("redis") {
        return runtime.block_on(run(row, requests, redis));
    }
    // Polled in a loop, so that nothing of the runtime counts. Timers need one.
    let _entered = runtime.enter();
    let mut run = pin!(run(row, requests, redis));
    while run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
}

async fn run(row: &str, requests: u32, redis: &str) {
    let later = || Later(MemoryStore::new());
    let hot = vec![HeaderValue::from_static("ada")];
    match row {
        "memory: no layer" => send(ready_service(), requests, hot).await,
        "by hand: fields" => send(service_fn(async |_| Ok(with_fields(12_345))), requests, hot).await,
        "by hand: denied" => send(service_fn(async |_| Ok(denied(86_400))), requests, hot).await,
        "memory: layer, off" => {
            let layer = layer(Fields::Ietf);
            layer.set_enabled(false);
            send_through(layer, requests, hot).await;
        }
        "memory: layer, no fields" => send_through(layer(Fields::None), requests, hot).await,
        "memory: layer, fields" => send_through(layer(Fields::Ietf), requests, hot).await,
        "memory: layer, fields, 3 rules" => {
            let rules = ["a", "b", "c"].map(|name| Policy::new(name, AMPLE).by(extract::header("x-api-key")));
            send_through(RateLimitLayer::new(rules), requests, hot).await;
        }
        "memory: layer, fields, denied" => {
            let rule = Policy::new("api", SCANT).by(extract::header("x-api-key"));
            send_through(RateLimitLayer::new([rule]), requests, hot).await;
        }
        "memory: limiter" => {
            let (limiter, key) = (Limiter::new([Policy::new("api", AMPLE)]), Key::from("ada"));
            (0..requests).for_each(|_| assert!(limiter.check_now(&key, 1).is_ok()));
        }
        "leased: store" => ask(MemoryStore::new().leased(Lease::default()), requests, hot).await,
        "leased: store, deny cache" => {
            ask(MemoryStore::new().leased(Lease::default()).deny_cache(10_000), requests, hot).await;
        }
        "later: store" => ask(later(), requests, hot).await,
        "later: layer, no fields" => {
            send_through(layer(Fields::None).store(later()), requests, hot).await;
        }
        "later: layer, fields" => {
            send_through(layer(Fields::Ietf).store(later()), requests, hot).await;
        }
        "later: layer, no fields, wrapped store" => {
            let store = later()
                .timeout(PATIENCE)
                .circuit_breaker(CircuitBreaker::default())
                .fall_back_to(MemoryStore::new(), Share::WHOLE);
            send_through(layer(Fields::None).store(store), requests, hot).await;
        }
        "redis: store" => {
            let store = RedisStore::connect(redis).await.expect("a store");
            at_once(requests, |requests, keys| ask(store.clone(), requests, keys)).await;
        }
        "redis: layer, no fields" => through_redis(layer(Fields::None), requests, redis).await,
        "redis: layer, fields" => through_redis(layer(Fields::Ietf), requests, redis).await,
        unknown => panic!("no row is called {unknown}"),
    }
}

fn layer(fields: Fields) -> RateLimitLayer {
    RateLimitLayer::new([Policy::new("api", AMPLE).by(extract::header("x-api-key"))]).fields(fields)
}

/// The response of a handler that writes the fields itself, and decides nothing: what no layer can
/// spare.
fn with_fields(remaining: u64) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let limit = format!("\"api\";r={};t=1", black_box(remaining));
    response.headers_mut().append(RATELIMIT_POLICY, HeaderValue::from_static("\"api\";q=1000000;w=3600"));
    response.headers_mut().append(RATELIMIT, HeaderValue::try_from(limit).expect("printable"));
    response
}

/// The same for a refusal, with what outer layers are to know.
fn denied(seconds: u64) -> Response<Body> {
    let problem =
        Bytes::from_static(b"{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\"}");
    let mut response = with_fields(0).map(|_| Body::from(problem));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from(black_box(seconds)));
    response.extensions_mut().insert(Arc::new(seconds));
    response
}

async fn through_redis(layer: RateLimitLayer, requests: u32, redis: &str) {
    let store = RedisStore::connect(redis).await.expect("a store").timeout(PATIENCE).fail_closed();
    let service = layer.store(store).layer(ready_service());
    at_once(requests, |requests, keys| send(service.clone(), requests, keys)).await;
}

/// Divides the requests among tasks, each of which has keys of its own.
async fn at_once<F>(requests: u32, task: impl Fn(u32, Vec<HeaderValue>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let keys = |task| (task..KEYS).step_by(TASKS as usize).map(HeaderValue::from).collect();
    (0..TASKS).map(|n| task(requests / TASKS, keys(n))).collect::<JoinSet<_>>().join_all().await;
}

async fn send_through<S: Store<Error: NeverFails>>(
    layer: RateLimitLayer<S>,
    requests: u32,
    keys: Vec<HeaderValue>,
) {
    send(layer.layer(ready_service()), requests, keys).await;
}

async fn send<S, B>(mut service: S, requests: u32, keys: Vec<HeaderValue>)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    for key in keys.iter().cycle().take(requests as usize) {
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert(API_KEY, key.clone());
        let Ok(response) = service.ready().await.expect("a ready service").call(request).await;
        assert!(!response.status().is_server_error(), "{}", response.status());
    }
}

async fn ask<S: Store>(store: S, requests: u32, keys: Vec<HeaderValue>) {
    let policy = Policy::new("api", AMPLE);
    let keys: Vec<Key> = keys.iter().map(|key| Key::from(key.as_bytes())).collect();
    for key in keys.iter().cycle().take(requests as usize) {
        let verdict = store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE).wait().await;
        assert!(verdict.expect("a verdict").is_granted());
    }
}

/// A store that answers when it is polled for the second time, as one over a network does.
#[derive(Clone)]
struct Later(MemoryStore);

impl Store for Later {
    type Error = Infallible;
    type Acquire = Second<Result<Verdict, Infallible>>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        second(self.0.acquire(set, times))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.0.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.0.reset(key, policies)
    }
}

fn second<T>(reply: Reply<T, Ready<T>>) -> Reply<T, Second<T>> {
    let answer = match reply {
        Reply::Now(answer) => answer,
        Reply::Later(ready) => ready.into_inner(),
    };
    Reply::Later(Second { answer: Some(answer), polled: false })
}

/// Is ready with its answer when it is polled for the second time.
struct Second<T> {
    answer: Option<T>,
    polled: bool,
}

impl<T: Unpin> Future for Second<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if !mem::replace(&mut self.polled, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.answer.take().expect("not polled again"))
    }
}
