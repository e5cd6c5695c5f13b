//! Captured log lines, for tests to read.

use std::io;
use std::process::abort;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tollgate_core::LogCode;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// The level of a log line.
pub use tracing::Level;

/// With a single dispatcher, tracing asks only the thread that logs first, and caches its answer: a
/// thread without a log would switch off the lines of all. With two, it asks every dispatcher.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// What was logged.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures the log of the whole process, at this level and above.
    ///
    /// # Panics
    /// If the process has a log already.
    pub fn of_process(level: Level) -> Log {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_max_level(level);
        subscriber.with_writer(log.clone()).with_ansi(false).init();
        log
    }

    /// Ends the process when the log says that the setup of a service is wrong.
    pub(crate) fn ends_with_a_code() {
        let subscriber = tracing_subscriber::fmt().with_max_level(Level::WARN);
        // Another test of this process was here before, or has a log.
        let _ = subscriber.with_writer(|| EndsWithACode).with_ansi(false).try_init();
    }

    /// Captures the log of this thread, while the second value lives.
    pub fn of_thread() -> (Log, impl Sized) {
        LazyLock::force(&SECOND);
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

/// What no test has, but those that read it in a log of their own. Others mean what they do to
/// servers, clocks and memory, and what they leave out.
const UNMEANT: [LogCode; 5] = [
    LogCode::ProxyField,
    LogCode::TrustsAll,
    LogCode::ChargedTwice,
    LogCode::MadePerRequest,
    LogCode::SlotNotTaken,
];

struct EndsWithACode;

impl io::Write for EndsWithACode {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if UNMEANT.iter().any(|code| line.contains(&code.to_string())) {
            // A test's `eprintln` would be kept, and lost.
            let _ = writeln!(io::stderr(), "a test has a service whose setup is wrong: {line}");
            abort();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
