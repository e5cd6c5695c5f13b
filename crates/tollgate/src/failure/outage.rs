//! Whether a store answers.

use tollgate_core::StoreError;

#[cfg(feature = "tracing")]
use {super::log::Log, std::sync::Arc};

/// Hears every answer of a store, and has the log told. Clones hear the same store.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    #[cfg(feature = "tracing")]
    log: Arc<Log>,
}

impl Outage {
    /// `meaning` is what happens to requests meanwhile.
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only the log asks for it"))]
    pub(super) fn new(meaning: &'static str) -> Outage {
        Outage {
            #[cfg(feature = "tracing")]
            log: Arc::new(Log::new(meaning)),
        }
    }

    /// The answer, if there is one.
    #[inline]
    pub(super) fn hear<T, E: StoreError>(&self, answer: Result<T, E>) -> Option<T> {
        #[cfg(feature = "tracing")]
        match &answer {
            Ok(_) => self.log.answers(),
            Err(error) => self.log.fails(error),
        }
        answer.ok()
    }
}
