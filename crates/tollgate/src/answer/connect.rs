//! The answer to clients of the [Connect protocol](https://connectrpc.com/docs/protocol): an error
//! in JSON.

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};

use super::code::{code, message};
use super::details::{Detail, Message};
use super::response;
use crate::decision::Denial;
use crate::errors::escaped;
use crate::extract::Head;

/// Parsed here, and not by each denial.
const CONNECT_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("connect-protocol-version");

/// Whether a request without the content type of a stream is a unary call. A GET has its version in
/// the query.
pub(super) fn is_unary(head: &Head<'_>) -> bool {
    let has_version = |query: &str| query.split('&').any(|parameter| parameter == "connect=v1");
    match *head.method() {
        Method::GET => head.uri().query().is_some_and(has_version),
        Method::POST => head.headers().contains_key(CONNECT_PROTOCOL_VERSION),
        _ => false,
    }
}

/// The answer to a unary call.
pub(super) fn unary(denial: &Denial) -> Response<Bytes> {
    let content_type = HeaderValue::from_static("application/json");
    let mut response = response(code(denial.reason()).http_status, &content_type, error(denial).into(), 6);
    denial.add_retry_after(response.headers_mut());
    response
}

/// The answer to a stream: a single envelope, which ends it.
pub(super) fn stream(denial: &Denial, content_type: &HeaderValue) -> Response<Bytes> {
    const END_STREAM: u8 = 0x02;
    let json = format!("{{\"error\":{}}}", error(denial));
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let mut envelope = vec![END_STREAM];
    envelope.extend(length.to_be_bytes());
    envelope.extend(json.as_bytes());
    response(StatusCode::OK, content_type, envelope.into(), 6)
}

/// The error as JSON. Names and messages are printable ASCII.
fn error(denial: &Denial) -> String {
    let message = message(denial);
    let mut error =
        format!("{{\"code\":\"{}\",\"message\":\"{}\"", code(denial.reason()).name, escaped(&message));
    let mut before = ",\"details\":[";
    for detail in Detail::of(denial) {
        let mut message = Message::default();
        detail.write(denial, &mut message);
        let (name, value) = (detail.type_name(), message.base64());
        let _ = write!(error, "{before}{{\"type\":\"{name}\",\"value\":\"{value}\"}}");
        before = ",";
    }
    error.push_str(if before == "," { "]}" } else { "}" });
    error
}
