//! The body of a response that may be the service's or the layer's own.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use pin_project::pin_project;

use super::ends::Ends;

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
    /// every response is moved several times, and few are of this kind.
    Other(Option<Pin<Box<Other<B>>>>),
}

#[pin_project(project = OtherProj)]
#[derive(Debug)]
enum Other<B> {
    DefaultAnswer(Bytes),
    OwnAnswer(OwnBody),
    /// That of the inner service, whose end settles charges and releases slots.
    Ending(#[pin] B, Box<Ends>),
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> ResponseBody<B> {
        ResponseBody(Kind::Inner(body))
    }

    pub(crate) fn ending(body: B, ends: Box<Ends>) -> ResponseBody<B> {
        if ends.is_empty() {
            return ResponseBody::inner(body);
        }
        ResponseBody::other(Some(Other::Ending(body, ends)))
    }

    pub(crate) fn answer(bytes: Bytes) -> ResponseBody<B> {
        // An empty body ends at once, or a client would be sent an empty frame.
        ResponseBody::other((!bytes.is_empty()).then_some(Other::DefaultAnswer(bytes)))
    }

    pub(crate) fn own(body: OwnBody) -> ResponseBody<B> {
        ResponseBody::other((!body.is_end_stream()).then_some(Other::OwnAnswer(body)))
    }

    fn other(other: Option<Other<B>>) -> ResponseBody<B> {
        ResponseBody(Kind::Other(other.map(Box::pin)))
    }

    /// The length of an answer in bytes, if it is known.
    pub(crate) fn answer_length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Inner(_) => None,
            Kind::Other(other) => match other.as_deref() {
                Some(Other::DefaultAnswer(bytes)) => Some(bytes.len() as u64),
                Some(Other::OwnAnswer(body)) => body.size_hint().exact(),
                Some(Other::Ending(..)) => None,
                None => Some(0),
            },
        }
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
            KindProj::Other(None) => Poll::Ready(None),
            KindProj::Other(Some(other)) => other.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Inner(body) => body.is_end_stream(),
            Kind::Other(other) => other.as_ref().is_none_or(|other| other.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Inner(body) => body.size_hint(),
            Kind::Other(other) => other.as_ref().map_or(SizeHint::with_exact(0), |other| other.size_hint()),
        }
    }
}

impl<B> Body for Other<B>
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
        Poll::Ready(match self.project() {
            OtherProj::DefaultAnswer(bytes) => {
                let rest = mem::take(bytes);
                (!rest.is_empty()).then(|| Ok(Frame::data(rest.into())))
            }
            // The inner body's type of error has no place for its error: it ends there.
            OtherProj::OwnAnswer(body) => {
                let frame = ready!(Pin::new(body).poll_frame(cx)).and_then(Result::ok);
                frame.map(|frame| Ok(frame.map_data(Into::into)))
            }
            OtherProj::Ending(mut body, ends) => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                let frame = frame.map(|frame| frame.map(|frame| ends.in_one_piece(frame)));
                ends.after(frame.as_ref(), body.is_end_stream());
                frame
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Other::DefaultAnswer(bytes) => bytes.is_empty(),
            Other::OwnAnswer(body) => body.is_end_stream(),
            Other::Ending(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Other::DefaultAnswer(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Other::OwnAnswer(body) => body.size_hint(),
            Other::Ending(body, _) => body.size_hint(),
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
