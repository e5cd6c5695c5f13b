//! Series of metrics that are in use, although nothing counts them.
//!
//! An exporter can end series that nothing has touched for a time, such as those of removed rules.
//! Handles that it has ended count nothing any more. So those in use are touched before each
//! scrape.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The handles of metrics.
pub(super) trait Series: Send + Sync {
    /// Adds nothing to each of them.
    fn touch(&self);
}

static LIVE: Mutex<Vec<Weak<dyn Series>>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Weak<dyn Series>>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Touches these series from now on, until they are dropped.
pub(super) fn keep<T: Series + 'static>(series: T) -> Arc<T> {
    let series = Arc::new(series);
    let kept: Arc<dyn Series> = Arc::clone(&series) as _;
    let mut live = live();
    live.retain(|other| other.strong_count() > 0);
    live.push(Arc::downgrade(&kept));
    series
}

/// Touches all series that are in use.
pub(super) fn touch_all() {
    // Without the lock: an exporter may do anything.
    let all: Vec<_> = live().iter().filter_map(Weak::upgrade).collect();
    all.iter().for_each(|series| series.touch());
}
