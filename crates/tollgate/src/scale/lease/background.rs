//! What tasks in the background hold. It is free again however they end.

use std::sync::Arc;
use std::time::Duration;

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

/// The turn of a task to return units. It ends with the task, also if the runtime ends before the
/// task has begun.
pub(super) struct Turn {
    books: Arc<Books>,
    number: u64,
}

impl Turn {
    /// `None` if another task does it.
    pub(super) fn begin(books: &Arc<Books>) -> Option<Turn> {
        let number = books.agenda.begin(books.now())?;
        Some(Turn { books: Arc::clone(books), number })
    }

    /// How long to wait before units are returned. `None` if the turn is over.
    pub(super) fn next(&self) -> Option<Duration> {
        self.books.agenda.next_of(self.number, self.books.now())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.books.agenda.ended(self.number);
    }
}
