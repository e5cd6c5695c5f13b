//! Rules from a file, which are replaced when the file changes.
//!
//! The form of the file is that of a parser: any closure from a text to rules. The feature `config`
//! has one for TOML and JSON.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::extract::PeerIp;
//! use tollgate::watch::WatchedFile;
//! use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer, Rule};
//!
//! // A file that contains one number: the requests a minute of each address.
//! fn parse(text: &str) -> Result<Rule, String> {
//!     // The error stands in the log, and the file may be the wrong one: do not quote it.
//!     let limit = text.trim().parse().map_err(|error| format!("not a number: {error}"))?;
//!     let quota = Quota::try_per_minute(limit).map_err(|error| error.to_string())?;
//!     Ok(Policy::new("api", quota).by(PeerIp::new()))
//! }
//!
//! # let path = std::env::temp_dir().join(format!("tollgate-{}", std::process::id()));
//! # std::fs::write(&path, "100")?;
//! let file = WatchedFile::open(&path, parse)?;
//! let layer = RateLimitLayer::try_new(file.rules())?;
//! // The layer follows the file for as long as the watcher lives.
//! let watcher = file.watch(&layer);
//! # std::fs::write(&path, "x")?;
//! # while watcher.status().error().is_none() { std::thread::sleep(Duration::from_millis(20)) }
//!
//! // A file that is not valid changes nothing.
//! let status = watcher.status();
//! assert_eq!(status.version(), 1);
//! assert_eq!(status.error(), Some("not a number: invalid digit found in string"));
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a file is watched
//!
//! A thread opens the file four times a second, and compares its content if its length, its time of
//! change or its identity are others. So it does not matter how the file changes: written in place,
//! replaced by `mv`, by a link that is moved as in a ConfigMap of Kubernetes, or on a file system
//! that reports no changes.
//!
//! - A content counts when two readings in a row find it. **A writer that stops midway for longer
//!   than that shows half a file.** If half a file may be valid, write another file and rename it.
//! - A file that is missing, empty, larger than [16 MiB](WatchedFile::MOST_BYTES), not UTF-8, not a
//!   regular file, or not valid changes nothing. [`WatchStatus::error`] says why, until the file is
//!   valid again.
//! - With the feature `tracing`, each change and each error is a line of the log. With the feature
//!   `metrics` there are the [gauges](crate::guide::watching#metrics) `tollgate_rules_version` and
//!   `tollgate_rules_error`, with the path as the label `file`.

mod file_mark;
#[cfg(feature = "config")]
mod rules;
mod watcher;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate_core::Store;

use crate::errors::SetupError;
use crate::limiter::RequestLimiter;
use crate::rule::{IntoRules, Rule};
use crate::store::NeverFails;

pub use watcher::{WatchStatus, Watcher};

type Parse = dyn Fn(&str) -> Result<Vec<Rule>, String> + Send + Sync;

/// A file with rules, as it was when it was opened.
pub struct WatchedFile {
    path: PathBuf,
    parse: Arc<Parse>,
    text: String,
    rules: Vec<Rule>,
}

impl WatchedFile {
    /// The longest file that is read, in bytes: 16 MiB.
    pub const MOST_BYTES: u64 = 16 << 20;

    /// Reads a file and parses it.
    ///
    /// # Errors
    /// [`SetupError::File`] if the file cannot be read, is longer than
    /// [`WatchedFile::MOST_BYTES`], is not text, or if the parser refuses it.
    pub fn open<R: IntoRules, E: fmt::Display>(
        path: impl Into<PathBuf>,
        parse: impl Fn(&str) -> Result<R, E> + Send + Sync + 'static,
    ) -> Result<WatchedFile, SetupError> {
        let path = path.into();
        let parse: Arc<Parse> = Arc::new(move |text| match parse(text) {
            Ok(rules) => Ok(rules.into_rules().collect()),
            Err(error) => Err(error.to_string()),
        });
        let parsed = read(&path).and_then(|text| parse(&text).map(|rules| (text, rules)));
        match parsed {
            Ok((text, rules)) => Ok(WatchedFile { path, parse, text, rules }),
            Err(reason) => Err(SetupError::File(path, reason)),
        }
    }

    /// Returns the rules, for [`RateLimitLayer::try_new`](crate::RateLimitLayer::try_new).
    pub fn rules(&self) -> Vec<Rule> {
        self.rules.clone()
    }

    /// Replaces the rules of a layer, or of a limiter, whenever the file changes, from what was
    /// read when it was opened. It ends when the watcher is dropped.
    ///
    /// Call this once the layer has its store and its options: see [`RateLimitLayer::replace`].
    ///
    /// [`RateLimitLayer::replace`]: crate::RateLimitLayer::replace
    pub fn watch<S>(self, layer: impl Into<RequestLimiter<S>>) -> Watcher
    where
        S: Store,
        S::Error: NeverFails,
    {
        Watcher::start(self, layer.into())
    }
}

impl fmt::Debug for WatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedFile")
            .field("path", &self.path)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// Reads the text of a file as [`WatchedFile::open`] does.
///
/// # Errors
/// [`SetupError::File`] if it is not a regular file, cannot be read, is longer than
/// [`WatchedFile::MOST_BYTES`], or is not UTF-8. No error contains a part of the text.
pub fn read_file(path: &Path) -> Result<String, SetupError> {
    read(path).map_err(|reason| SetupError::File(path.to_owned(), reason))
}

/// The content of a file.
fn read(path: &Path) -> Result<String, String> {
    text_of(open(path)?)
}

fn open(path: &Path) -> Result<File, String> {
    // To open a pipe may block for ever.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("cannot be read: it is not a regular file".to_owned());
    }
    File::open(path).map_err(cannot)
}

fn cannot(error: io::Error) -> String {
    format!("cannot be read: {error}")
}

fn text_of(file: File) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.take(WatchedFile::MOST_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > WatchedFile::MOST_BYTES {
        return Err(format!("is longer than {} bytes", WatchedFile::MOST_BYTES));
    }
    // A byte order mark, or a character of ASCII without one.
    if let [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] = bytes[..] {
        return Err("is UTF-16: save it as UTF-8".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}
