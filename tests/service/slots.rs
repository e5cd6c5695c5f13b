//! Requests in flight: slots that a layer and the limiters hold.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::convert::Infallible;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Channel};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tollgate::extract::{global, header};
use tollgate::{
    Denial, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Reason, RequestLimiter,
    Rule, SetupError, Slot, StoreExt,
};
use tollgate_tests::{Connection, Failing, Later, clock, store};
use tower::{Layer, Service, ServiceExt, service_fn};

fn ada() -> Request<Body> {
    Request::get("/").header("x-user", "ada").body(Body::empty()).unwrap()
}

fn exports(limit: u64) -> Rule {
    Policy::in_flight("exports", limit).by(header("x-user"))
}

/// A service that answers with this body.
fn answering(
    layer: &RateLimitLayer,
    body: &'static str,
) -> impl Service<
    Request<Body>,
    Response = Response<impl HttpBody<Data = Bytes, Error = axum::Error> + Unpin + use<>>,
    Error = Infallible,
> + Clone
+ use<> {
    layer.layer(service_fn(move |_: Request<Body>| async move {
        Ok::<_, Infallible>(Response::new(Body::from(body)))
    }))
}

/// How many more requests would get a slot.
async fn free(layer: &RateLimitLayer) -> u64 {
    let (head, ()) = ada().map(|_| ()).into_parts();
    layer.limiter().look(&(&head).into()).await.unwrap().statuses()[0].remaining()
}

#[tokio::test]
async fn a_slot_is_held_until_the_body_ends() {
    let layer = RateLimitLayer::new(exports(2));
    let (mut send, body) = Channel::<Bytes>::new(4);
    let body = Arc::new(Mutex::new(Some(body)));
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let body = body.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let response = service.oneshot(ada()).await.unwrap();
    assert_eq!(response.headers()["ratelimit-policy"], r#""exports";q=2;qu="concurrent-requests""#);
    assert_eq!(response.headers()["ratelimit"], r#""exports";r=1"#);
    assert_eq!(free(&layer).await, 1);
    let mut body = response.into_body();
    send.send_data(Bytes::from_static(b"rows")).await.unwrap();
    body.frame().await.unwrap().unwrap();
    assert_eq!(free(&layer).await, 1);
    drop(send);
    assert!(body.frame().await.is_none());
    assert_eq!(free(&layer).await, 2, "before the body is dropped");
}

/// A body may not know that its trailers are the last frame.
#[tokio::test]
async fn a_slot_is_free_with_the_trailers() {
    let layer = RateLimitLayer::new(exports(1));
    let (mut send, body) = Channel::<Bytes>::new(4);
    let body = Arc::new(Mutex::new(Some(body)));
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let body = body.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let mut body = service.oneshot(ada()).await.unwrap().into_body();
    send.send_trailers(HeaderMap::new()).await.unwrap();
    assert_eq!(free(&layer).await, 0);
    assert!(body.frame().await.unwrap().unwrap().is_trailers() && !body.is_end_stream());
    assert_eq!(free(&layer).await, 1, "before the body is read to its end");
    drop(send);
}

#[tokio::test]
async fn a_slot_is_free_before_the_client_has_the_last_byte() {
    let layer = RateLimitLayer::new(exports(1));
    // Its only frame is the last.
    let known = answering(&layer, "rows");
    let mut body = known.oneshot(ada()).await.unwrap().into_body();
    assert_eq!(free(&layer).await, 0);
    body.frame().await.unwrap().unwrap();
    assert_eq!(free(&layer).await, 1, "of a body that knows its end");
    // Only the head says which frame is the last.
    let (send, receive) = mpsc::channel::<Result<Bytes, Infallible>>(4);
    send.send(Ok(Bytes::from_static(b"ro"))).await.unwrap();
    send.send(Ok(Bytes::from_static(b"ws"))).await.unwrap();
    let receive = Arc::new(Mutex::new(Some(receive)));
    let said = layer.layer(service_fn(move |_: Request<Body>| {
        let stream = tokio_stream::wrappers::ReceiverStream::new(receive.lock().unwrap().take().unwrap());
        async move {
            let response = Response::builder().header(CONTENT_LENGTH, 4).body(Body::from_stream(stream));
            Ok::<_, Infallible>(response.unwrap())
        }
    }));
    let mut body = said.oneshot(ada()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(free(&layer).await, 0);
    body.frame().await.unwrap().unwrap();
    assert_eq!(free(&layer).await, 1, "of a body whose length the head says");
    drop(send);
}

/// The body does not know that nothing comes.
#[tokio::test]
async fn a_slot_is_free_with_a_head_that_says_that_no_body_follows() {
    let layer = RateLimitLayer::new(exports(1));
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        let body = Body::from_stream(tokio_stream::pending::<Result<Bytes, Infallible>>());
        Ok::<_, Infallible>(Response::builder().header(CONTENT_LENGTH, 0).body(body).unwrap())
    }));
    let response = service.oneshot(ada()).await.unwrap();
    assert_eq!(free(&layer).await, 1);
    drop(response);
}

#[tokio::test]
async fn a_slot_is_free_when_the_request_ends_in_any_other_way() {
    let layer = RateLimitLayer::new(exports(1));
    // The body is dropped.
    let service = answering(&layer, "rows");
    drop(service.oneshot(ada()).await.unwrap());
    assert_eq!(free(&layer).await, 1);
    // The service fails.
    let fails = layer.layer(service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("failed")));
    let mut failed = pin!(fails.oneshot(ada()));
    assert!(failed.as_mut().await.is_err());
    assert_eq!(free(&layer).await, 1, "before the future is dropped");
    // The caller leaves.
    let waits = layer.layer(service_fn(async |_: Request<Body>| {
        pending::<()>().await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let mut waiting = Box::pin(waits.oneshot(ada()));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(free(&layer).await, 0);
    drop(waiting);
    assert_eq!(free(&layer).await, 1);
    // The service panics.
    let panics = layer.layer(service_fn(async |_: Request<Body>| -> Result<Response<Body>, Infallible> {
        panic!("a mistake")
    }));
    let panicked = tokio::spawn(panics.oneshot(ada())).await;
    assert!(panicked.unwrap_err().is_panic());
    assert_eq!(free(&layer).await, 1);
    // The service panics in `call`.
    let mut calls = layer.layer(service_fn(
        |_: Request<Body>| -> std::future::Ready<Result<Response<Body>, Infallible>> { panic!("a mistake") },
    ));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| drop(calls.call(ada()))));
    assert!(panicked.is_err());
    assert_eq!(free(&layer).await, 1);
}

#[tokio::test]
async fn a_slot_and_a_rate_are_charged_together_or_not_at_all() {
    let rate = Policy::new("rate", Quota::per_day(2)).by(header("x-user"));
    let layer = RateLimitLayer::new([rate, exports(1)]);
    let service = answering(&layer, "rows");
    let first = service.clone().oneshot(ada()).await.unwrap();
    let refused = service.clone().oneshot(ada()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    let denial = refused.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["exports"]);
    assert_eq!(denial.reason(), Reason::QuotaExceeded);
    assert_eq!(denial.report().get("rate").unwrap().1.remaining(), 1, "a refusal charges no rate");
    drop(first);
    drop(service.clone().oneshot(ada()).await.unwrap());
    let refused = service.oneshot(ada()).await.unwrap();
    assert_eq!(refused.extensions().get::<Denial>().unwrap().violated().collect::<Vec<_>>(), ["rate"]);
    assert_eq!(
        layer.limiter().look(&(&ada()).into()).await.unwrap().get("exports").unwrap().1.remaining(),
        1
    );
}

#[tokio::test]
async fn an_upgraded_connection_holds_its_slot_until_its_last_clone_drops() {
    for (method, status) in
        [(Method::GET, StatusCode::SWITCHING_PROTOCOLS), (Method::CONNECT, StatusCode::OK)]
    {
        let layer = RateLimitLayer::new(exports(1));
        let (send, mut receive) = mpsc::unbounded_channel();
        let service = layer.layer(service_fn(move |request: Request<Body>| {
            send.send(request.extensions().get::<Slot>().unwrap().clone()).unwrap();
            async move { Ok::<_, Infallible>(Response::builder().status(status).body(Body::empty()).unwrap()) }
        }));
        let mut request = ada();
        *request.method_mut() = method;
        drop(service.oneshot(request).await.unwrap());
        let slot = receive.recv().await.unwrap();
        assert_eq!(free(&layer).await, 0);
        let clone = slot.clone();
        drop(slot);
        assert!(!clone.is_lost());
        drop(clone);
        assert_eq!(free(&layer).await, 1);
    }
}

#[tokio::test]
async fn a_handler_that_goes_on_after_the_response_has_lost_its_slot() {
    let layer = RateLimitLayer::new(exports(1));
    let (send, mut receive) = mpsc::unbounded_channel();
    let service = layer.layer(service_fn(move |request: Request<Body>| {
        send.send(request.extensions().get::<Slot>().unwrap().clone()).unwrap();
        async move { Ok::<_, Infallible>(Response::new(Body::from("rows"))) }
    }));
    let response = service.oneshot(ada()).await.unwrap();
    let slot = receive.recv().await.unwrap();
    assert!(!slot.is_lost());
    drop(response);
    assert!(slot.is_lost());
    slot.lost().await;
    assert_eq!(free(&layer).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_held_for_too_long_ends() {
    let layer = RateLimitLayer::new(exports(1).held_at_most(Duration::from_secs(60)));
    let service = layer.layer(service_fn(async |request: Request<Body>| {
        request.extensions().get::<Slot>().unwrap().lost().await;
        Ok::<_, Infallible>(Response::new(Body::from("lost")))
    }));
    let begin = Instant::now();
    let response = service.oneshot(ada()).await.unwrap();
    assert_eq!((begin.elapsed().as_secs(), free(&layer).await), (60, 1));
    drop(response);
    assert_eq!(free(&layer).await, 1, "the end of the response frees nothing more");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_slots_in_order_of_arrival() {
    let layer = RateLimitLayer::new(exports(1).wait_at_most(Duration::from_secs(10)));
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..12 {
        tasks.push(tokio::spawn(service.clone().oneshot(ada())));
        tokio::task::yield_now().await;
    }
    let mut seconds = Vec::new();
    for task in tasks {
        let response = task.await.unwrap().unwrap();
        seconds.push((response.status().as_u16(), begin.elapsed().as_secs()));
    }
    let passed = (1..=10).map(|second| (200, second));
    assert!(seconds.iter().copied().take(10).eq(passed), "{seconds:?}");
    assert_eq!(seconds[11].0, 429, "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_exceeds_a_rate_does_not_wait_for_a_slot() {
    let rate = Policy::new("rate", Quota::per_day(1)).by(header("x-user"));
    let layer = RateLimitLayer::new([exports(1).wait_at_most(Duration::from_secs(10)), rate]);
    let service = answering(&layer, "rows");
    let held = service.clone().oneshot(ada()).await.unwrap();
    let begin = Instant::now();
    let refused = service.oneshot(ada()).await.unwrap();
    assert_eq!((refused.status(), begin.elapsed()), (StatusCode::TOO_MANY_REQUESTS, Duration::ZERO));
    drop(held);
}

/// 1,500 log-ins of an address that has used up its failures, and others that wait for the name.
#[tokio::test(start_paused = true)]
async fn requests_that_exceed_a_rate_take_no_turn_of_a_queue() {
    let failures = Policy::new("failures", Quota::per_day(1)).by(header("x-address"));
    let turn = Policy::in_flight("turn", 1).by(header("x-user")).wait_at_most(Duration::from_secs(10));
    let service = RateLimitLayer::new([turn, failures]).layer(service_fn(async |_: Request<Body>| {
        Ok::<_, Infallible>(Response::new(Body::from("welcome")))
    }));
    let log_in = |address: &str, user: &str| {
        let request = Request::get("/").header("x-address", address).header("x-user", user);
        service.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    assert_eq!(log_in("bad", "bob").await.unwrap().status(), StatusCode::OK);
    let held = log_in("one", "ada").await.unwrap();
    let waiting = tokio::spawn(log_in("two", "ada"));
    yield_now().await;
    let begin = Instant::now();
    let refused: JoinSet<_> = (0..1_500).map(|_| log_in("bad", "ada")).collect();
    for refused in refused.join_all().await {
        assert_eq!(refused.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(begin.elapsed(), Duration::ZERO);
    drop(held);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::OK);
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn requests_that_no_rate_can_refuse_join_the_queue_without_asking() {
    let free = Policy::new("free", Quota::per_day(1)).by(header("x-user")).cost(|_| 0);
    let store = Failing::new(MemoryStore::new(), Connection::Works);
    let layer = RateLimitLayer::new([exports(1).wait_at_most(Duration::from_secs(60)), free]);
    let layer = layer.store(store.clone().fail_closed());
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        pending::<()>().await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let mut requests = JoinSet::new();
    let mut asked = Vec::new();
    for _ in 0..4 {
        requests.spawn(service.clone().oneshot(ada()));
        for _ in 0..10 {
            yield_now().await;
        }
        asked.push(store.asked());
    }
    // The first has the slot, the second finds none, and the others wait behind it.
    assert_eq!((asked[2], asked[3]), (asked[1], asked[1]), "{asked:?}");
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_answer_holds_no_slot() {
    let store = MemoryStore::new();
    let layer = RateLimitLayer::new(exports(1)).store(Later::deciding_first(store.clone()));
    let at_hand = RateLimitLayer::new(exports(1)).store(store);
    let service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    let mut asking = Box::pin(service.oneshot(ada()));
    assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(free(&at_hand).await, 0);
    drop(asking);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(free(&at_hand).await, 1);
}

#[tokio::test]
async fn a_client_is_not_refused_for_its_own_last_request() {
    let layer = RateLimitLayer::new(exports(1)).store(Later::deciding_last(MemoryStore::new()));
    let service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    for _ in 0..100 {
        let response = service.clone().oneshot(ada()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_permit_holds_its_slot() {
    let jobs = Limiter::new([Policy::in_flight("jobs", 1)]);
    let user = Key::from("ada");
    let permit = jobs.check(&user, 1).await.unwrap();
    let denial = jobs.check(&user, 1).await.unwrap_err();
    assert_eq!(denial.retry_after(), Some(Duration::from_secs(1)));
    permit.slot().release();
    assert!(permit.slot().is_lost());
    let second = jobs.check(&user, 1).await.unwrap();
    drop(permit);
    assert!(jobs.check(&user, 1).await.is_err(), "a second release frees nothing");
    second.refund().await;
    assert!(jobs.check(&user, 1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_a_slot() {
    let jobs = Limiter::new([Policy::in_flight("jobs", 1)]);
    let user = Key::from("ada");
    let permit = jobs.check(&user, 1).await.unwrap();
    let waiting = tokio::spawn({
        let (jobs, user) = (jobs.clone(), user.clone());
        async move { jobs.until_ready(&user, 1, Duration::from_secs(60)).await }
    });
    sleep(Duration::from_secs(3)).await;
    let begin = Instant::now();
    drop(permit);
    assert!(waiting.await.unwrap().is_ok());
    assert_eq!(begin.elapsed(), Duration::ZERO, "a release of this process is heard at once");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_lacks_a_slot_and_a_rate_waits_for_the_rate_first() {
    let inner = Failing::new(store(&clock()), Connection::Works);
    let policies = [Policy::in_flight("jobs", 1), Policy::new("rate", Quota::per_minute(1))];
    let jobs = Limiter::new(policies).store(inner.clone().fail_closed());
    let user = Key::from("ada");
    let _permit = jobs.check(&user, 1).await.unwrap();
    let waiting = tokio::spawn({
        let (jobs, user) = (jobs.clone(), user.clone());
        async move { jobs.until_ready(&user, 1, Duration::from_secs(90)).await }
    });
    sleep(Duration::from_secs(59)).await;
    assert_eq!(inner.asked(), 2, "the slot alone would not let it pass");
    waiting.abort();
}

#[test]
fn what_is_said_of_slots_is_for_slots() {
    let rate = || Policy::new("rate", Quota::per_day(1)).by(header("x-user"));
    let refused = SetupError::NotInFlight("rate".to_owned());
    for rule in [rate().wait_at_most(Duration::from_secs(1)), rate().held_at_most(Duration::from_secs(1))] {
        assert_eq!(RateLimitLayer::try_new(rule).unwrap_err(), refused);
    }
    let corrected = exports(1).count_if(|_| true);
    assert_eq!(RateLimitLayer::try_new(corrected).unwrap_err(), SetupError::NoDebt("exports".to_owned()));
}

/// They have another rate each, and wait for one pool.
#[tokio::test(start_paused = true)]
async fn callers_of_different_rates_wait_for_one_slot_in_order() {
    let layer = RateLimitLayer::new([
        Policy::new("rate", Quota::per_day(9)).by(header("x-user")),
        Policy::in_flight("pool", 1).by(global()).wait_at_most(Duration::from_secs(100)),
    ]);
    let service = layer.layer(service_fn(async |_: Request<Body>| {
        sleep(Duration::from_secs(1)).await;
        Ok::<_, Infallible>(Response::new(Body::empty()))
    }));
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for user in 0..20 {
        let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
        tasks.push(tokio::spawn(service.clone().oneshot(request)));
        tokio::task::yield_now().await;
    }
    for (seconds, task) in (1..).zip(tasks) {
        assert_eq!(task.await.unwrap().unwrap().status(), StatusCode::OK);
        assert_eq!(begin.elapsed(), Duration::from_secs(seconds), "in order of arrival, without a pause");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_slot_does_not_exceed_its_bound() {
    let layer = RateLimitLayer::new(exports(1).wait_at_most(Duration::from_millis(50)));
    let service = answering(&layer, "rows");
    let held = service.clone().oneshot(ada()).await.unwrap();
    let begin = Instant::now();
    assert_eq!(service.oneshot(ada()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(begin.elapsed() <= Duration::from_millis(51), "{:?}", begin.elapsed());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn of_the_rules_that_lack_a_slot_the_least_patient_ends_the_wait() {
    let of = |name: &'static str, seconds| {
        let rule = Policy::in_flight(name, 1).by(header(name));
        rule.wait_at_most(Duration::from_secs(seconds))
    };
    let layer = RateLimitLayer::new([of("user", 5), of("address", 2)]);
    let service = layer
        .layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::from("rows")))));
    let ask = |user: &str, address: &str| {
        let request = Request::get("/").header("user", user).header("address", address);
        service.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    let (held, begin) = (ask("ada", "one").await.unwrap(), Instant::now());
    assert_eq!(ask("ada", "one").await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(begin.elapsed().as_secs(), 2, "both lack one");
    drop(held);
    // First only that of the user is lacking, then only that of the address.
    let (of_user, begin) = (ask("ada", "two").await.unwrap(), Instant::now());
    let waiting = tokio::spawn(ask("ada", "one"));
    sleep(Duration::from_secs(3)).await;
    let of_address = ask("bob", "one").await.unwrap();
    drop(of_user);
    assert_eq!(waiting.await.unwrap().unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(begin.elapsed().as_secs(), 3, "longer than the second waits");
    drop(of_address);
}

/// More than a queue calls at once.
#[tokio::test(start_paused = true)]
async fn those_who_wait_for_slots_hold_up_no_others_of_their_rate() {
    let layer = RateLimitLayer::new([
        exports(1).wait_at_most(Duration::from_secs(100)),
        Policy::new("rate", Quota::per_day(1_000)).by(global()),
    ]);
    let service = layer
        .layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::from("rows")))));
    let held = service.clone().oneshot(ada()).await.unwrap();
    let waiting: JoinSet<_> = (0..70).map(|_| service.clone().oneshot(ada())).collect();
    sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    let bob = Request::get("/").header("x-user", "bob").body(Body::empty()).unwrap();
    assert_eq!(service.oneshot(bob).await.unwrap().status(), StatusCode::OK);
    assert_eq!(begin.elapsed(), Duration::ZERO);
    drop((held, waiting));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_of_requests_heeds_what_rules_say_of_slots() {
    let rule = exports(1).wait_at_most(Duration::from_secs(5)).held_at_most(Duration::from_secs(3));
    let limiter = RequestLimiter::new(rule);
    let (begin, request) = (Instant::now(), ada());
    let permit = limiter.check(&(&request).into()).await.unwrap();
    let second = limiter.check(&(&request).into()).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::from_secs(3), "the first was held at most so long");
    assert!(permit.slot().is_lost() && !second.slot().is_lost());
}

#[tokio::test]
async fn a_slot_costs_one_whatever_the_work_is_in_other_units() {
    let limiter = Limiter::new([Policy::new("tokens", Quota::per_day(1_000)), Policy::in_flight("jobs", 1)]);
    let permit = limiter.check(&Key::from("ada"), 500).await.unwrap();
    assert_eq!(
        limiter.check(&Key::from("ada"), 1).await.unwrap_err().violated().collect::<Vec<_>>(),
        ["jobs"]
    );
    drop(permit);
    let mut permit = limiter.check(&Key::from("ada"), 1).await.unwrap();
    permit.charge("jobs").settle(0).await;
    assert!(!permit.slot().is_lost());
    assert!(limiter.check(&Key::from("ada"), 1).await.is_err(), "a charge of a slot corrects nothing");
}

/// The next request finds the failures of this one as they are in the end.
#[tokio::test]
async fn what_the_response_corrects_is_corrected_before_the_slot_is_free() {
    let store = MemoryStore::new();
    let layer = RateLimitLayer::new([
        exports(1),
        Policy::new("failures", Quota::per_day(1)).by(header("x-user")).count_if(|_| false),
    ]);
    let layer = layer.store(Later::deciding_last(store));
    let service =
        layer.layer(service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty()))));
    for n in 0..50 {
        let response = service.clone().oneshot(ada()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "request {n}");
    }
}
