//! Layers of tower-http, outside and inside the limit.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tollgate::exempt::cors_preflight;
use tollgate::{Denial, RateLimitLayer};
use tollgate_tests::{Log, clock, field, per_user, store};
use tower::{ServiceBuilder, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::trace::{DefaultOnResponse, TraceLayer};
use tracing::Level;

use crate::stacks::{answer, get, serve, statuses, two_each};

/// Long enough to be compressed.
async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello ".repeat(100))))
}

const ORIGIN: (&str, &str) = ("origin", "https://app.example");

fn cors() -> CorsLayer {
    CorsLayer::new().allow_origin(Any)
}

fn preflight(address: std::net::SocketAddr) -> http::request::Builder {
    Request::builder()
        .method(Method::OPTIONS)
        .uri(format!("http://{address}/"))
        .header(ORIGIN.0, ORIGIN.1)
        .header("access-control-request-method", "GET")
}

#[tokio::test]
async fn only_a_denial_inside_cors_can_be_read() {
    let limit_inside = ServiceBuilder::new().layer(cors()).layer(two_each()).service(service_fn(hello));
    let limit_outside = ServiceBuilder::new().layer(two_each()).layer(cors()).service(service_fn(hello));
    for (address, readable) in [(serve(limit_inside).await, true), (serve(limit_outside).await, false)] {
        let mut told = Vec::new();
        for _ in 0..3 {
            let answer = answer(get(address).header(ORIGIN.0, ORIGIN.1)).await;
            told.push((
                answer.status().as_u16(),
                answer.headers().contains_key("access-control-allow-origin"),
            ));
        }
        assert_eq!(told, [(200, true), (200, true), (429, readable)]);
    }
}

#[tokio::test]
async fn only_a_limit_outside_cors_without_an_exemption_refuses_preflights() {
    let exempting = RateLimitLayer::new([per_user("two", 2).exempt(cors_preflight())]).store(store(&clock()));
    let limit_inside = ServiceBuilder::new().layer(cors()).layer(two_each()).service(service_fn(hello));
    let limit_outside = ServiceBuilder::new().layer(two_each()).layer(cors()).service(service_fn(hello));
    let exempt_outside = ServiceBuilder::new().layer(exempting).layer(cors()).service(service_fn(hello));
    for (address, status) in [
        (serve(limit_inside).await, 200),
        (serve(limit_outside).await, 400),
        (serve(exempt_outside).await, 200),
    ] {
        for _ in 0..5 {
            // It carries no key.
            assert_eq!(answer(preflight(address)).await.status(), status);
        }
        assert_eq!(statuses(address, 3).await, [200, 200, 429], "and it costs nothing");
    }
}

#[tokio::test]
async fn an_outer_compression_layer_compresses_denials() {
    let gzip = CompressionLayer::new;
    let limit_inside = ServiceBuilder::new().layer(gzip()).layer(two_each()).service(service_fn(hello));
    let limit_outside = ServiceBuilder::new().layer(two_each()).layer(gzip()).service(service_fn(hello));
    for (address, denials) in [(serve(limit_inside).await, true), (serve(limit_outside).await, false)] {
        let mut told = Vec::new();
        for _ in 0..3 {
            let answer = answer(get(address).header("accept-encoding", "gzip")).await;
            let compressed = field(&answer, "content-encoding") == Some("gzip");
            assert_eq!(answer.body().starts_with(&[0x1f, 0x8b]), compressed, "as the field says");
            told.push((answer.status().as_u16(), compressed));
        }
        assert_eq!(told, [(200, true), (200, true), (429, denials)]);
    }
}

#[tokio::test]
async fn an_outer_trace_layer_traces_denials() {
    let (log, _guard) = Log::of_thread();
    let trace = || TraceLayer::new_for_http().on_response(DefaultOnResponse::new().level(Level::INFO));
    let limit_inside = ServiceBuilder::new().layer(trace()).layer(two_each()).service(service_fn(hello));
    let limit_outside = ServiceBuilder::new().layer(two_each()).layer(trace()).service(service_fn(hello));
    let mut before = 0;
    for (address, denials) in [(serve(limit_inside).await, 1), (serve(limit_outside).await, 0)] {
        assert_eq!(statuses(address, 3).await, [200, 200, 429]);
        let lines = log.lines();
        let traced = |status: &str| lines[before..].iter().filter(|line| line.contains(status)).count();
        assert_eq!((traced("status=200"), traced("status=429")), (2, denials), "{lines:?}");
        before = lines.len();
    }
}

/// An outer layer gets the denial itself, and need not parse the response.
#[tokio::test]
async fn an_outer_layer_can_rewrite_refusals_by_their_denial() {
    let rewritten = ServiceBuilder::new()
        .map_response(|response: Response<tollgate::layer::ResponseBody<Full<Bytes>>>| {
            let denial = response.extensions().get::<Denial>();
            let code = denial.map(|denial| {
                let violated: Vec<_> = denial.violated().collect();
                format!("{:?} by {}", denial.reason(), violated.join(" and "))
            });
            let mut response = response;
            if let Some(code) = code {
                response.headers_mut().insert("x-error", code.parse().unwrap());
            }
            response
        })
        .layer(two_each())
        .service(service_fn(hello));
    let address = serve(rewritten).await;
    for code in [None, None, Some("QuotaExceeded by two")] {
        assert_eq!(field(&answer(get(address)).await, "x-error"), code);
    }
    let nobody = Request::get(format!("http://{address}/"));
    assert_eq!(field(&answer(nobody).await, "x-error"), Some("NoKey by two"));
}
