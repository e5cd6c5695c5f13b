//! How a layer answers.

use std::fmt;
use std::sync::Arc;

use http::{HeaderName, Response};
use tollgate_core::Share;

use super::body::OwnBody;
use super::drain::Bound;
use super::fields::FieldWriter;
use crate::decision::Denial;
use crate::extract::Head;

/// Makes the answer to a refused request.
pub(crate) type AnswerFn = dyn Fn(&Head<'_>, &Denial) -> Response<OwnBody> + Send + Sync;

/// The options of a layer, which do not depend on its rules.
#[derive(Clone, Default)]
pub(crate) struct AnswerOptions {
    pub(crate) fields: FieldWriter,
    pub(crate) answer: Option<Arc<AnswerFn>>,
    pub(crate) drain: Bound,
    /// The header that holds a request's deadline in milliseconds.
    pub(crate) deadline: Option<HeaderName>,
    pub(crate) expose_report: bool,
    /// By how much of them waits of refused requests are lengthened at most.
    pub(crate) retry_jitter: Option<Share>,
}

impl fmt::Debug for AnswerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerOptions").field("fields", &self.fields).finish_non_exhaustive()
    }
}
