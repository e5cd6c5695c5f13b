//! Counts decisions in this process, and stores the counts from time to time.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate_core::{Key, UsageError, UsageLog};

use super::book::{Book, Destination, Minute};
use super::settings::Recording;

/// Counts the decisions of this process: see [`TopKeys::record`](super::TopKeys::record).
///
/// It is a handle: clones share their counts. A task of the runtime in which it was made stores
/// them, some time after the first was counted. If that runtime is gone, or is not driven, that of
/// a later decision takes over: a minute after the counts were due, and the log says so. Without
/// another runtime, call [`flush`](Recorder::flush). When the last clone and all stores that it
/// counts are dropped, its task ends.
#[derive(Clone)]
pub struct Recorder<L> {
    log: L,
    book: Arc<Book>,
    /// The number of this process in the log, so that its pages replace no other's.
    process: u64,
}

impl<L: UsageLog> Recorder<L> {
    pub(super) fn start(log: L, settings: Recording) -> Recorder<L> {
        let process = RandomState::new().hash_one(std::process::id());
        let destination = Box::new(PagesOfProcess { log: log.clone(), process });
        let book = Arc::new(Book::new(settings, destination, Handle::current()));
        Recorder { log, book, process }
    }

    pub(super) fn book(&self) -> &Arc<Book> {
        &self.book
    }

    /// Stores what was counted since the last flush. Call it when the process ends, so that nothing
    /// is lost.
    ///
    /// A flush writes a whole page and replaces the earlier one, so it can be repeated. It waits
    /// for flushes that have begun before it.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the log does not answer. The counts stay, and go with the next
    /// flush.
    pub async fn flush(&self) -> Result<(), UsageError> {
        flush(&self.log, &self.book, self.process).await
    }
}

/// The pages of this process in a log.
struct PagesOfProcess<L> {
    log: L,
    process: u64,
}

impl<L: UsageLog> Destination for PagesOfProcess<L> {
    fn name(&self, key: &Key) -> String {
        self.log.name(key)
    }

    fn flush_later(&self, book: Weak<Book>, runtime: &Handle) {
        let Some(interval) = book.upgrade().map(|book| book.settings().flush_every) else { return };
        let (log, process) = (self.log.clone(), self.process);
        runtime.spawn(async move {
            sleep(interval).await;
            let Some(book) = book.upgrade() else { return };
            book.begin_flush();
            if let Err(_error) = flush(&log, &book, process).await {
                #[cfg(feature = "tracing")]
                tracing::debug!(error = %_error, "counts of usage were not stored; they go with the next flush");
                book.flush_again();
            }
        });
    }
}

/// Writes the closed minutes, then the open one. Minutes that fail are kept.
async fn flush<L: UsageLog>(log: &L, book: &Book, process: u64) -> Result<(), UsageError> {
    // A flush that takes less than another one holds would return before that is written.
    let _turn = book.flushing().lock().await;
    let settings = book.settings();
    let (closed, number, open) = book.take();
    let mut unwritten = Unwritten { book, minutes: closed };
    while let Some(minute) = unwritten.minutes.first() {
        let page = book.named(minute.top(settings.keys)).write();
        log.write(minute.number, process, &page, settings.keep_for).await?;
        unwritten.minutes.remove(0);
    }
    if open.policies.is_empty() {
        return Ok(());
    }
    log.write(number, process, &book.named(open).write(), settings.keep_for).await
}

/// Closed minutes that are not written yet. They go back, also if the flush is dropped.
struct Unwritten<'a> {
    book: &'a Book,
    minutes: Vec<Minute>,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.book.keep(std::mem::take(&mut self.minutes));
    }
}

impl<L> fmt::Debug for Recorder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("settings", self.book.settings()).finish_non_exhaustive()
    }
}
