//! The answer to gRPC clients: HTTP 200 without a body, and the status in the headers. The
//! [specification](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md) calls that
//! "Trailers-Only". A client would read an HTTP 429 as `UNAVAILABLE`, which many clients retry at
//! once.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::code::{code, message, wait};
use super::details;
use crate::answer::fields::number;
use crate::decision::Denial;
use crate::plan::interned::printable;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// How long a client waits before it retries by itself; -1 if it must not. See
/// [gRFC A6](https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback).
pub(super) const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// The answer to a gRPC call with that content type.
pub(super) fn response(denial: &Denial, content_type: &HeaderValue) -> Response<Bytes> {
    let message = message(denial);
    let mut response = super::response(StatusCode::OK, content_type, Bytes::new(), 8);
    let headers = response.headers_mut();
    headers.insert(GRPC_STATUS, number(code(denial.reason()).number));
    add_pushback(denial, headers);
    if let Some(status) = details::status(denial, &message) {
        headers.insert(GRPC_STATUS_DETAILS, printable(status.base64().into()));
    }
    headers.insert(GRPC_MESSAGE, percent_encoded(&message));
    response
}

/// Adds `grpc-retry-pushback-ms`, unless it is there.
pub(super) fn add_pushback(denial: &Denial, headers: &mut HeaderMap) {
    headers.entry(GRPC_RETRY_PUSHBACK_MS).or_insert_with(|| pushback(denial));
}

/// Whole milliseconds, rounded up. It is -1 if waiting does not help, or if the wait exceeds the 32
/// signed bits of the field: a client that cannot read the number does not retry either.
pub(super) fn pushback(denial: &Denial) -> HeaderValue {
    let millis = wait(denial).and_then(|wait| i32::try_from(wait.as_nanos().div_ceil(1_000_000)).ok());
    number(millis.unwrap_or(-1))
}

/// The value of `grpc-message`. A message is printable ASCII. Only the percent sign is encoded, and
/// a space at the end, which a field cannot have.
fn percent_encoded(message: &str) -> HeaderValue {
    if let Some(before) = message.strip_suffix(' ') {
        printable(format!("{}%20", before.replace('%', "%25")).into())
    } else if message.contains('%') {
        printable(message.replace('%', "%25").into())
    } else {
        printable(Bytes::copy_from_slice(message.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Request;
    use http_body::Body;
    use http_body_util::Full;
    use std::time::Duration;
    use tollgate_core::{ManualClock, Policy, Quota, Timestamp};
    use tower::{ServiceExt, service_fn};
    use tower_layer::Layer;

    use super::*;
    use crate::extract::global;
    use crate::extract::grpc_type::GrpcType;
    use crate::layer::ResponseBody;
    use crate::{MemoryStore, PolicyExt, RateLimitLayer};

    /// What the second request of a minute is answered.
    async fn second() -> Response<ResponseBody<Full<Bytes>>> {
        second_under(Policy::new("5%", Quota::per_minute(1))).await
    }

    async fn second_under(policy: Policy) -> Response<ResponseBody<Full<Bytes>>> {
        let clock = ManualClock::new(Timestamp::from_micros(1_000_000));
        let store = MemoryStore::builder().clock(&clock).build();
        let layer = RateLimitLayer::new([policy.by(global())]).store(store);
        let inner = async |_: Request<String>| Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())));
        let service = layer.layer(service_fn(inner));
        let call = || {
            Request::post("/").header("content-type", "application/grpc+proto").body(String::new()).unwrap()
        };
        service.clone().oneshot(call()).await.unwrap();
        service.oneshot(call()).await.unwrap()
    }

    #[tokio::test]
    async fn the_status_of_a_denial_needs_no_feature() {
        let response = second().await;
        let headers = response.headers();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(headers["content-type"], "application/grpc+proto");
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers["grpc-message"], "quota exceeded: 5%25");
        assert_eq!(headers["grpc-retry-pushback-ms"], "60000");
        assert_eq!(headers["ratelimit"], "\"5%\";r=0;t=60");
        assert!(headers.contains_key("grpc-status-details-bin"));
        assert!(response.body().is_end_stream(), "no frame follows the headers");
    }

    /// Clients read 32 bits with a sign.
    #[tokio::test]
    async fn a_wait_that_the_field_cannot_say_is_no_wait() {
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        for (window, pushback) in [(days(24), "2073600000"), (days(25), "-1"), (days(366), "-1")] {
            let response = second_under(Policy::new("p", Quota::new(1, window))).await;
            assert_eq!(response.headers()["grpc-retry-pushback-ms"], pushback, "{window:?}");
        }
    }

    #[test]
    fn which_content_types_are_those_of_grpc() {
        for grpc in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc+json",
            "application/grpc;charset=utf-8",
            "application/grpc ; charset=utf-8",
            "Application/gRPC",
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpc-web;v=1",
            "application/grpc-web-text",
            "application/grpc-web-text+proto",
        ] {
            assert!(GrpcType::of(grpc.as_bytes()).is_some(), "{grpc}");
        }
        for other in [
            "",
            "application/grp",
            "application/grpcfoo",
            "application/grpc-",
            "application/grpc-text",
            "application/grpc-website",
            "application/grpc-web-texts",
            "application/grpc.v1",
            "application/json",
            "text/application/grpc",
            "application/grpc\u{e9}",
        ] {
            assert!(GrpcType::of(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn a_percent_sign_in_a_message_is_no_escape() {
        assert_eq!(percent_encoded("50%25"), "50%2525");
        assert_eq!(percent_encoded("\"a b\" ~"), "\"a b\" ~");
    }

    #[test]
    fn a_space_at_the_end_of_a_message_stays() {
        assert_eq!(percent_encoded("quota exceeded: a "), "quota exceeded: a%20");
        assert_eq!(percent_encoded("100% "), "100%25%20");
    }
}
