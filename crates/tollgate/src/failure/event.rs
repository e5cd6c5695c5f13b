//! Events for metrics: what decides, and how the store fails.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{ErrorKind, Source};

use super::circuit::CircuitState;

/// An event between a store and its failure policies, for metrics: see the
/// [module docs](super#events).
///
/// It contains no key and nothing else of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A set of checks was decided, by this source. Looks are included.
    Decided(Source),
    /// The store failed in this way. If it failed to decide, an [`Event::Decided`] follows for what
    /// decided instead. If it failed to refund or to reset, no event follows.
    Failed(ErrorKind),
    /// A circuit breaker changed to this state.
    Circuit(CircuitState),
}

/// A callback for events, if there is one.
#[derive(Clone, Default)]
pub(super) struct Observer(Option<Arc<dyn Fn(Event) + Send + Sync>>);

impl Observer {
    pub(super) fn new(observe: impl Fn(Event) + Send + Sync + 'static) -> Observer {
        Observer(Some(Arc::new(observe)))
    }

    #[inline]
    pub(super) fn notify(&self, event: Event) {
        #[cfg(feature = "tracing")]
        match event {
            Event::Decided(source) => tracing::trace!(source = source.name(), "decided"),
            Event::Failed(kind) => tracing::debug!(kind = kind.name(), "the rate limit store failed"),
            // The circuit breaker logs its own changes.
            Event::Circuit(_) => {}
        }
        if let Some(observe) = &self.0 {
            observe(event);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer(..)" } else { "Observer(none)" })
    }
}
