//! What operators can count: who decides, and how the store fails.

use std::fmt;
use std::sync::Arc;

use tollgate_core::ErrorKind;

use super::circuit::CircuitState;

/// Something that happened between a store and its failure policies: see [`FailureExt`](super::FailureExt).
///
/// For metrics. There is no key in it, nor anything else of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A set of checks was decided, by this.
    Decided(Source),
    /// The store failed to decide, in this way: in its place another decides, of whom an [`Event::Decided`] follows. Or it failed
    /// to refund or to reset, of which nothing follows.
    Failed(ErrorKind),
    /// A circuit breaker has changed its state to this.
    Circuit(CircuitState),
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store.
    Store,
    /// The store that was given to [`fall_back_to`](super::FailureExt::fall_back_to).
    Fallback,
    /// Nobody: the failure policy let the request pass, or refused it.
    Policy,
}

impl Source {
    /// A word for it in logs and metrics, such as `fallback`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Store => "store",
            Source::Fallback => "fallback",
            Source::Policy => "policy",
        }
    }
}

/// Somebody who is told of events, or nobody.
#[derive(Clone, Default)]
pub(super) struct Observer(Option<Arc<dyn Fn(Event) + Send + Sync>>);

impl Observer {
    pub(super) fn new(observe: impl Fn(Event) + Send + Sync + 'static) -> Observer {
        Observer(Some(Arc::new(observe)))
    }

    #[inline]
    pub(super) fn tell(&self, event: Event) {
        #[cfg(feature = "tracing")]
        trace(event);
        if let Some(observe) = &self.0 {
            observe(event);
        }
    }
}

/// For who looks closely: what is worth a line by itself is logged elsewhere.
#[cfg(feature = "tracing")]
#[inline]
fn trace(event: Event) {
    match event {
        Event::Decided(source) => tracing::trace!(source = source.name(), "decided"),
        Event::Failed(kind) => tracing::debug!(kind = kind.name(), "the rate limit store failed"),
        Event::Circuit(_) => {}
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer(..)" } else { "Observer(none)" })
    }
}
