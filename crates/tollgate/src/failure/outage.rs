//! Watches whether a store answers.

use std::sync::Arc;

use tollgate_core::{Source, StoreError, Verdict};

use super::event::{Event, EventObservers};
#[cfg(feature = "tracing")]
use super::log::OutageLog;

/// Records every answer of a store for the log and the observers. Clones watch the same store.
/// `None` if nothing does.
#[derive(Clone, Debug)]
pub(super) struct Outage(Option<Arc<OutageWatch>>);

#[derive(Debug)]
struct OutageWatch {
    meaning: &'static str,
    /// What decides while the store fails.
    substitute: Source,
    observers: EventObservers,
    #[cfg(feature = "tracing")]
    log: OutageLog,
}

impl Outage {
    /// `meaning` says in the log what happens to requests during an outage.
    pub(super) fn new(meaning: &'static str, substitute: Source) -> Outage {
        Outage::observed(meaning, substitute, EventObservers::default())
    }

    fn observed(meaning: &'static str, substitute: Source, observers: EventObservers) -> Outage {
        Outage(Some(Arc::new(OutageWatch {
            meaning,
            substitute,
            observers,
            #[cfg(feature = "tracing")]
            log: OutageLog::new(meaning),
        })))
    }

    /// One that neither the log nor an observer hears of.
    pub(super) fn unwatched() -> Outage {
        Outage(None)
    }

    /// The same with one observer more.
    pub(super) fn observe(&self, observe: impl Fn(Event) + Send + Sync + 'static) -> Outage {
        let Some(watch) = &self.0 else { return Outage::unwatched() };
        let mut observers = watch.observers.clone();
        observers.add(observe);
        Outage::observed(watch.meaning, watch.substitute, observers)
    }

    /// Records the answer to a request.
    #[inline]
    pub(super) fn record_decision<E: StoreError>(&self, answer: &Result<Verdict, E>) {
        let Some(watch) = &self.0 else { return };
        self.record(answer);
        let source = answer.as_ref().map_or(watch.substitute, Verdict::source);
        watch.observers.notify(Event::Decided(source));
    }

    /// Records any answer.
    #[inline]
    pub(super) fn record<T, E: StoreError>(&self, answer: &Result<T, E>) {
        let Some(watch) = &self.0 else { return };
        match answer {
            Ok(_) => {
                #[cfg(feature = "tracing")]
                watch.log.answered();
            }
            Err(error) => watch.record_failure(error),
        }
    }
}

impl OutageWatch {
    #[cold]
    fn record_failure(&self, error: &dyn StoreError) {
        #[cfg(feature = "tracing")]
        self.log.failed(error);
        self.observers.notify(Event::Failed(error.kind()));
    }
}

/// The verdict of a failure policy or of a fallback that does not know how the rules stand.
#[cold]
pub(super) fn undecided(times: u32, source: Source) -> Verdict {
    Verdict::without_statuses(times).from_source(source)
}
