//! Where processes keep what they counted of the usage of each minute.

use std::future::Future;
use std::time::Duration;

use crate::key::Key;
use crate::usage::UsageError;

/// Keeps pages of text. Each is what one process counted in one minute.
///
/// `tollgate` writes and reads the pages. A log only stores them, so it needs no knowledge of their
/// form. Logs are handles: clones share their pages.
pub trait UsageLog: Clone + Send + Sync + 'static {
    /// Returns the text that names a key in pages: as this store names it, readable or as a digest.
    /// It has no line break and no tab.
    fn name(&self, key: &Key) -> String;

    /// Stores the page of a process about a minute (counted since the epoch), and forgets its
    /// earlier page about that minute. All pages of the minute are forgotten `keep_for` after the
    /// last was stored.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer. It may have stored the page.
    fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> impl Future<Output = Result<(), UsageError>> + Send;

    /// Passes the pages of all processes about a minute to `each`, in any order, a part at a time.
    /// Each page is passed once.
    ///
    /// # Errors
    /// [`UsageError::Store`] if the store does not answer. Some pages may have been passed.
    fn read(
        &self,
        minute: u64,
        each: impl FnMut(&str) + Send,
    ) -> impl Future<Output = Result<(), UsageError>> + Send;
}
