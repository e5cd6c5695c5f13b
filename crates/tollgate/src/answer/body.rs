//! The body of a response that may be the service's or the layer's own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use pin_project::pin_project;

use crate::charge::ByTrailers;

/// The body of an answer that a user of the layer made.
pub(crate) type OwnBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The response body of a rate-limited service: that of the inner service, frame by frame, or the
/// answer to a refused request.
///
/// It is a [`Body`] if the inner one is and its data can be made of [`Bytes`]. That holds for axum,
/// tonic and hyper, so no conversion is needed.
#[pin_project]
#[derive(Debug)]
pub struct ResponseBody<B>(#[pin] Kind<B>);

#[pin_project(project = KindProj)]
#[derive(Debug)]
enum Kind<B> {
    Inner(#[pin] B),
    /// `None` once it was read. Boxed, so that a response is no larger than the inner service's:
    /// every response is moved several times, and few are answers.
    Answer(Option<Box<Answer>>),
    /// The body of a gRPC call, whose trailers settle charges.
    Settling(Pin<Box<Settling<B>>>),
}

#[pin_project]
#[derive(Debug)]
struct Settling<B> {
    #[pin]
    body: B,
    /// `None` once the trailers were there.
    charges: Option<ByTrailers>,
}

#[derive(Debug)]
enum Answer {
    Default(Bytes),
    Own(OwnBody),
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> ResponseBody<B> {
        ResponseBody(Kind::Inner(body))
    }

    pub(crate) fn settling(body: B, charges: ByTrailers) -> ResponseBody<B> {
        ResponseBody(Kind::Settling(Box::pin(Settling { body, charges: Some(charges) })))
    }

    pub(crate) fn answer(bytes: Bytes) -> ResponseBody<B> {
        // An empty body ends at once, or a client would be sent an empty frame.
        ResponseBody(Kind::Answer((!bytes.is_empty()).then(|| Box::new(Answer::Default(bytes)))))
    }

    /// The length of an answer in bytes, if it is known.
    pub(crate) fn answer_length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Inner(_) | Kind::Settling(_) => None,
            Kind::Answer(answer) => size_of_answer(answer.as_deref()).exact(),
        }
    }

    pub(crate) fn own(body: OwnBody) -> ResponseBody<B> {
        ResponseBody(Kind::Answer((!body.is_end_stream()).then(|| Box::new(Answer::Own(body)))))
    }
}

fn size_of_answer(answer: Option<&Answer>) -> SizeHint {
    match answer {
        Some(Answer::Own(body)) => body.size_hint(),
        Some(Answer::Default(bytes)) => SizeHint::with_exact(bytes.len() as u64),
        None => SizeHint::with_exact(0),
    }
}

/// For layers outside that answer by themselves, such as CORS.
impl<B: Default> Default for ResponseBody<B> {
    fn default() -> ResponseBody<B> {
        ResponseBody::inner(B::default())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().0.project() {
            KindProj::Inner(body) => body.poll_frame(cx),
            KindProj::Settling(settling) => {
                let settling = settling.as_mut().project();
                let frame = ready!(settling.body.poll_frame(cx));
                if let Some(Ok(frame)) = &frame
                    && let Some(trailers) = frame.trailers_ref()
                    && let Some(charges) = settling.charges.take()
                {
                    charges.settle(trailers);
                }
                Poll::Ready(frame)
            }
            KindProj::Answer(answer) => {
                if let Some(Answer::Own(body)) = answer.as_deref_mut() {
                    // The inner body's type of error has no place for its error: it ends there.
                    let frame = ready!(Pin::new(body).poll_frame(cx)).and_then(Result::ok);
                    return Poll::Ready(frame.map(|frame| Ok(frame.map_data(Into::into))));
                }
                Poll::Ready(match answer.take().as_deref() {
                    Some(Answer::Default(bytes)) => Some(Ok(Frame::data(bytes.clone().into()))),
                    _ => None,
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Inner(body) => body.is_end_stream(),
            Kind::Settling(settling) => settling.body.is_end_stream(),
            Kind::Answer(answer) => match answer.as_deref() {
                Some(Answer::Own(body)) => body.is_end_stream(),
                answer => answer.is_none(),
            },
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Inner(body) => body.size_hint(),
            Kind::Settling(settling) => settling.body.size_hint(),
            Kind::Answer(answer) => size_of_answer(answer.as_deref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_no_larger_than_the_services_own() {
        // As axum's: a box of a trait object.
        type Boxed = Box<dyn Send>;
        assert_eq!(size_of::<http::Response<ResponseBody<Boxed>>>(), size_of::<http::Response<Boxed>>());
    }
}
