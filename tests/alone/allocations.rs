//! Heap allocations per request, counted at the allocator. The same loop without the layer is
//! subtracted, so the cost of building a request does not count.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::sync::Once;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::exempt::{cors_preflight, from_networks};
use tollgate::extract::{PeerAddr, PeerIp, global};
use tollgate::store::{Check, NeverFails, Reply, Store, Times};
use tollgate::{
    Algorithm, CircuitBreaker, Fields, Head, Key, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer,
    Rule, StoreExt,
};
use tollgate_tests::{EVERY_ALGORITHM, Later, a_minute, clock, store, user};
use tower::{Layer, Service, service_fn};

type Body = Full<Bytes>;

fn hello(_: Request<Body>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::default())))
}

fn request() -> Request<Body> {
    let mut request = Request::new(Body::default());
    request.headers_mut().insert("x-user", http::HeaderValue::from_static("ada"));
    request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4_000).into()));
    request
}

/// Sends `requests` to a service that answers at once. Returns the allocations of all, and the
/// status of the last.
fn allocations<S, B>(service: &mut S, requests: u64) -> (u64, StatusCode)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    allocations_of(request, service, requests)
}

fn allocations_of<S, B>(
    request: impl Fn() -> Request<Body>,
    service: &mut S,
    requests: u64,
) -> (u64, StatusCode)
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    static FIRST: Once = Once::new();
    FIRST.call_once(pass_the_first);
    let mut last = StatusCode::OK;
    let mut cx = Context::from_waker(Waker::noop());
    let heap = measure(|| {
        for _ in 0..requests {
            assert!(matches!(service.poll_ready(&mut cx), Poll::Ready(Ok(()))));
            let Poll::Ready(Ok(response)) = pin!(service.call(request())).poll(&mut cx) else {
                panic!("no answer on the spot")
            };
            last = response.status();
        }
    });
    (heap.count_total, last)
}

/// The first requests of a process are looked at for mistakes of the setup, which allocates.
fn pass_the_first() {
    let mut service = RateLimitLayer::new(wide("first").by(user())).layer(service_fn(hello));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..2_000 {
        assert!(pin!(service.call(request())).poll(&mut cx).is_ready());
    }
}

const REQUESTS: u64 = 1_000;

/// Allocations per request, without those of the service alone. All requests must have this status.
fn a_request<S>(layer: &RateLimitLayer<S>, status: StatusCode) -> u64
where
    S: Store<Error: NeverFails>,
{
    each(request, layer, status)
}

fn each<S>(request: impl Fn() -> Request<Body>, layer: &RateLimitLayer<S>, status: StatusCode) -> u64
where
    S: Store<Error: NeverFails>,
{
    let mut limited = layer.layer(service_fn(hello));
    // The first request adds its keys. If several of them meet in a shard, the second makes it
    // grow.
    allocations_of(&request, &mut limited, 2);
    let (limited, last) = allocations_of(&request, &mut limited, REQUESTS);
    assert_eq!(last, status);
    let (plain, _) = allocations_of(&request, &mut service_fn(hello), REQUESTS);
    let more = limited - plain;
    assert_eq!(more % REQUESTS, 0, "{more} in {REQUESTS} requests: some take more than others");
    more / REQUESTS
}

fn layer(rules: impl IntoIterator<Item = Rule>) -> RateLimitLayer {
    RateLimitLayer::new(rules).store(MemoryStore::builder().clock(&clock()).build())
}

fn wide(name: &str) -> Policy {
    Policy::new(name, Quota::per_minute(1_000_000))
}

fn four_rules() -> [Rule; 4] {
    [
        wide("by address").by(PeerIp::new()),
        wide("by user").by(user()),
        wide("of all").by(global()),
        wide("by user and address").by((user(), PeerIp::new())),
    ]
}

/// What is asked of several rules, and what each of them says. Those of one rule need none.
const LISTS: u64 = 2;

#[test]
fn a_request_allocates_nothing_for_one_rule_and_two_lists_for_several() {
    for (rules, lists) in [(1, 0), (2, LISTS), (3, LISTS), (4, LISTS)] {
        let layer = layer(four_rules().into_iter().take(rules)).fields(Fields::None);
        assert_eq!(a_request(&layer, StatusCode::OK), lists, "with {rules} rules");
    }
}

#[test]
fn an_allowed_request_allocates_nothing_under_any_algorithm() {
    for algorithm in EVERY_ALGORITHM {
        let limit = if algorithm == Algorithm::SLIDING_LOG { 100_000 } else { 1_000_000 };
        let layer = layer([a_minute("p", algorithm, limit).by(user())]).fields(Fields::None);
        // Requests of one microsecond share an entry of a log, and the clock stands still.
        assert_eq!(a_request(&layer, StatusCode::OK), 0, "{algorithm:?}");
    }
}

#[test]
fn tiers_and_exemptions_allocate_nothing_more() {
    let tiers = [("pro", Quota::per_minute(2_000_000)), ("enterprise", Quota::per_minute(3_000_000))];
    let elsewhere = || from_networks(PeerIp::new(), ["10.0.0.0/8", "2001:db8::/32"]);
    let [address, user, all, both] =
        four_rules().map(|rule| rule.exempt(elsewhere()).exempt(cors_preflight()));
    let user = user.tiers(tiers, |head: &Head<'_>, _: &Key| (head.uri().path() == "/").then_some("pro"));
    let four = layer([address, user, all, both]).fields(Fields::None);
    assert_eq!(a_request(&four, StatusCode::OK), LISTS);
    let listed = from_networks(PeerIp::new(), ["192.0.2.1"]);
    let nobody_is_limited = layer([Policy::new("p", Quota::per_day(1)).by(global()).exempt(listed)]);
    assert_eq!(a_request(&nobody_is_limited, StatusCode::OK), 0);
}

#[test]
fn quotas_of_requests_allocate_nothing_more() {
    let [address, user, all, both] = four_rules();
    let own = wide("p").quota();
    let quota = move |_: &Head<'_>, _: &Key| Some(own.burst(900_000));
    let four = layer([address.quota(quota), user.quota(quota), all, both]);
    assert_eq!(a_request(&four.clone().fields(Fields::None), StatusCode::OK), LISTS);
    let [address, user, all, both] = four_rules();
    let tier = |rule: Rule| rule.tiers([("a", own.burst(900_000))], |_, _| Some("a"));
    let tiers = layer([tier(address), tier(user), all, both]);
    assert_eq!(a_request(&four, StatusCode::OK), a_request(&tiers, StatusCode::OK));
}

const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn failure_policies_around_an_immediate_store_allocate_nothing_more() {
    let layer = layer(four_rules()).fields(Fields::None);
    let store = || store(&clock()).timeout(TIMEOUT);
    assert_eq!(a_request(&layer.clone().store(store().fail_open()), StatusCode::OK), LISTS);
    assert_eq!(a_request(&layer.store(store().fail_closed()), StatusCode::OK), LISTS);
}

/// No future is boxed again. A store that does not end waits by itself needs a timer for each.
#[test]
fn failure_policies_around_an_awaited_store_allocate_a_timer_at_most() {
    fn awaited(store: &impl Store) -> u64 {
        let (policy, key) = (wide("p"), Key::global());
        let mut cx = Context::from_waker(Waker::noop());
        let heap = measure(|| {
            for _ in 0..REQUESTS {
                let reply = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE);
                let Reply::Later(future) = reply else { panic!("an answer on the spot") };
                let mut future = pin!(future);
                while future.as_mut().poll(&mut cx).is_pending() {}
            }
        });
        heap.count_total
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _guard = runtime.enter();
    let later = Later::deciding_last(store(&clock()));
    awaited(&later);
    let bare = awaited(&later);
    assert_eq!(awaited(&later.clone().circuit_breaker(CircuitBreaker::default()).fail_open()), bare);
    assert_eq!(awaited(&later.clone().timeout(TIMEOUT).fail_open()), bare + REQUESTS);
    assert_eq!(awaited(&later.timeout(TIMEOUT).fail_closed()), bare + REQUESTS);
}

#[test]
fn a_disabled_layer_allocates_nothing() {
    let layer = layer(four_rules());
    layer.set_enabled(false);
    assert_eq!(a_request(&layer, StatusCode::OK), 0);
}

/// One for the value of `RateLimit`, and two for the response's header map, which was empty. All
/// responses share `RateLimit-Policy`, and the items of several rules are one value.
#[test]
fn the_draft_fields_take_three_allocations_for_any_number_of_rules() {
    for (rules, lists) in [(1, 0), (2, LISTS), (3, LISTS), (4, LISTS)] {
        let layer = layer(four_rules().into_iter().take(rules));
        let count = a_request(&layer, StatusCode::OK) - lists;
        assert!(count <= 3, "{count} with {rules} rules");
    }
}

/// Two for the header map, and one for each of the three numbers.
#[test]
fn the_x_fields_take_five_allocations() {
    for fields in [Fields::XDelta, Fields::XEpoch] {
        let count = a_request(&layer(four_rules()).fields(fields), StatusCode::OK) - LISTS;
        assert!(count <= 5, "{count} for {fields:?}");
    }
}

fn used_up(fields: Fields) -> RateLimitLayer {
    layer([Policy::new("p", Quota::per_minute(1)).by(user())]).fields(fields)
}

/// Attacks get denials, so they must be cheap. The parts: the header map (2), the number of
/// `Retry-After`, the body's box, and the [`Denial`](tollgate::Denial) in the extensions.
///
/// That is its report and its box, in the map of the request. Fields add the value of `RateLimit`.
/// All denials of a policy share the document.
#[test]
fn a_denial_allocates_only_what_its_answer_needs() {
    let bare = a_request(&used_up(Fields::None), StatusCode::TOO_MANY_REQUESTS);
    assert!(bare <= 6, "{bare} without fields");
    let ietf = a_request(&used_up(Fields::Ietf), StatusCode::TOO_MANY_REQUESTS);
    assert!(ietf <= 7, "{ietf} with the fields of the draft");
}

fn call() -> Request<Body> {
    let mut request = request();
    request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    *request.method_mut() = http::Method::POST;
    request
}

/// Those of a denial, the message, the pushback, and the details as bytes and in base64.
#[test]
fn a_grpc_denial_allocates_only_what_its_answer_needs() {
    for (fields, most) in [(Fields::None, 12), (Fields::Ietf, 13)] {
        let layer = used_up(fields);
        a_request(&layer, StatusCode::TOO_MANY_REQUESTS);
        let count = each(call, &layer, StatusCode::OK);
        assert!(count <= most, "{count} with {fields:?}");
    }
}

#[test]
fn a_passing_grpc_call_without_fields_allocates_nothing_more() {
    assert_eq!(each(call, &layer(four_rules()).fields(Fields::None), StatusCode::OK), LISTS);
}

#[test]
fn the_thousandth_denial_allocates_as_much_as_the_second() {
    for algorithm in EVERY_ALGORITHM {
        let mut service = layer([a_minute("p", algorithm, 1).by(user())]).layer(service_fn(hello));
        allocations(&mut service, 2);
        let (second, status) = allocations(&mut service, 1);
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        allocations(&mut service, 1_000);
        assert_eq!(allocations(&mut service, 1), (second, status), "{algorithm:?}");
    }
}

/// If a log recorded denials, it would grow with each attempt.
#[test]
fn denied_requests_do_not_lengthen_a_log() {
    let time = clock();
    let policy = Policy::new("p", Quota::per_day(3)).with_algorithm(Algorithm::SLIDING_LOG);
    let store = MemoryStore::builder().clock(&time).build();
    let mut service = RateLimitLayer::new([policy.by(user())]).store(store).layer(service_fn(hello));
    allocations(&mut service, 4);
    let heap = measure(|| {
        for _ in 0..10_000 {
            time.advance(Duration::from_millis(1));
            assert_eq!(allocations(&mut service, 1).1, StatusCode::TOO_MANY_REQUESTS);
        }
    });
    assert_eq!(heap.bytes_current, 0, "bytes that stay");
}

#[test]
fn a_request_refused_for_a_missing_key_leaves_no_state() {
    let layer = layer([wide("p").by(tollgate::extract::header("x-absent"))]);
    let mut service = layer.layer(service_fn(hello));
    allocations(&mut service, 1);
    let heap = measure(|| {
        let (count, status) = allocations(&mut service, REQUESTS);
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(count <= 15 * REQUESTS, "{count} in {REQUESTS} requests");
    });
    assert_eq!(heap.bytes_current, 0, "bytes that stay");
}
