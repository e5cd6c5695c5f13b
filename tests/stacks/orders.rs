//! The layer at every place among others.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use tollgate::Head;
use tollgate_tests::field;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::trace::TraceLayer;

use crate::stacks::{PATIENCE, answer, get, serve, statuses, two_each};

type Boxed = BoxCloneService<Request<Incoming>, Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// A layer, with a name for failures.
type Named = (&'static str, Box<dyn Fn(Boxed) -> Boxed>);

/// A boxed service, so that the order of layers can be chosen at run time.
trait IntoBoxed {
    fn into_boxed(self) -> Boxed;
}

impl<S, B> IntoBoxed for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send + 'static, Error: Into<BoxError>>,
    S: Clone + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn into_boxed(self) -> Boxed {
        let response = |response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync());
        self.map_err(Into::into).map_response(response).boxed_clone()
    }
}

fn named<L>(name: &'static str, layer: L) -> Named
where
    L: Layer<Boxed, Service: IntoBoxed> + 'static,
{
    (name, Box::new(move |inner| layer.layer(inner).into_boxed()))
}

fn others() -> Vec<Named> {
    vec![
        named("timeout", ServiceBuilder::new().timeout(PATIENCE).into_inner()),
        named("buffer", ServiceBuilder::new().buffer(8).into_inner()),
        named("load shed", ServiceBuilder::new().load_shed().into_inner()),
        named("concurrency limit", ServiceBuilder::new().concurrency_limit(8).into_inner()),
        named("compression", CompressionLayer::new()),
        named("trace", TraceLayer::new_for_http()),
    ]
}

/// Every rotation of the other layers, forwards and backwards, with the limit at every place.
#[tokio::test]
async fn the_limit_holds_at_every_place_in_the_stack() {
    let count = others().len();
    for (backwards, rotation, place) in [false, true]
        .into_iter()
        .flat_map(|b| (0..count).flat_map(move |r| (0..=count).map(move |p| (b, r, p))))
    {
        let mut layers = others();
        layers.rotate_left(rotation);
        if backwards {
            layers.reverse();
        }
        layers.insert(place, named("rate limit", two_each()));
        let order = layers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" in ");

        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let hello = service_fn(move |_: Request<Incoming>| {
            counted.fetch_add(1, Relaxed);
            async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) }
        });
        let mut stack = hello.into_boxed();
        for (_, layer) in &layers {
            stack = layer(stack);
        }
        let address = serve(stack).await;
        assert_eq!(statuses(address, 3).await, [200, 200, 429], "{order}");
        let denied = answer(get(address)).await;
        assert_eq!(field(&denied, "ratelimit"), Some("\"two\";r=0;t=30"), "{order}");
        assert!(denied.body().starts_with(b"{\"type\":"), "{order}");
        assert_eq!(calls.load(Relaxed), 2, "{order}");
    }
}

/// Outside a queue a timeout includes the wait. Inside it does not.
#[tokio::test]
async fn an_outer_timeout_includes_the_wait_in_a_queue() {
    use http::StatusCode;
    use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
    use tower_http::timeout::TimeoutLayer;

    let queue = |quota| {
        let max_wait = Duration::from_secs(36_000);
        let policy = Policy::new("queue", quota).with_algorithm(Algorithm::LeakyBucket { max_wait });
        RateLimitLayer::new([policy.by(tollgate_tests::user())])
    };
    let hello = || {
        service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    };
    let timeout = || TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_millis(20));

    let outside = ServiceBuilder::new().layer(timeout()).layer(queue(Quota::per_hour(1))).service(hello());
    assert_eq!(statuses(serve(outside).await, 3).await, [200, 504, 504]);
    let inside = ServiceBuilder::new().layer(queue(Quota::per_second(20))).layer(timeout()).service(hello());
    assert_eq!(statuses(serve(inside).await, 3).await, [200, 200, 200]);
}

/// The layer is ready when the inner service is. If that sheds load, a denial need not wait until
/// it has capacity.
#[tokio::test]
async fn an_overloaded_service_denies_at_once_and_sheds_the_rest() {
    use axum::error_handling::HandleErrorLayer;
    use axum::{Router, routing::get};
    use http::StatusCode;
    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    let end = Arc::new(Semaphore::new(0));
    let ended = Arc::clone(&end);
    let works = async move || {
        ended.acquire().await.expect("it is never closed").forget();
        "done"
    };
    let limit = two_each();
    let limiter = limit.limiter();
    let layers = ServiceBuilder::new()
        .layer(limit)
        .layer(HandleErrorLayer::new(async |_: BoxError| StatusCode::SERVICE_UNAVAILABLE))
        .load_shed()
        .buffer(4)
        .concurrency_limit(1);
    // Without `with_state`, which `into_make_service` calls as well, axum builds the stack again
    // for each request.
    let address = serve(Router::new().route("/", get(works)).layer(layers).with_state(())).await;
    let ask = move |user: usize| async move {
        let request = Request::get(format!("http://{address}/")).header("x-user", user);
        answer(request).await.status().as_u16()
    };
    // Of thirty, one is at work and some wait. All others are shed after they were charged.
    let mut callers: JoinSet<u16> = (0..15).flat_map(|user| [ask(user), ask(user)]).collect();
    for user in 0..15 {
        let asks = Request::get("/").header("x-user", user).body(()).unwrap();
        while limiter.look(&Head::from(&asks)).await.unwrap().get("two").unwrap().1.remaining() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let mut denied: JoinSet<u16> = (0..15).map(ask).collect();
    while let Some(status) = denied.join_next().await {
        assert_eq!(status.unwrap(), 429, "nobody at work has ended, and nobody is waited for");
    }
    end.add_permits(30);
    let (mut done, mut shed) = (0, 0);
    while let Some(status) = callers.join_next().await {
        match status.unwrap() {
            200 => done += 1,
            503 => shed += 1,
            other => panic!("{other}"),
        }
    }
    assert!((5..=10).contains(&done) && done + shed == 30, "{done} and {shed}");
}
