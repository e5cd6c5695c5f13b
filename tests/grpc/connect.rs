//! What clients of the Connect protocol get: bytes as they are sent.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use tollgate::extract::{PeerIp, global, header};
use tollgate::store::{NeverFails, Store};
use tollgate::{Denial, Head, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, clock, store};
use tower::ServiceExt;

const VERSION: &str = "connect-protocol-version: 1";

/// `google.rpc.RetryInfo { retry_delay: 60 s }` and `google.rpc.QuotaFailure` of a policy `p`, in
/// base64 without padding.
const DETAILS: &str = concat!(
    r#""details":[{"type":"google.rpc.RetryInfo","value":"CgIIPA"},"#,
    r#"{"type":"google.rpc.QuotaFailure","value":"ChMKAXASDnF1b3RhIGV4Y2VlZGVk"}]"#
);

fn one(name: &str) -> RateLimitLayer {
    RateLimitLayer::new([Policy::new(name, Quota::per_minute(1)).by(global())]).store(store(&clock()))
}

fn app<S: Store<Error: NeverFails>>(layer: RateLimitLayer<S>) -> Router {
    Router::new().fallback(|| async { "hello" }).layer(layer)
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a text"))
    }

    /// The JSON of a stream's last envelope: flags, length, message.
    fn end_of_stream(&self) -> &[u8] {
        let (head, message) = self.body.split_at(5);
        let length = u32::try_from(message.len()).expect("not as long").to_be_bytes();
        assert_eq!(head, [&[0x02][..], &length].concat());
        message
    }
}

/// The answer to a request with these fields, each as `name: value`.
async fn send(app: &Router, method: &str, path: &str, fields: &[&str]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields.iter().filter_map(|field| field.split_once(": ")) {
        request = request.header(name, value);
    }
    let request = request.body(Body::empty()).expect("a valid request");
    let (parts, body) = app.clone().oneshot(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("a whole answer").to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

async fn post(app: &Router, fields: &[&str]) -> Answer {
    send(app, "POST", "/a.B/C", fields).await
}

/// The answer to a second request.
async fn second(layer: RateLimitLayer, fields: &[&str]) -> Answer {
    let app = app(layer);
    assert_eq!(post(&app, fields).await.body, "hello");
    post(&app, fields).await
}

#[tokio::test]
async fn a_unary_call_gets_an_error_in_json_by_its_http_status() {
    for codec in ["proto", "json"] {
        let content_type = format!("content-type: application/{codec}");
        let answer = second(one("p"), &[VERSION, &content_type]).await;
        assert_eq!((answer.status, answer.field("content-type")), (429, Some("application/json")));
        assert_eq!(answer.field("retry-after"), Some("60"));
        assert_eq!(answer.field("ratelimit"), Some("\"p\";r=0;t=60"));
        let error = format!(r#"{{"code":"resource_exhausted","message":"quota exceeded: p",{DETAILS}}}"#);
        assert_eq!(answer.body, error);
    }
}

#[tokio::test]
async fn a_stream_gets_one_envelope_of_its_content_type() {
    for codec in ["proto", "json", "proto; charset=utf-8"] {
        let content_type = format!("application/connect+{codec}");
        let answer = second(one("p"), &[&format!("content-type: {content_type}")]).await;
        assert_eq!((answer.status, answer.field("content-type")), (200, Some(&*content_type)));
        assert_eq!(answer.field("ratelimit"), Some("\"p\";r=0;t=60"));
        let error =
            format!(r#"{{"error":{{"code":"resource_exhausted","message":"quota exceeded: p",{DETAILS}}}}}"#);
        assert_eq!(answer.end_of_stream(), error.as_bytes());
    }
}

#[tokio::test]
async fn a_get_with_the_protocol_in_its_query_is_a_unary_call() {
    let app = app(one("p"));
    send(&app, "GET", "/", &[]).await;
    for (path, content_type) in [
        ("/a.B/C?connect=v1&encoding=json&message=%7B%7D", "application/json"),
        ("/a.B/C?message=&encoding=proto&connect=v1", "application/json"),
        ("/a.B/C?disconnect=v1", "application/problem+json"),
        ("/a.B/C?connect=v10", "application/problem+json"),
        ("/a.B/C", "application/problem+json"),
    ] {
        let answer = send(&app, "GET", path, &[]).await;
        assert_eq!((answer.status, answer.field("content-type")), (429, Some(content_type)), "{path}");
    }
}

#[tokio::test]
async fn a_version_of_the_protocol_in_a_header_counts_for_post_only() {
    let app = app(one("p"));
    send(&app, "GET", "/", &[]).await;
    for (method, content_type) in [
        ("POST", "application/json"),
        ("PUT", "application/problem+json"),
        ("GET", "application/problem+json"),
    ] {
        let answer = send(&app, method, "/a.B/C", &[VERSION]).await;
        assert_eq!((answer.status, answer.field("content-type")), (429, Some(content_type)), "{method}");
    }
}

/// Otherwise a caller of plain HTTP could choose that its refusals look like successes.
#[tokio::test]
async fn a_content_type_of_a_stream_counts_for_post_only() {
    let app = app(one("p"));
    send(&app, "GET", "/", &[]).await;
    let answer = send(&app, "GET", "/", &["content-type: application/connect+json"]).await;
    assert_eq!((answer.status, answer.field("content-type")), (429, Some("application/problem+json")));
}

#[tokio::test]
async fn each_reason_has_the_code_and_status_of_connect() {
    let never = Policy::new("p", Quota::per_minute(1)).by(global()).cost(|_| 2);
    let no_key = Policy::new("p", Quota::per_minute(1)).by(header("x-key"));
    let failing = Failing::new(store(&clock()), Connection::Fails(Fault::Unreachable));
    let closed = one("p").store(failing.fail_closed());
    let no_address = Policy::new("p", Quota::per_minute(1)).by(PeerIp::new());
    for (app, status, retry_after, error) in [
        (
            app(RateLimitLayer::new([never])),
            429,
            None,
            concat!(
                r#"{"code":"resource_exhausted","message":"the cost exceeds the whole quota: p","#,
                r#""details":[{"type":"google.rpc.QuotaFailure","#,
                r#""value":"CiUKAXASIHRoZSBjb3N0IGV4Y2VlZHMgdGhlIHdob2xlIHF1b3Rh"}]}"#
            ),
        ),
        (
            app(closed),
            503,
            Some("1"),
            concat!(
                r#"{"code":"unavailable","message":"the rate limit store is unavailable","#,
                r#""details":[{"type":"google.rpc.RetryInfo","value":"CgIIAQ"}]}"#
            ),
        ),
        (
            app(RateLimitLayer::new([no_key])),
            400,
            None,
            r#"{"code":"invalid_argument","message":"the request carries no key: p"}"#,
        ),
        (
            app(RateLimitLayer::new([no_address])),
            500,
            None,
            r#"{"code":"internal","message":"the server does not provide the peer's address: p"}"#,
        ),
    ] {
        let answer = post(&app, &[VERSION, "content-type: application/json"]).await;
        assert_eq!((answer.status, answer.field("retry-after")), (status, retry_after));
        assert_eq!(answer.body, error);
        let answer = post(&app, &["content-type: application/connect+proto"]).await;
        assert_eq!((answer.status, answer.field("retry-after")), (200, None));
        assert_eq!(answer.end_of_stream(), format!(r#"{{"error":{error}}}"#).as_bytes());
    }
}

#[tokio::test]
async fn a_policys_name_is_escaped_in_the_message() {
    let answer = second(one(r#"a "b" \"#), &[VERSION]).await;
    let body = String::from_utf8_lossy(&answer.body);
    assert!(body.contains(r#""message":"quota exceeded: a \"b\" \\","#), "{body}");
}

#[tokio::test]
async fn a_closure_that_answers_can_begin_with_the_error() {
    let layer = one("p").answer(|head: &Head<'_>, denial: &Denial| denial.response_to(head));
    let answer = second(layer, &["content-type: application/connect+proto"]).await;
    assert_eq!(answer.status, 200);
    assert!(answer.end_of_stream().starts_with(br#"{"error":{"code":"resource_exhausted","#));
}
