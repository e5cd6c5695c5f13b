//! Pages in this process's memory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Key, UsageError, UsageLog};

/// Keeps the usage of a single process in its memory, as a [`MemoryStore`](crate::MemoryStore)
/// keeps its limits. Keys are readable.
#[derive(Clone, Default)]
pub struct MemoryLog(Arc<Mutex<Minutes>>);

/// The pages of each minute, by process.
type Minutes = BTreeMap<u64, HashMap<u64, String>>;

impl MemoryLog {
    /// Returns an empty log.
    pub fn new() -> MemoryLog {
        MemoryLog::default()
    }
}

impl UsageLog for MemoryLog {
    fn name(&self, key: &Key) -> String {
        let mut name = String::new();
        // Writing to a string does not fail.
        let _ = key.write_text(&mut name);
        name
    }

    async fn write(
        &self,
        minute: u64,
        process: u64,
        page: &str,
        keep_for: Duration,
    ) -> Result<(), UsageError> {
        let mut minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        minutes.entry(minute).or_default().insert(process, page.to_owned());
        let kept = keep_for.as_secs().div_ceil(60);
        minutes.retain(|old, _| old.saturating_add(kept) >= minute);
        Ok(())
    }

    async fn read(&self, minute: u64) -> Result<Vec<String>, UsageError> {
        let minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(minutes.get(&minute).map(|pages| pages.values().cloned().collect()).unwrap_or_default())
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryLog(..)")
    }
}
