//! What a client sees: rate limit fields, and the answer to a refused request as a problem document
//! or as an error of gRPC or Connect.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | which of them a request gets |
//! | `grpc.rs`, `connect.rs` | the formats of these two |
//! | `code.rs`, `details.rs` | what both say: code, text, wait; messages of `google.rpc` |
//! | `body.rs` | the body of a response: that of the service or an answer |
//! | `drain.rs` | the rest of a refused request's body |
//! | `fields/` | the rate limit fields of all responses |
//! | `options.rs` | how a layer answers |
//! | `own.rs` | which answers a user may return instead |
//! | `tonic.rs` | a denial as a `tonic::Status`, with the feature `tonic` |

pub(crate) mod body;
mod code;
mod connect;
mod details;
pub(crate) mod drain;
pub(crate) mod ends;
pub(crate) mod fields;
mod grpc;
pub(crate) mod options;
mod own;
#[cfg(feature = "tonic")]
mod tonic;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;

use crate::answer::fields::number;
use crate::decision::Denial;
use crate::errors::{Reason, problem};
use crate::extract::Head;
use crate::extract::grpc_type::{GrpcType, after};

pub use body::ResponseBody;
pub(crate) use own::IntoAnswer;

/// Which protocol a call is of, with the content type that its answer repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol<'a> {
    /// gRPC or gRPC-Web.
    Grpc(&'a HeaderValue),
    ConnectUnary,
    ConnectStream(&'a HeaderValue),
}

impl<'a> Protocol<'a> {
    /// The protocol of a request; `None` of plain HTTP. Content types count for the method POST
    /// only: otherwise refusals could look like successes, in logs and to caches.
    pub(crate) fn of(head: &Head<'a>) -> Option<Protocol<'a>> {
        let is_post = head.method() == Method::POST;
        match is_post.then(|| head.headers().get(header::CONTENT_TYPE)).flatten() {
            Some(value) if GrpcType::of(value.as_bytes()).is_some() => Some(Protocol::Grpc(value)),
            Some(value) if after(value.as_bytes(), b"application/connect+").is_some() => {
                Some(Protocol::ConnectStream(value))
            }
            _ => connect::is_unary(head).then_some(Protocol::ConnectUnary),
        }
    }

    /// The default answer to a refused call.
    fn response(self, denial: &Denial) -> Response<Bytes> {
        match self {
            Protocol::Grpc(content_type) => grpc::response(denial, content_type),
            Protocol::ConnectUnary => connect::unary(denial),
            Protocol::ConnectStream(content_type) => connect::stream(denial, content_type),
        }
    }
}

/// A response with room for so many headers, including those of the layer, so that its map grows
/// once.
fn response<B>(status: StatusCode, content_type: &HeaderValue, body: B, headers: usize) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(headers);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type.clone());
    response
}

impl Denial {
    /// Returns the default answer outside of gRPC: a problem document (RFC 9457) of the types that
    /// the RateLimit draft registers, and `Retry-After` if waiting helps.
    pub fn response(&self) -> Response<Full<Bytes>> {
        self.response_of(Full::new)
    }

    fn response_of<B>(&self, body: impl FnOnce(Bytes) -> B) -> Response<B> {
        let content_type = HeaderValue::from_static("application/problem+json");
        let mut response = response(self.status(), &content_type, body(self.problem()), 6);
        self.add_retry_after(response.headers_mut());
        response
    }

    /// Returns the default answer to this request: [`Denial::response`], or the error of gRPC or
    /// Connect, whose clients cannot read that.
    ///
    /// A gRPC call is a `POST` of the content type `application/grpc`, `application/grpc-web` or
    /// `application/grpc-web-text`. Its answer has the HTTP status 200, no body, and these headers:
    ///
    /// | header | is |
    /// |---|---|
    /// | `grpc-status` | 8 (`RESOURCE_EXHAUSTED`), 14 (`UNAVAILABLE`), or that of the [reason](crate::Reason) |
    /// | `grpc-message` | why, and which policies refused |
    /// | `grpc-retry-pushback-ms` | [`Denial::retry_after`] in whole milliseconds, rounded up; 1000 if the store is unavailable; -1 if waiting does not help or takes longer than 2^31 ms (24 days) |
    /// | `grpc-status-details-bin` | `RetryInfo` if waiting helps, and a `QuotaFailure` with a violation for each policy that refused |
    ///
    /// Many clients accept 8 kB of headers in all. If the policies that refused need more than 1 kB
    /// of a message, it names those with the longest wait, and says how many more there are.
    ///
    /// A call of the [Connect protocol](https://connectrpc.com/docs/protocol) is a `POST` with the
    /// header `Connect-Protocol-Version` or of a content type `application/connect+…`, or a `GET`
    /// with `connect=v1` in its query. Its answer is an error in JSON: `code`, `message`,
    /// and `details` with the same two messages.
    ///
    /// | call | HTTP status | body |
    /// |---|---|---|
    /// | unary | 429 (`resource_exhausted`), 503 (`unavailable`), or that of the [reason](crate::Reason), with `Retry-After` if waiting helps | the error, as `application/json` |
    /// | stream, by its content type | 200 | one envelope that ends the stream and holds the error |
    ///
    /// [`RateLimitLayer::answer`](crate::RateLimitLayer::answer) has an example.
    pub fn response_to(&self, head: &Head<'_>) -> Response<Full<Bytes>> {
        self.response_by(Protocol::of(head), Full::new)
    }

    /// The default answer to a request of that protocol, with its body converted. In place, because
    /// a response is large.
    pub(crate) fn response_by<B>(
        &self,
        protocol: Option<Protocol<'_>>,
        body: impl FnOnce(Bytes) -> B,
    ) -> Response<B> {
        match protocol {
            Some(protocol) => protocol.response(self).map(body),
            None => self.response_of(body),
        }
    }

    /// Adds how long to wait to an answer, unless the answer says it.
    pub(crate) fn add_wait(&self, head: &Head<'_>, answer: &mut HeaderMap) {
        if let Some(Protocol::Grpc(_)) = Protocol::of(head) {
            grpc::add_pushback(self, answer);
        } else if !answer.contains_key(header::RETRY_AFTER) {
            self.add_retry_after(answer);
        }
    }

    /// Adds `Retry-After` if waiting helps.
    pub(crate) fn add_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, number(seconds));
        }
    }

    fn problem(&self) -> Bytes {
        if self.reason() == Reason::QuotaExceeded {
            let mut violated = self.violated_at();
            // Most denials are by one policy, so their text is made in advance.
            if let (Some(at), None) = (violated.next(), violated.next())
                && let Some(problem) = self.report().quota_exceeded(at)
            {
                return problem.clone();
            }
        }
        Bytes::from(problem(self.reason(), self.violated()))
    }
}

/// Feature `axum`: [`Denial::response`], with the denial in its extensions. A handler that asks a
/// [`Limiter`] refuses with `?`.
///
/// ```
/// use axum::extract::State;
/// use tollgate::{Denial, Key, Limiter};
///
/// async fn send(State(mails): State<Limiter>) -> Result<&'static str, Denial> {
///     let _permit = mails.check(&Key::from("ada"), 1).await?;
///     Ok("sent\n")
/// }
/// # let _: axum::Router<Limiter> = axum::Router::new().route("/", axum::routing::post(send));
/// ```
///
/// [`Limiter`]: crate::Limiter
#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Denial {
    fn into_response(self) -> axum::response::Response {
        let mut response = self.response().map(axum::body::Body::new);
        response.extensions_mut().insert(self);
        response
    }
}
