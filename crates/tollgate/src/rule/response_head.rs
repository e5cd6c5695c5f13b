//! The head of a response, as rules see it.

use http::header::CONTENT_TYPE;
use http::{Extensions, HeaderMap, Response, StatusCode};

use crate::extract::grpc_type::GrpcType;

/// What a rule makes of a response: the total to settle to, or `None` if the charge stays.
pub(crate) type OfResponse = dyn Fn(&ResponseHead<'_>) -> Option<u64> + Send + Sync;

/// The head of a response, and its trailers if they decide: what
/// [`Rule::count_if`](crate::Rule::count_if) and [`Rule::cost_by`](crate::Rule::cost_by) see.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    trailers: Option<&'a HeaderMap>,
}

impl<'a> ResponseHead<'a> {
    /// Returns the status. gRPC says 200 for errors too: see
    /// [`grpc_status`](ResponseHead::grpc_status).
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// Returns the extensions, in which a handler may leave something for its layers.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// Returns the trailers of a gRPC call. `None` for other responses, whose trailers are not
    /// waited for, and for a call that ended without a message.
    pub fn trailers(&self) -> Option<&'a HeaderMap> {
        self.trailers
    }

    /// Returns the code of a gRPC call, from its trailers or its headers; 0 is OK. `None` if the
    /// response is not gRPC.
    ///
    /// ```
    /// use tollgate::extract::header;
    /// use tollgate::{Policy, PolicyExt, Quota};
    ///
    /// // 16 is UNAUTHENTICATED.
    /// let failures = Policy::new("failures", Quota::per_hour(5))
    ///     .by(header("x-user"))
    ///     .count_if(|response| response.grpc_status() == Some(16));
    /// ```
    pub fn grpc_status(&self) -> Option<u32> {
        let status = |of: &HeaderMap| of.get(GRPC_STATUS)?.to_str().ok()?.parse().ok();
        self.trailers.and_then(status).or_else(|| status(self.headers))
    }

    /// That of a call whose trailers have arrived.
    pub(crate) fn of_trailers(
        status: StatusCode,
        headers: &'a HeaderMap,
        extensions: &'a Extensions,
        trailers: &'a HeaderMap,
    ) -> ResponseHead<'a> {
        ResponseHead { status, headers, extensions, trailers: Some(trailers) }
    }

    /// How the trailers are sent that will tell more. `None` if the response is not gRPC, or has
    /// ended.
    pub(crate) fn waits_for_trailers(&self) -> Option<GrpcType> {
        let kind = GrpcType::of(self.headers.get(CONTENT_TYPE)?.as_bytes());
        kind.filter(|_| self.trailers.is_none() && !self.headers.contains_key(GRPC_STATUS))
    }
}

const GRPC_STATUS: &str = "grpc-status";

impl<'a, B> From<&'a Response<B>> for ResponseHead<'a> {
    fn from(response: &'a Response<B>) -> ResponseHead<'a> {
        ResponseHead {
            status: response.status(),
            headers: response.headers(),
            extensions: response.extensions(),
            trailers: None,
        }
    }
}
