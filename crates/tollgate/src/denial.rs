//! Why a request does not pass, and the answer that says so.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tollgate_core::{Policy, Status, Wait};

use crate::fields::number;
use crate::grpc::{self, Protocol};
use crate::problem::{Reason, problem, seconds_up};
use crate::report::Report;

/// Why a request was refused, which policies refused it, and when it would pass.
///
/// Every refusal of a layer carries its `Denial` in the response's extensions, for outer layers to see.
#[derive(Clone)]
pub struct Denial {
    reason: Reason,
    report: Report,
}

impl Denial {
    pub(crate) fn new(reason: Reason, report: Report) -> Denial {
        Denial { reason, report }
    }

    /// The denial of a set that was not granted.
    pub(crate) fn of(report: Report) -> Denial {
        let reason = match report.verdict().wait() {
            Wait::Never => Reason::NeverPossible,
            Wait::For(_) => Reason::QuotaExceeded,
            Wait::None => Reason::Unavailable,
        };
        Denial { reason, report }
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// How all rules that applied stand, those that had room included.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The names of the policies that refused.
    pub fn violated(&self) -> impl Iterator<Item = &str> {
        self.violated_at().filter_map(|at| self.report.policies().nth(at)).map(Policy::name)
    }

    /// The places in the report of the policies that refused.
    fn violated_at(&self) -> impl Iterator<Item = usize> {
        let refused = |status: &Status| match self.reason {
            Reason::NeverPossible => status.wait() == Wait::Never,
            _ => status.wait() != Wait::None,
        };
        let by_status = self.report.statuses().iter().enumerate().filter(move |(_, status)| refused(status));
        // Without a store's answer, the report names the rule that found no key.
        let no_key = matches!(self.reason, Reason::NoKey | Reason::NoPeerAddress).then_some(0);
        by_status.map(|(at, _)| at).chain(no_key)
    }

    /// How long to wait before the same request would pass, if nothing else were taken meanwhile: the longest wait of
    /// the policies that refused. `None` where waiting does not help, or is not known to.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.report.verdict().wait() {
            Wait::For(wait) if self.reason == Reason::QuotaExceeded => Some(wait),
            _ => None,
        }
    }

    /// The value of `Retry-After` (RFC 9110, section 10.2.3): [`Denial::retry_after`] in whole seconds, rounded up, at
    /// least 1; and 1 where the store is unavailable, since nobody knows when it will be back, and a second keeps clients
    /// from hammering but not from returning.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        match self.reason {
            Reason::QuotaExceeded => self.retry_after().map(|wait| seconds_up(wait).max(1)),
            Reason::Unavailable => Some(1),
            Reason::NeverPossible | Reason::NoKey | Reason::NoPeerAddress => None,
        }
    }

    /// The status code of the answer, outside of gRPC.
    pub fn status(&self) -> StatusCode {
        self.reason.status()
    }

    /// The answer by default outside of gRPC: a problem document (RFC 9457) of the types that the RateLimit draft
    /// registers, and `Retry-After` where waiting helps.
    pub fn response(&self) -> Response<Bytes> {
        self.response_of(|problem| problem)
    }

    fn response_of<B>(&self, body: impl FnOnce(Bytes) -> B) -> Response<B> {
        let mut response = Response::new(body(self.problem()));
        *response.status_mut() = self.status();
        // Room for what the layer adds, so that the map grows once.
        *response.headers_mut() = HeaderMap::with_capacity(6);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        self.add_retry_after(response.headers_mut());
        response
    }

    /// The answer by default to this request: [`Denial::response`], or the error of gRPC or
    /// Connect, whose clients cannot read that.
    ///
    /// A gRPC call is a `POST` of the content type `application/grpc`, `application/grpc-web` or
    /// `application/grpc-web-text`. Its answer has the HTTP status 200, no body, and these headers:
    ///
    /// | header | is |
    /// |---|---|
    /// | `grpc-status` | 8 (`RESOURCE_EXHAUSTED`), 14 (`UNAVAILABLE`), without a key 3 (`INVALID_ARGUMENT`), without the peer's address 13 (`INTERNAL`) |
    /// | `grpc-message` | why, and which policies refused |
    /// | `grpc-retry-pushback-ms` | [`Denial::retry_after`] in whole milliseconds, rounded up; 1000 where the store is unavailable; -1 where waiting does not help, or would have to be for longer than 2^31 ms, some 24 days |
    /// | `grpc-status-details-bin` | `RetryInfo` where waiting helps, and a `QuotaFailure` with a violation for each policy that refused |
    ///
    /// A call of the [Connect protocol](https://connectrpc.com/docs/protocol) has the header
    /// `Connect-Protocol-Version`, or is a `GET` with `connect=v1` in its query, or is a `POST` of
    /// a content type `application/connect+…`. Its answer is an error in JSON: `code`, `message`,
    /// and `details` with the same two messages.
    ///
    /// | call | HTTP status | body |
    /// |---|---|---|
    /// | unary | 429 (`resource_exhausted`), 503 (`unavailable`), 400 (`invalid_argument`) or 500 (`internal`), with `Retry-After` where waiting helps | the error, as `application/json` |
    /// | stream, by its content type | 200 | one envelope that ends the stream and holds the error |
    ///
    /// [`RateLimitLayer::answer`](crate::RateLimitLayer::answer) has an example.
    pub fn response_to(&self, parts: &Parts) -> Response<Bytes> {
        self.response_by(Protocol::of(&parts.method, &parts.uri, &parts.headers), |body| body)
    }

    /// The answer by default to a request of that protocol, its body made into another: at once,
    /// since a response is large to move.
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

    /// Tells how long to wait in an answer to a request, unless the answer does.
    pub(crate) fn add_wait(&self, request: &Parts, answer: &mut HeaderMap) {
        let protocol = Protocol::of(&request.method, &request.uri, &request.headers);
        if let Some(Protocol::Grpc(_)) = protocol {
            grpc::add_pushback(self, answer);
        } else if !answer.contains_key(header::RETRY_AFTER) {
            self.add_retry_after(answer);
        }
    }

    /// Adds `Retry-After` where waiting helps.
    pub(crate) fn add_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(header::RETRY_AFTER, number(seconds));
        }
    }

    fn problem(&self) -> Bytes {
        if self.reason == Reason::QuotaExceeded {
            let mut violated = self.violated_at();
            // Denials are what an attack is answered with, and most are by one policy: their text is there already.
            if let (Some(at), None) = (violated.next(), violated.next())
                && let Some(problem) = self.report.quota_exceeded(at)
            {
                return problem.clone();
            }
        }
        Bytes::from(problem(self.reason, self.violated()))
    }
}

impl fmt::Debug for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denial").field("reason", &self.reason).field("report", &self.report).finish()
    }
}

/// Why, and which policies: `quota exceeded: burst, daily`.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.text())?;
        for (n, policy) in self.violated().enumerate() {
            write!(f, "{}{policy}", if n == 0 { ": " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Denial {}

/// Feature `axum`: [`Denial::response`], with the denial in its extensions. So a handler that asks a [`Limiter`] says no by `?`.
///
/// ```
/// use axum::extract::State;
/// use tollgate::{Denial, Key, Limiter};
///
/// async fn send(State(mails): State<Limiter>) -> Result<&'static str, Denial> {
///     let _permit = mails.check_key(&Key::from("ada"), 1).await?;
///     Ok("sent\n")
/// }
/// # let _: axum::Router<Limiter> = axum::Router::new().route("/", axum::routing::post(send));
/// ```
///
/// [`Limiter`]: crate::Limiter
#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Denial {
    fn into_response(self) -> axum::response::Response {
        let mut response = self.response().map(axum::body::Body::from);
        response.extensions_mut().insert(self);
        response
    }
}
