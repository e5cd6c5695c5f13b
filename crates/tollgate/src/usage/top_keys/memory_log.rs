//! Pages in this process's memory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Key, UsageError, UsageLog};

use crate::table::digest::Secret;

/// Keeps the usage of a single process in its memory, as a [`MemoryStore`](crate::MemoryStore)
/// keeps its limits. Keys are readable, and those of more than 128 bytes are digests.
#[derive(Clone)]
pub struct MemoryLog(Arc<MemoryPages>);

struct MemoryPages {
    minutes: Mutex<Minutes>,
    secret: Secret,
}

/// The pages of each minute, by process.
type Minutes = BTreeMap<u64, HashMap<u64, Arc<str>>>;

impl MemoryLog {
    /// Returns an empty log.
    pub fn new() -> MemoryLog {
        MemoryLog(Arc::new(MemoryPages { minutes: Mutex::default(), secret: Secret::random() }))
    }
}

impl Default for MemoryLog {
    fn default() -> MemoryLog {
        MemoryLog::new()
    }
}

impl UsageLog for MemoryLog {
    fn name(&self, key: &Key) -> String {
        self.0.secret.digest(0, key.as_encoded()).name(key)
    }

    async fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> Result<(), UsageError> {
        let mut minutes = self.0.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        minutes.entry(minute).or_default().insert(process, page.into());
        let kept = keep_for.as_secs().div_ceil(60);
        minutes.retain(|old, _| old.saturating_add(kept) >= minute);
        Ok(())
    }

    async fn read(&self, minute: u64, mut each: impl FnMut(&str) + Send) -> Result<(), UsageError> {
        // Shared, so that `each` takes its time without the lock.
        let pages: Vec<Arc<str>> = {
            let minutes = self.0.minutes.lock().unwrap_or_else(PoisonError::into_inner);
            minutes.get(&minute).map(|pages| pages.values().cloned().collect()).unwrap_or_default()
        };
        pages.iter().for_each(|page| each(page));
        Ok(())
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryLog(..)")
    }
}
