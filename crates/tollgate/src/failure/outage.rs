//! Whether a store answers.

use std::sync::Arc;

use tollgate_core::{StoreError, Verdict};

use super::event::{Event, Observer, Source};
#[cfg(feature = "tracing")]
use super::log::Log;

/// Hears every answer of a store, and tells the log and the observer. Clones hear the same store.
#[derive(Clone, Debug)]
pub(super) struct Outage(Arc<Ears>);

#[derive(Debug)]
struct Ears {
    meaning: &'static str,
    /// Who decides what the store does not.
    instead: Source,
    observer: Observer,
    #[cfg(feature = "tracing")]
    log: Log,
}

impl Outage {
    /// `meaning` is what happens to requests meanwhile, for the log.
    pub(super) fn new(meaning: &'static str, instead: Source) -> Outage {
        Outage::observed(meaning, instead, Observer::default())
    }

    fn observed(meaning: &'static str, instead: Source, observer: Observer) -> Outage {
        Outage(Arc::new(Ears {
            meaning,
            instead,
            observer,
            #[cfg(feature = "tracing")]
            log: Log::new(meaning),
        }))
    }

    /// The same, telling somebody else.
    pub(super) fn observe(&self, observe: impl Fn(Event) + Send + Sync + 'static) -> Outage {
        Outage::observed(self.0.meaning, self.0.instead, Observer::new(observe))
    }

    /// Hears the answer to a request.
    #[inline]
    pub(super) fn decided<E: StoreError>(&self, answer: &Result<Verdict, E>) {
        self.hear(answer);
        self.0.observer.tell(Event::Decided(if answer.is_ok() { Source::Store } else { self.0.instead }));
    }

    #[inline]
    pub(super) fn hear<T, E: StoreError>(&self, answer: &Result<T, E>) {
        match answer {
            Ok(_) => {
                #[cfg(feature = "tracing")]
                self.0.log.answers();
            }
            Err(error) => self.fails(error),
        }
    }

    #[cold]
    fn fails(&self, error: &dyn StoreError) {
        #[cfg(feature = "tracing")]
        self.0.log.fails(error);
        self.0.observer.tell(Event::Failed(error.kind()));
    }
}
