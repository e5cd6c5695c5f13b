//! Which stores answer without a wait.

use tollgate_core::Store;

use crate::memory::MemoryStore;
use crate::scale::DenyCache;
#[cfg(feature = "top-keys")]
use crate::usage::top_keys::UsageCounter;

/// A store whose answers are always there: [`Store::acquire`] never returns
/// [`Reply::Later`](super::Reply::Later). Then a caller that cannot wait may
/// [ask](crate::Limiter::check_now) it, such as a function that is not `async`.
#[diagnostic::on_unimplemented(
    message = "the answer of this store (`{Self}`) may have to be waited for",
    label = "may answer later",
    note = "write `.check(..).await`, or give the limiter a `MemoryStore`"
)]
pub trait AnswersNow: Store {}

impl AnswersNow for MemoryStore {}

impl<S: AnswersNow> AnswersNow for DenyCache<S> {}

#[cfg(feature = "top-keys")]
impl<S: AnswersNow> AnswersNow for UsageCounter<S> {}
