//! What is logged, for tests to read.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// How important something is.
pub use tracing::Level;

/// What was logged.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Of the whole process: what is as important as that, or more so.
    ///
    /// # Panics
    /// If the process has a log already.
    pub fn of_process(level: Level) -> Log {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_max_level(level);
        subscriber.with_writer(log.clone()).with_ansi(false).init();
        log
    }

    /// Of this thread, for as long as the second value lives.
    pub fn of_thread() -> (Log, impl Sized) {
        let log = Log::default();
        let guard = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).set_default();
        (log, guard)
    }

    /// Line by line.
    pub fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.bytes()).lines().map(str::to_owned).collect()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}
