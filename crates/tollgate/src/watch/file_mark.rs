//! Whether a file may have changed.

use std::fs::Metadata;
use std::time::Duration;

use tollgate_core::Timestamp;

/// How long ago the latest change must be. File systems note times in steps of up to 2 s, so a
/// change soon after another may have the same time.
const SETTLED: Duration = Duration::from_secs(2);

/// What a file system notes of a file. Another content has another mark.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileMark {
    length: u64,
    changed: Duration,
    /// Another file may have been moved to the place of the first.
    identity: (u64, u64),
}

impl FileMark {
    /// `None` if the file was changed just now, so that the mark may stay the same, or if programs
    /// can set the time of the change.
    pub(super) fn of(file: &Metadata, now: Timestamp) -> Option<FileMark> {
        let changed = changed(file)?;
        let is_settled = changed + SETTLED < Duration::from_micros(now.as_micros());
        is_settled.then(|| FileMark { length: file.len(), changed, identity: identity(file) })
    }
}

/// On Unix no program can set this time.
#[cfg(unix)]
fn changed(file: &Metadata) -> Option<Duration> {
    use std::os::unix::fs::MetadataExt;
    let (seconds, nanos) = (u64::try_from(file.ctime()).ok()?, u32::try_from(file.ctime_nsec()).ok()?);
    Some(Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> Option<Duration> {
    None
}

#[cfg(unix)]
fn identity(file: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (file.dev(), file.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}
