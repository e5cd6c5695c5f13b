//! Bodies of axum, of hyper and of `http_body_util`, unchanged.

use std::convert::Infallible;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, Uri, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;
use tollgate::extract::PeerIp;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{clock, field, store};
use tower::{Layer, ServiceBuilder, ServiceExt, service_fn};

use crate::stacks::{answer, http_client, serve, two_each};

async fn limits(address: std::net::SocketAddr) {
    for left in [1, 0] {
        let passed = answer(crate::stacks::get(address)).await;
        assert_eq!((passed.status().as_u16(), &passed.body()[..]), (200, &b"hello"[..]));
        assert_eq!(field(&passed, "ratelimit"), Some(&*format!("\"two\";r={left};t={}", 60 - 30 * left)));
    }
    let denied = answer(crate::stacks::get(address)).await;
    assert_eq!((denied.status().as_u16(), field(&denied, "retry-after")), (429, Some("30")));
    assert!(denied.body().ends_with(b"\"violated-policies\":[\"two\"]}"));
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[tokio::test]
async fn a_server_by_hyper_answers_with_full_bodies() {
    limits(serve(two_each().layer(service_fn(hello))).await).await;
}

#[tokio::test]
async fn a_server_by_hyper_around_axum_answers_with_axums_bodies() {
    let app = Router::new().route("/", get(|| async { "hello" }));
    limits(serve(two_each().layer(app)).await).await;
}

/// Over HTTP/2 an unexpected body is an error of the stream, and no server removes it.
#[tokio::test]
async fn a_refused_head_request_has_no_body_over_http_2() {
    let layer = two_each().answer(|_, denial| match denial.retry_after_seconds() {
        Some(30) => Response::builder().status(429).body(Full::from("later")).unwrap(),
        _ => denial.response(),
    });
    for (layer, length) in [(two_each(), None), (layer, Some("5"))] {
        let address = serve(layer.layer(service_fn(hello))).await;
        assert_eq!(crate::stacks::statuses(address, 2).await, [200, 200]);
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
        let refused = client
            .request(crate::stacks::get(address).method("HEAD").body(Empty::new()).unwrap())
            .await
            .unwrap();
        assert_eq!((refused.status().as_u16(), refused.version()), (429, Version::HTTP_2));
        let told = field(&refused, "content-length").map(str::to_owned);
        assert!(length.is_none_or(|length| told.as_deref() == Some(length)) && told.is_some(), "{told:?}");
        let body = timeout(crate::stacks::PATIENCE, refused.into_body().collect()).await.unwrap().unwrap();
        assert!(body.to_bytes().is_empty());
    }
}

/// A proxy passes bodies on: they are hyper's `Incoming` in both directions.
#[tokio::test]
async fn a_proxy_answers_with_bodies_of_the_incoming_type() {
    let origin = serve(service_fn(hello)).await;
    let proxied = ServiceBuilder::new().layer(two_each()).service_fn(move |request: Request<Incoming>| {
        let mut onward = Request::new(Empty::<Bytes>::new());
        *onward.uri_mut() = Uri::try_from(format!("http://{origin}{}", request.uri().path())).unwrap();
        http_client().oneshot(onward)
    });
    limits(serve(proxied).await).await;
}

/// The accept loop inserts the address.
#[tokio::test]
async fn a_server_by_hyper_limits_its_peers() {
    let rule = Policy::new("two", Quota::per_minute(2)).by(PeerIp::new());
    let layer = RateLimitLayer::new([rule]).store(store(&clock()));
    limits(serve(layer.layer(service_fn(hello))).await).await;
}
