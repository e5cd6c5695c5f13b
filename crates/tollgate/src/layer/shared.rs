//! What the services of a layer share.

use std::sync::Arc;

use http::{HeaderName, Response};
use tollgate_core::Share;

use super::drain::Bound;
use crate::answer::body::OwnBody;
use crate::answer::fields::FieldWriter;
use crate::decision::Denial;
use crate::extract::Head;
use crate::limiter::live::Live;

/// Makes the answer to a refused request.
pub(crate) type AnswerFn = dyn Fn(&Head<'_>, &Denial) -> Response<OwnBody> + Send + Sync;

/// The rules and the options of a layer.
pub(crate) struct LayerShared<S> {
    pub(crate) live: Arc<Live<S>>,
    pub(crate) fields: FieldWriter,
    pub(crate) options: LayerOptions,
}

/// What does not depend on the rules.
#[derive(Clone, Default)]
pub(crate) struct LayerOptions {
    pub(crate) answer: Option<Arc<AnswerFn>>,
    pub(crate) drain: Bound,
    /// The header that holds a request's deadline in milliseconds.
    pub(crate) deadline: Option<HeaderName>,
    pub(crate) expose_report: bool,
    /// By how much of them waits of refused requests are lengthened at most.
    pub(crate) retry_jitter: Option<Share>,
}
