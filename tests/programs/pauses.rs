//! A client that obeys the pauses of a server: one of this workspace, over sockets.

use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::HeaderMap;
use reqwest::{Client, Method, Request, Response, Url};
use tokio::time::{Instant, sleep};
use tollgate::calls::CallError;
use tollgate::extract::global;
use tollgate::pause::PauseLayer;
use tollgate::{Key, Policy, PolicyExt, Quota, RateLimitLayer, Share};
use tollgate_tests::{serve, timed};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

fn pauses() -> PauseLayer<Request, Response> {
    let origin = |request: &Request| request.url().port_or_known_default().map(Key::from);
    PauseLayer::of(origin, |response: &Response| (response.status(), response.headers()))
}

fn get_of(url: &Url) -> Request {
    Request::new(Method::GET, url.clone())
}

/// A server, and how many requests reached it.
async fn counting(app: impl FnOnce(Router) -> Router) -> (Url, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let routes = Router::new().route("/", get(|| async { "hello" }));
    let app = app(routes).layer(axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
        count.fetch_add(1, Ordering::Relaxed);
        next.run(request)
    }));
    (Url::parse(&format!("http://{}/", serve(app).await)).unwrap(), asked)
}

#[tokio::test]
async fn a_refusal_pauses_all_requests_to_its_origin_only() {
    let limit = RateLimitLayer::new(Policy::new("hourly", Quota::per_hour(1)).by(global()));
    let (limited, asked) = counting(|app| app.layer(limit)).await;
    let (free, _) = counting(|app| app).await;
    let client = ServiceBuilder::new().layer(pauses()).service(Client::new());
    // The second is refused by the server, which then is not asked again.
    assert_eq!(client.clone().oneshot(get_of(&limited)).await.unwrap().status(), 200);
    for _ in 0..3 {
        match client.clone().oneshot(get_of(&limited)).await {
            Ok(response) => assert_eq!(response.status(), 429),
            Err(CallError::Paused(left)) => assert!(left > Duration::from_secs(3_500), "{left:?}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(client.clone().oneshot(get_of(&free)).await.unwrap().status(), 200);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_refused_call_keeps_no_permit_of_the_inner_service() {
    let busy =
        || Ok::<_, Infallible>(http::Response::builder().status(429).header("retry-after", 600).body(()));
    let origin = |_: &()| Some(Key::from(1));
    let pauses =
        PauseLayer::of(origin, |response: &http::Response<()>| (response.status(), response.headers()));
    let client = ServiceBuilder::new()
        .layer(pauses)
        .concurrency_limit(1)
        .service(service_fn(move |_: ()| ready(busy().map(Result::unwrap))));
    assert_eq!(client.clone().oneshot(()).await.unwrap().status(), 429);
    let mut clients = [client.clone(), client];
    for at in [0, 1, 0] {
        let client = &mut clients[at];
        let is_ready = client.poll_ready(&mut Context::from_waker(Waker::noop()));
        assert!(is_ready.is_ready(), "another clone holds the permit");
        assert!(matches!(client.call(()).await, Err(CallError::Paused(_))));
    }
}

#[tokio::test]
async fn a_client_may_pause_before_it_is_refused() {
    let limit = RateLimitLayer::new(Policy::new("hourly", Quota::per_hour(1)).by(global()));
    let (limited, asked) = counting(|app| app.layer(limit)).await;
    let client = ServiceBuilder::new().layer(pauses().before_refusals()).service(Client::new());
    assert_eq!(client.clone().oneshot(get_of(&limited)).await.unwrap().status(), 200);
    assert!(matches!(client.oneshot(get_of(&limited)).await, Err(CallError::Paused(_))));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_request_waits_for_the_end_of_a_short_pause() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let busy_at_first = move || {
        let first = count.fetch_add(1, Ordering::Relaxed) == 0;
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", 1.into());
        async move {
            if first {
                (http::StatusCode::SERVICE_UNAVAILABLE, headers)
            } else {
                (http::StatusCode::OK, HeaderMap::new())
            }
        }
    };
    let address = serve(Router::new().route("/", get(busy_at_first))).await;
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    let client = ServiceBuilder::new().layer(pauses()).service(Client::new());
    let start = Instant::now();
    assert_eq!(client.clone().oneshot(get_of(&url)).await.unwrap().status(), 503);
    let both = [client.clone().oneshot(get_of(&url)), client.clone().oneshot(get_of(&url))].map(tokio::spawn);
    for response in both {
        assert_eq!(response.await.unwrap().unwrap().status(), 200);
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_pause_without_end_lasts_for_the_longest_one_which_is_a_year() {
    let busy = || async { (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "99999999999999999999")]) };
    let url = Url::parse(&format!("http://{}/", serve(Router::new().route("/", get(busy))).await)).unwrap();
    let pauses = pauses().longest_pause(Duration::MAX).wait_at_most(Duration::from_secs(1));
    let client = ServiceBuilder::new().layer(pauses).service(Client::new());
    assert_eq!(client.clone().oneshot(get_of(&url)).await.unwrap().status(), 429);
    let left = match client.oneshot(get_of(&url)).await {
        Err(CallError::Paused(left)) => left,
        other => panic!("{other:?}"),
    };
    let days = left.as_secs_f64() / 86_400.0;
    assert!((364.0..=365.0).contains(&days), "{days} days");
}

type Busy = http::Response<()>;

/// A client without a network, whose requests are all refused for an hour.
fn refused<R>(
    pauses: PauseLayer<R, Busy>,
) -> impl Service<R, Response = Busy, Error = CallError<Infallible>> + Clone {
    let busy = |_: R| {
        let response = http::Response::builder().status(429).header("retry-after", "3600").body(());
        ready(Ok::<_, Infallible>(response.unwrap()))
    };
    ServiceBuilder::new().layer(pauses).service(service_fn(busy))
}

#[tokio::test]
async fn a_pause_of_an_origin_holds_for_all_its_spellings() {
    let client = refused(PauseLayer::<http::Request<()>, Busy>::new());
    let is_sent =
        async |uri: &str| client.clone().oneshot(http::Request::get(uri).body(()).unwrap()).await.is_ok();
    assert!(is_sent("http://ada:secret@API.example:80/").await);
    for uri in ["http://api.example/", "http://bob@api.example/a?b", "HTTP://api.EXAMPLE:80"] {
        assert!(!is_sent(uri).await, "{uri}");
    }
    for uri in ["https://api.example/", "http://api.example:8080/", "http://www.api.example/"] {
        assert!(is_sent(uri).await, "{uri}");
    }
    // An origin that cannot exist is not paused.
    let long = format!("http://{}.example/", "a".repeat(300));
    assert!(is_sent(&long).await && is_sent(&long).await);
}

/// A client whose request `n` is refused after that many seconds, for as many seconds.
fn slow(
    at_most: Duration,
) -> impl Service<(u64, u64), Response = Busy, Error = CallError<Infallible>, Future: Send> + Clone {
    let answer = async |(after, pause): (u64, u64)| {
        sleep(Duration::from_secs(after)).await;
        let status = if pause == 0 { 200 } else { 429 };
        Ok::<_, Infallible>(
            http::Response::builder().status(status).header("retry-after", pause).body(()).unwrap(),
        )
    };
    let pauses = PauseLayer::of(
        |_: &(u64, u64)| Some(Key::global()),
        |response: &Busy| (response.status(), response.headers()),
    );
    ServiceBuilder::new().layer(pauses.wait_at_most(at_most)).service(service_fn(answer))
}

/// Pauses of 2 s, then of 4 s from the first second on, then of 5 s from the third second on.
#[tokio::test(start_paused = true)]
async fn a_pause_that_grows_is_waited_for_until_the_patience_ends() {
    for (at_most, ends) in
        [(1, Err(0)), (2, Err(2)), (4, Err(2)), (5, Err(5)), (7, Err(5)), (8, Ok(8)), (9, Ok(8))]
    {
        let client = slow(Duration::from_secs(at_most));
        for refused in [(3, 5), (1, 4), (0, 2)] {
            tokio::spawn(client.clone().oneshot(refused));
        }
        tokio::task::yield_now().await;
        let (response, waited) = timed(client.oneshot((0, 0))).await;
        let outcome = response.map(|_| waited.as_secs()).map_err(|_| waited.as_secs());
        assert_eq!(outcome, ends, "{at_most}");
    }
}

/// Twenty clients are refused at once, each in a process of its own or not.
#[tokio::test(start_paused = true)]
async fn requests_resume_at_random_times_after_a_pause() {
    const PAUSE: Duration = Duration::from_secs(10);
    for is_one_client in [true, false] {
        let client = || {
            let layer = PauseLayer::of(
                |_: &u64| Some(Key::global()),
                |response: &Busy| (response.status(), response.headers()),
            );
            let refused_first = async |pause: u64| {
                let status = if pause == 0 { 200 } else { 429 };
                let response = http::Response::builder().status(status).header("retry-after", pause);
                Ok::<_, Infallible>(response.body(()).unwrap())
            };
            ServiceBuilder::new().layer(layer.jitter(Share::new(1, 2))).service(service_fn(refused_first))
        };
        let clients: Vec<_> = match is_one_client {
            true => vec![client(); 20],
            false => std::iter::repeat_with(client).take(20).collect(),
        };
        let mut waits = tokio::task::JoinSet::new();
        for client in &clients {
            assert_eq!(
                client.clone().oneshot(PAUSE.as_secs()).await.map(|response| response.status()).unwrap(),
                429
            );
            if is_one_client {
                break;
            }
        }
        for client in clients {
            waits.spawn(async move { timed(client.oneshot(0)).await });
        }
        let waits: std::collections::BTreeSet<_> = waits
            .join_all()
            .await
            .into_iter()
            .map(|(response, waited)| {
                assert_eq!(response.unwrap().status(), 200);
                assert!((PAUSE..=PAUSE * 3 / 2 + Duration::from_millis(1)).contains(&waited), "{waited:?}");
                waited
            })
            .collect();
        // The timer has milliseconds, and there are 5,000 to choose from.
        assert!(waits.len() > 10, "{waits:?}");
    }
}

#[tokio::test]
async fn a_request_without_an_origin_is_never_paused() {
    for origin in [None, Some(Key::from(""))] {
        let client = refused(PauseLayer::of(
            move |(): &()| origin.clone(),
            |response: &Busy| (response.status(), response.headers()),
        ));
        assert!(client.clone().oneshot(()).await.is_ok() && client.oneshot(()).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_paused_client_says_how_long_or_what_failed() {
    let client = refused(PauseLayer::<http::Request<()>, Busy>::new());
    let request = || http::Request::get("http://a/").body(()).unwrap();
    client.clone().oneshot(request()).await.unwrap();
    let error = client.oneshot(request()).await.unwrap_err();
    assert_eq!(error.to_string(), "the origin asked for a pause, which ends in 3600s");
    let inner = CallError::Inner(std::io::Error::other("reset"));
    assert_eq!(inner.to_string(), "reset");
}

/// Links are chosen by others, and so is their user info.
#[test]
fn an_origin_takes_little_memory_whatever_its_links_are() {
    let link = |n: u32| format!("http://{}@{n}.example/", "x".repeat(60_000));
    let by_origin = refused(PauseLayer::<http::Request<()>, Busy>::new());
    let by_link = refused(PauseLayer::of(
        |request: &http::Request<()>| Some(Key::from(request.uri().to_string())),
        |response: &Busy| (response.status(), response.headers()),
    ));
    // The value stays alive, and with it what it remembers.
    let kept = |answer: &dyn Fn(http::Request<()>)| {
        let send_all = || (0..1_000).for_each(|n| answer(http::Request::get(link(n)).body(()).unwrap()));
        allocation_counter::measure(send_all).bytes_current
    };
    let kept = [
        kept(&|request| now(by_origin.clone().oneshot(request))),
        kept(&|request| now(by_link.clone().oneshot(request))),
    ];
    assert!(kept.iter().all(|bytes| (0..200_000).contains(bytes)), "{kept:?} bytes");
}

/// Polls a request that is answered at once.
fn now(response: impl Future<Output = Result<Busy, CallError<Infallible>>>) {
    let answer = pin!(response).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(Ok(response)) if response.status() == 429));
}
