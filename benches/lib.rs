//! Shared by the benchmarks: requests, services, a loop that drives them, and the cost of servers.

#![expect(clippy::float_arithmetic, reason = "it measures")]

mod server_cost;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use tower::Service;

pub use server_cost::ServerCost;

/// As many callers as fit into the caches.
pub const HOT: u32 = 1_000;
/// More callers than fit into the caches.
pub const COLD: u32 = 1_000_000;

/// A request of the `n`th caller, as axum's server passes it to a layer.
pub fn request(n: u32) -> Request<Body> {
    let [b, c, d, e] = n.to_be_bytes();
    let peer = SocketAddr::from(([10 + b, c, d, e], 4_711));
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// A service that is always ready and answers immediately.
pub fn ready_service()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + Sync
{
    tower::service_fn(|_: Request<Body>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::empty())))
    })
}

/// Sends a request through a service that answers immediately.
///
/// # Panics
/// If the service is not ready or its answer is pending.
pub fn send<S, B>(service: &mut S, request: Request<Body>) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready(), "the service is not ready");
    let mut response = std::pin::pin!(service.call(request));
    match response.as_mut().poll(&mut cx) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("the service does not answer immediately"),
    }
}

/// Callers in an order that caches cannot predict, the same in each run: a full-period linear
/// congruential generator.
pub fn callers(count: u32) -> impl Iterator<Item = u32> {
    let mut state = 12_345_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((state >> 33) % u64::from(count)).unwrap_or(0)
    })
}
