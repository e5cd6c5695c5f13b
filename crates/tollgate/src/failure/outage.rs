//! Watches whether a store answers.

use std::convert::Infallible;
use std::sync::Arc;

use tollgate_core::{After, Grant, Renewal, Settled, Source, StoreError, Verdict};

use super::event::{Event, EventObservers};
#[cfg(feature = "tracing")]
use super::log::OutageLog;

/// Records every answer of a store for the log and the observers. Clones watch the same store.
/// `None` if nothing does.
#[derive(Clone, Debug)]
pub struct Outage(Option<Arc<OutageWatch>>);

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

    /// Records the answer to a correction. If the store failed, what became of it may be unknown.
    pub(super) fn settled<E: StoreError>(
        &self,
        answer: Result<Settled, E>,
        grants: &[Grant<'_>],
        total: u64,
    ) -> Settled {
        self.record(&answer);
        answer.unwrap_or_else(|error| Settled::after_failure(&error, grants, total))
    }

    /// Records the answer to renewals. If the store failed, the slots keep the times to live that
    /// they have.
    pub(super) fn renewals<E: StoreError>(
        &self,
        answer: Result<Vec<Renewal>, E>,
        grants: &[Grant<'_>],
    ) -> Vec<Renewal> {
        self.record(&answer);
        answer.unwrap_or_else(|_| vec![Renewal::Unanswered; grants.len()])
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

/// Completes a refund or a reset, even if the store fails.
#[derive(Debug)]
pub struct Complete;

impl<E: StoreError> After<Result<(), E>> for Complete {
    type Shared = Outage;
    type Output = Result<(), Infallible>;

    fn after(self, outage: &Outage, answer: Result<(), E>) -> Result<(), Infallible> {
        outage.record(&answer);
        Ok(())
    }
}
