//! An answer that the caller of [`RateLimitLayer::answer`](crate::RateLimitLayer::answer) makes.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;

use crate::answer::body::OwnBody;

/// What [`RateLimitLayer::answer`](crate::RateLimitLayer::answer) accepts: a [`Response`] with any
/// body of [`Bytes`], such as a `String`. With the feature `axum`, whatever an axum handler may
/// return.
///
/// If the body fails, the answer ends there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an answer to a refused request",
    note = "return an `http::Response` whose body is an `http_body::Body<Data = Bytes>`, such as `String` or \
            `http_body_util::Full<Bytes>`; with tollgate's feature `axum`, return any `IntoResponse`"
)]
pub trait IntoAnswer {
    #[doc(hidden)]
    fn into_answer(self) -> Response<OwnBody>;
}

// Whatever the other one accepts, this one does: enabling the feature breaks no code.
#[cfg(feature = "axum")]
impl<T: axum::response::IntoResponse> IntoAnswer for T {
    fn into_answer(self) -> Response<OwnBody> {
        boxed(self.into_response())
    }
}

#[cfg(not(feature = "axum"))]
impl<B> IntoAnswer for Response<B>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn into_answer(self) -> Response<OwnBody> {
        boxed(self)
    }
}

fn boxed<B>(response: Response<B>) -> Response<OwnBody>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    response.map(|body| body.map_err(Into::into).boxed_unsync())
}
