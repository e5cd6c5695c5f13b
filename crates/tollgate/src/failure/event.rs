//! Events for metrics: what decides, and how the store fails.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{ErrorKind, Source};

use super::circuit_state::CircuitState;

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

/// Those who see the events of a store.
#[derive(Clone, Default)]
pub(super) struct EventObservers(Vec<Arc<dyn Fn(Event) + Send + Sync>>);

impl EventObservers {
    pub(super) fn add(&mut self, observe: impl Fn(Event) + Send + Sync + 'static) {
        self.0.push(Arc::new(observe));
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
        for observe in &self.0 {
            observe(event);
        }
    }
}

impl fmt::Debug for EventObservers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventObservers({})", self.0.len())
    }
}
