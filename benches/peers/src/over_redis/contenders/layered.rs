//! A whole layer around a service that is always ready, from request to response.

use std::convert::Infallible;
use std::future::poll_fn;

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

use crate::measure::Answers;
use crate::over_redis::measure::Decide;
use crate::over_redis::scenario::{Draws, KEY_FIELD};

#[derive(Clone)]
pub(super) struct Layered<S>(pub(super) S);

impl<S, B> Decide for Layered<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible, Future: Send>,
    S: Clone + Send + Sync + 'static,
{
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert(KEY_FIELD, draws.draw().field.clone());
        let Ok(()) = poll_fn(|context| self.0.poll_ready(context)).await;
        let Ok(response) = self.0.call(request).await;
        answers.count(response.status());
    }
}
