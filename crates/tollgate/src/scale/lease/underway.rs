//! What tasks in the background hold. It is free again however they end.

use std::sync::Arc;

use super::account::Fetch;
use super::books::Books;

/// A fetch whose answer is awaited. If the runtime ends before that, it has brought nothing.
pub(super) struct Sent {
    books: Arc<Books>,
    fetch: Option<Fetch>,
}

impl Sent {
    pub(super) fn new(books: &Arc<Books>, fetch: Fetch) -> Sent {
        Sent { books: Arc::clone(books), fetch: Some(fetch) }
    }

    /// Returns the fetch, for its answer.
    pub(super) fn answered(mut self) -> Option<Fetch> {
        self.fetch.take()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(fetch) = &self.fetch {
            self.books.not_granted(fetch, 0);
        }
    }
}

/// The right to return leases, of one task. It is free again once the task ends, also if the
/// runtime ends before the task has begun.
pub(super) struct Returning(Arc<Books>);

impl Returning {
    pub(super) fn start(books: &Arc<Books>) -> Option<Returning> {
        books.start_returning().then(|| Returning(Arc::clone(books)))
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.stop_returning();
    }
}
