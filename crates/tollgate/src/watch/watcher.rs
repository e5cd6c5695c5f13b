//! The thread that follows a file.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tollgate_core::{Clock, Store, Timestamp};

use super::file_mark::FileMark;
use super::{WatchedFile, cannot, open, text_of};
#[cfg(feature = "metrics")]
use crate::decision::observe::metrics::FileGauges;
use crate::limiter::RequestLimiter;
use crate::store::NeverFails;

/// The time between two readings.
const PAUSE: Duration = Duration::from_millis(250);

/// Follows a file, until it is dropped: see [`WatchedFile::watch`].
#[must_use = "the file is no longer watched once this is dropped"]
pub struct Watcher {
    shared: Arc<SharedStatus>,
    /// Closed when this is dropped, which ends the thread.
    _stop: SyncSender<()>,
}

/// What a [`Watcher`] has seen last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchStatus {
    version: u64,
    since: Timestamp,
    error: Option<String>,
}

struct SharedStatus {
    status: Mutex<WatchStatus>,
    /// Held while rules are replaced, which takes time if there are many. So it is not that of the
    /// status.
    is_over: Mutex<bool>,
}

/// What was read: the content, or why there is none.
type Content = Result<String, String>;

struct Follower<S> {
    file: WatchedFile,
    limiter: RequestLimiter<S>,
    shared: Arc<SharedStatus>,
    /// What counts now.
    seen: Content,
    /// The content whose rules apply.
    applied: String,
    /// What the latest reading has found.
    latest: Content,
    /// That of the file when two readings had found the same. While it stays, nothing is read.
    mark: Option<FileMark>,
    #[cfg(feature = "metrics")]
    gauges: Arc<FileGauges>,
}

impl Watcher {
    pub(super) fn start<S: Store<Error: NeverFails>>(
        file: WatchedFile,
        limiter: RequestLimiter<S>,
    ) -> Watcher {
        let mut follower = Follower::new(file, limiter);
        let shared = Arc::clone(&follower.shared);
        let (stop, stopped) = sync_channel(0);
        follower.show();
        let follow = move || {
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                follower.look();
            }
        };
        let thread = thread::Builder::new().name("tollgate-rules".to_owned()).spawn(follow);
        thread.expect("the system has room for a thread");
        Watcher { shared, _stop: stop }
    }

    /// Returns what it has seen last. It never waits for a replacement of rules.
    pub fn status(&self) -> WatchStatus {
        lock(&self.shared.status).clone()
    }
}

impl Drop for Watcher {
    /// No rules are replaced after this. It waits for a replacement that runs.
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
    }
}

impl WatchStatus {
    /// Returns the [version](RequestLimiter::version) of the rules after the latest change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns when the latest change was seen, or when watching began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Returns why the file as it is now is not used, if so.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

impl<S: Store<Error: NeverFails>> Follower<S> {
    fn new(file: WatchedFile, limiter: RequestLimiter<S>) -> Follower<S> {
        let status = WatchStatus { version: limiter.version(), since: Clock::system().now(), error: None };
        let shared = SharedStatus { status: Mutex::new(status), is_over: Mutex::new(false) };
        let seen = Ok(file.text.clone());
        Follower {
            #[cfg(feature = "metrics")]
            gauges: FileGauges::new(&file.path.display().to_string()),
            applied: file.text.clone(),
            file,
            limiter,
            shared: Arc::new(shared),
            latest: seen.clone(),
            seen,
            mark: None,
        }
    }

    /// Reads the file if it may have changed, and uses its content if the reading before has found
    /// the same. Returns whether it was read.
    fn look(&mut self) -> bool {
        let opened = open(&self.file.path).and_then(|file| {
            // Of the opened file: on a network, opening it asks for its present state.
            let noted = file.metadata().map_err(cannot)?;
            Ok((file, FileMark::of(&noted, Clock::system().now())))
        });
        let (found, mark) = match opened {
            Ok((_, Some(mark))) if self.mark.as_ref() == Some(&mark) => return false,
            // A disk that is full leaves an empty file, and a parser may take it for one without
            // rules.
            Ok((file, mark)) => match text_of(file) {
                Ok(text) if text.trim().is_empty() && text != self.applied => {
                    (Err("is empty".to_owned()), mark)
                }
                read => (read, mark),
            },
            Err(reason) => (Err(reason), None),
        };
        if found == self.latest && found != self.seen {
            self.seen = found.clone();
            if found.as_ref() == Ok(&self.applied) && self.applies() {
                // It was another one for a while, which could not be used.
                lock(&self.shared.status).error = None;
                self.show();
            } else {
                self.follow(found.clone());
            }
        }
        self.latest = found;
        self.mark = mark.filter(|_| self.latest == self.seen);
        true
    }

    /// Whether the layer has the rules that the file gave it last.
    fn applies(&self) -> bool {
        lock(&self.shared.status).version == self.limiter.version()
    }

    fn follow(&mut self, content: Content) {
        let text = content.clone();
        let rules = content.and_then(|text| not_panicking(|| (self.file.parse)(&text)));
        let is_over = lock(&self.shared.is_over);
        if *is_over {
            return;
        }
        let replaced = rules.and_then(|rules| {
            not_panicking(|| self.limiter.replace(rules).map_err(|error| error.to_string()))
        });
        let mut status = lock(&self.shared.status);
        match &replaced {
            Ok(changes) => {
                self.applied = text.unwrap_or_default();
                let (version, since) = (changes.version(), Clock::system().now());
                *status = WatchStatus { version, since, error: None };
            }
            Err(error) => status.error = Some(error.clone()),
        }
        // A subscriber may ask for the status, or drop the watcher.
        drop((status, is_over));
        #[cfg(feature = "tracing")]
        match &replaced {
            Ok(changes) => tracing::info!(file = %self.file.path.display(), "rate limit rules: {changes}"),
            Err(error) => {
                tracing::warn!(file = %self.file.path.display(), "rate limit rules are not replaced: {error}");
            }
        }
        self.show();
    }

    /// Shows the status as metrics.
    fn show(&self) {
        #[cfg(feature = "metrics")]
        {
            let status = lock(&self.shared.status).clone();
            self.gauges.show(status.version, status.error.is_some());
        }
    }
}

fn not_panicking<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err("a closure of the application panicked".to_owned()))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("status", &self.status()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::global;
    use crate::layer::RateLimitLayer;
    use crate::rule::PolicyExt;
    use tollgate_core::{Policy, Quota};

    #[test]
    fn a_file_is_read_again_once_it_has_changed() {
        let path = std::env::temp_dir().join(format!("tollgate-read-{}", std::process::id()));
        std::fs::write(&path, "100").unwrap();
        let rule = |limit: u64| Policy::new("api", Quota::per_minute(limit)).by(global());
        let parse = move |text: &str| text.parse().map(rule).map_err(|_| "no number");
        let file = WatchedFile::open(&path, parse).unwrap();
        let layer = RateLimitLayer::try_new(file.rules()).unwrap();
        let mut follower = Follower::new(file, layer.limiter());
        let mut settle = || {
            while follower.look() {
                thread::sleep(PAUSE);
            }
        };
        settle();
        // As long as before.
        std::fs::write(&path, "200").unwrap();
        settle();
        assert_eq!((layer.version(), layer.limiter().policies()[0].quota().limit()), (2, 200));
        std::fs::remove_file(&path).unwrap();
    }

    #[cfg(feature = "config")]
    #[test]
    fn a_rule_is_built_once_when_its_file_is_opened_and_once_for_each_edit() {
        use crate::config::{Registry, built};

        let path = std::env::temp_dir().join(format!("tollgate-built-{}.toml", std::process::id()));
        let rule = |name: &str, quota: &str| {
            format!("[[rule]]\nname = \"{name}\"\nquota = \"{quota}\"\nby = \"ip\"\n")
        };
        let write = |quota: &str| std::fs::write(&path, rule("a", quota) + &rule("b", quota)).unwrap();
        write("10/s");
        built();
        let file = Registry::new().open(&path).unwrap();
        let layer = RateLimitLayer::try_new(file.rules()).unwrap();
        assert_eq!(built(), 2);
        let mut follower = Follower::new(file, layer.limiter());
        let mut settle = || {
            while follower.look() {
                thread::sleep(PAUSE);
            }
        };
        settle();
        assert_eq!(built(), 0);
        write("20/s");
        settle();
        assert_eq!((layer.version(), built()), (2, 2));
        std::fs::remove_file(&path).unwrap();
    }

    /// Such as that of a health check.
    #[test]
    fn the_status_does_not_wait_for_a_replacement_of_rules() {
        let path = std::env::temp_dir().join(format!("tollgate-status-{}", std::process::id()));
        std::fs::write(&path, "100").unwrap();
        let rule = || Policy::new("api", Quota::per_minute(100)).by(global());
        let file = WatchedFile::open(&path, move |_| Ok::<_, String>(rule())).unwrap();
        let layer = RateLimitLayer::try_new(file.rules()).unwrap();
        let watcher = file.watch(&layer);
        let replacement = lock(&watcher.shared.is_over);
        assert_eq!(watcher.status().version(), 1);
        drop(replacement);
        drop(watcher);
        std::fs::remove_file(&path).unwrap();
    }
}
