//! Watches whether a store answers.

use std::sync::Arc;

use tollgate_core::{Source, StoreError, Verdict};

use super::event::{Event, Observer};
#[cfg(feature = "tracing")]
use super::log::Log;

/// Records every answer of a store for the log and the observer. Clones watch the same store.
#[derive(Clone, Debug)]
pub(super) struct Outage(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    meaning: &'static str,
    /// What decides while the store fails.
    substitute: Source,
    observer: Observer,
    #[cfg(feature = "tracing")]
    log: Log,
}

impl Outage {
    /// `meaning` says in the log what happens to requests during an outage.
    pub(super) fn new(meaning: &'static str, substitute: Source) -> Outage {
        Outage::observed(meaning, substitute, Observer::default())
    }

    fn observed(meaning: &'static str, substitute: Source, observer: Observer) -> Outage {
        Outage(Arc::new(Watch {
            meaning,
            substitute,
            observer,
            #[cfg(feature = "tracing")]
            log: Log::new(meaning),
        }))
    }

    /// The same with another observer.
    pub(super) fn observe(&self, observe: impl Fn(Event) + Send + Sync + 'static) -> Outage {
        Outage::observed(self.0.meaning, self.0.substitute, Observer::new(observe))
    }

    /// Records the answer to a request.
    #[inline]
    pub(super) fn record_decision<E: StoreError>(&self, answer: &Result<Verdict, E>) {
        self.record(answer);
        let source = answer.as_ref().map_or(self.0.substitute, Verdict::source);
        self.0.observer.notify(Event::Decided(source));
    }

    /// Records any answer.
    #[inline]
    pub(super) fn record<T, E: StoreError>(&self, answer: &Result<T, E>) {
        match answer {
            Ok(_) => {
                #[cfg(feature = "tracing")]
                self.0.log.answered();
            }
            Err(error) => self.record_failure(error),
        }
    }

    #[cold]
    fn record_failure(&self, error: &dyn StoreError) {
        #[cfg(feature = "tracing")]
        self.0.log.failed(error);
        self.0.observer.notify(Event::Failed(error.kind()));
    }
}

/// The verdict of a failure policy or of a fallback that does not know how the rules stand.
#[cold]
pub(super) fn undecided(times: u32, source: Source) -> Verdict {
    Verdict::without_statuses(times).from_source(source)
}
