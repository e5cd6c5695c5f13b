//! Ways in which a file changes.

use std::fs;
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::config::Registry;
use tollgate::watch::{WatchedFile, Watcher};
use tollgate::{Quota, RateLimitLayer, RequestLimiter, Rule};
use tollgate_tests::per_user;

/// Far beyond the time in which an edit shows, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A file that is a number, the requests a minute.
fn parse(text: &str) -> Result<Rule, String> {
    let limit = text.trim().parse().map_err(|error| format!("line 1: {text:?}: {error}"))?;
    assert_ne!(limit, 666, "a parser with a fault");
    Ok(per_user("api", Quota::try_per_minute(limit).map_err(|error| error.to_string())?.limit()))
}

struct Watched {
    folder: TempDir,
    path: PathBuf,
    layer: RateLimitLayer,
    watcher: Watcher,
}

impl Watched {
    /// Watches a file of this folder.
    fn new(name: &str, prepare: impl FnOnce(&Path)) -> Watched {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let path = folder.path().join(name);
        let file = WatchedFile::open(&path, parse).unwrap();
        let layer = RateLimitLayer::try_new(file.rules()).unwrap();
        let watcher = file.watch(&layer);
        Watched { folder, path, layer, watcher }
    }

    fn plain() -> Watched {
        Watched::new("rules", |folder| fs::write(folder.join("rules"), "100").unwrap())
    }

    fn limit(&self) -> u64 {
        self.layer.limiter().policies()[0].quota().limit()
    }

    fn error(&self) -> String {
        self.watcher.status().error().unwrap_or_default().to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the time of a test, not of a decision")]
    fn soon(&self, what: &str, is_so: impl Fn(&Watched) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            let (limit, status) = (self.limit(), self.watcher.status());
            assert!(start.elapsed() < PATIENCE, "not soon: {what}; the limit is {limit}, {status:?}");
            sleep(Duration::from_millis(10));
        }
    }

    fn soon_limits_to(&self, limit: u64) {
        self.soon(&format!("a limit of {limit}"), |watched| {
            watched.limit() == limit && watched.error().is_empty()
        });
    }

    fn soon_says(&self, error: &str) {
        self.soon(error, |watched| watched.error().contains(error));
    }
}

#[test]
fn a_file_that_is_written_or_renamed_over_is_followed() {
    let watched = Watched::plain();
    assert_eq!((watched.watcher.status().version(), watched.limit()), (1, 100));
    fs::write(&watched.path, "200").unwrap();
    watched.soon_limits_to(200);
    for limit in [300, 400] {
        let other = watched.folder.path().join("other");
        fs::write(&other, limit.to_string()).unwrap();
        fs::rename(other, &watched.path).unwrap();
        watched.soon_limits_to(limit);
    }
    let status = watched.watcher.status();
    assert_eq!((status.version(), status.error()), (4, None));
}

#[test]
fn a_limiter_without_a_layer_follows_a_file() {
    let watched = Watched::plain();
    let file = WatchedFile::open(&watched.path, parse).unwrap();
    let limiter = RequestLimiter::try_new(file.rules()).unwrap();
    let _watcher = file.watch(limiter.clone());
    fs::write(&watched.path, "200").unwrap();
    watched.soon("a limit of 200", |_| limiter.policies()[0].quota().limit() == 200);
}

#[test]
fn a_file_that_is_written_again_as_it_was_changes_nothing() {
    let watched = Watched::plain();
    for _ in 0..10 {
        fs::write(&watched.path, "100").unwrap();
        sleep(Duration::from_millis(60));
    }
    assert_eq!(watched.watcher.status().version(), 1);
}

/// As by an editor that empties a file before it writes it.
#[test]
fn a_file_that_was_broken_for_a_while_and_is_as_before_changes_nothing() {
    let watched = Watched::plain();
    fs::write(&watched.path, "").unwrap();
    watched.soon("an empty file", |watched| !watched.error().is_empty());
    fs::write(&watched.path, "100").unwrap();
    watched.soon("the file as before", |watched| watched.error().is_empty());
    assert_eq!(watched.watcher.status().version(), 1);
}

#[cfg(unix)]
#[test]
fn links_are_followed_also_as_kubernetes_moves_them() {
    let version = |folder: &Path, name: &str, limit: u64| {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("rules"), limit.to_string()).unwrap();
    };
    let watched = Watched::new("rules", |folder| {
        version(folder, "..1", 100);
        symlink("..1", folder.join("..data")).unwrap();
        symlink("..data/rules", folder.join("rules")).unwrap();
    });
    let folder = watched.folder.path();
    version(folder, "..2", 200);
    symlink("..2", folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    fs::remove_dir_all(folder.join("..1")).unwrap();
    watched.soon_limits_to(200);
    fs::write(folder.join("..2").join("rules"), "300").unwrap();
    watched.soon_limits_to(300);
    fs::remove_file(folder.join("..data")).unwrap();
    watched.soon_says("cannot be read");
    symlink("..2", folder.join("..data")).unwrap();
    watched.soon_limits_to(300);
}

#[test]
fn a_file_that_is_not_valid_changes_nothing_and_says_why() {
    let watched = Watched::plain();
    for (text, error) in [
        ("x", "line 1: \"x\": invalid digit found in string"),
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("0", "limit must be at least 1"),
        ("666", "a closure of the application panicked"),
    ] {
        fs::write(&watched.path, text).unwrap();
        watched.soon_says(error);
        assert_eq!((watched.limit(), watched.watcher.status().version()), (100, 1), "{text:?}");
    }
    for (bytes, error) in [
        (&b"\xff\xfe1\x000\x00"[..], "is UTF-16: save it as UTF-8"),
        (b"\xfe\xff\x001\x000", "is UTF-16: save it as UTF-8"),
        (b"1\x000\x00", "is UTF-16: save it as UTF-8"),
        (b"\x80", "is not UTF-8"),
    ] {
        fs::write(&watched.path, bytes).unwrap();
        watched.soon_says(error);
    }
    fs::write(&watched.path, "100").unwrap();
    watched.soon_limits_to(100);
}

/// Such as a wrong path of a mount. The error stands in the log.
#[test]
fn a_secret_in_the_place_of_rules_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    fs::write(&path, "[[rule]]\nname = \"api\"\nquota = \"5/s\"\nby = \"ip\"").unwrap();
    let file = Registry::new().open(&path).unwrap();
    let layer = RateLimitLayer::try_new(file.rules()).unwrap();
    let watcher = file.watch(&layer);
    let watched = Watched { folder, path, layer, watcher };
    for (secret, error) in [("TOKEN=sesame\n", "line 1: not TOML"), ("TOKEN = \"sesame\"", "line 1, TOKEN")] {
        fs::write(&watched.path, secret).unwrap();
        watched.soon_says(error);
        let status = format!("{:?}", watched.watcher);
        assert!(!status.contains("sesame"), "{status}");
        let opened = Registry::new().open(&watched.path).unwrap_err();
        assert!(!format!("{opened} {opened:?}").contains("sesame"), "{opened}");
    }
}

#[test]
fn a_file_that_lacks_a_required_rule_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let rule = |name: &str| format!("[[rule]]\nname = \"{name}\"\nquota = \"100/min\"\nby = \"ip\"");
    fs::write(&path, rule("api")).unwrap();
    let file = Registry::new().require("api", []).open(&path).unwrap();
    let layer = RateLimitLayer::try_new(file.rules()).unwrap();
    let watcher = file.watch(&layer);
    let watched = Watched { folder, path, layer, watcher };
    fs::write(&watched.path, rule("renamed")).unwrap();
    watched.soon_says("rule \"api\": missing: the application needs a rule with this name");
    assert_eq!((watched.limit(), watched.watcher.status().version()), (100, 1));
}

#[test]
fn a_file_that_is_gone_or_is_none_keeps_the_rules() {
    let watched = Watched::plain();
    fs::remove_file(&watched.path).unwrap();
    watched.soon_says("cannot be read: No such file");
    fs::create_dir(&watched.path).unwrap();
    watched.soon_says("it is not a regular file");
    fs::remove_dir(&watched.path).unwrap();
    watched.soon_says("No such file");
    fs::write(&watched.path, "1".repeat((16 << 20) + 1)).unwrap();
    watched.soon_says("is longer than 16777216 bytes");
    assert_eq!(watched.limit(), 100);
    fs::write(&watched.path, "200").unwrap();
    watched.soon_limits_to(200);
    // The folder as well.
    let elsewhere = watched.folder.path().with_extension("moved");
    fs::rename(watched.folder.path(), &elsewhere).unwrap();
    watched.soon_says("No such file");
    fs::write(elsewhere.join("rules"), "300").unwrap();
    fs::rename(&elsewhere, watched.folder.path()).unwrap();
    watched.soon_limits_to(300);
}

#[test]
fn a_pipe_does_not_hold_up_the_watcher() {
    let watched = Watched::plain();
    fs::remove_file(&watched.path).unwrap();
    assert!(Command::new("mkfifo").arg(&watched.path).status().unwrap().success());
    watched.soon_says("cannot be read");
    fs::remove_file(&watched.path).unwrap();
    fs::write(&watched.path, "200").unwrap();
    watched.soon_limits_to(200);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the time of a test, not of a decision")]
fn a_file_that_is_written_in_pieces_is_not_used_halfway() {
    // If the machine stops the writer for as long as two readings are apart, half a file may be
    // used. Then it writes again.
    const APART: Duration = Duration::from_millis(250);
    loop {
        let watched = Watched::plain();
        let (mut longest, mut written) = (Duration::ZERO, Instant::now());
        let mut limits = Vec::new();
        // Each prefix is a valid file of a lower limit.
        for end in 1..=6 {
            let now = Instant::now();
            fs::write(&watched.path, &"200000"[..end]).unwrap();
            longest = longest.max(written.elapsed());
            written = now;
            sleep(Duration::from_millis(100));
            limits.push(watched.limit());
        }
        watched.soon_limits_to(200_000);
        if longest < APART {
            assert!(limits.iter().all(|limit| [100, 200_000].contains(limit)), "{limits:?}");
            assert_eq!(watched.watcher.status().version(), 2);
            return;
        }
    }
}

#[test]
fn a_watcher_that_is_dropped_replaces_nothing() {
    let Watched { folder: _folder, path, layer, watcher } = Watched::plain();
    fs::write(&path, "200").unwrap();
    sleep(Duration::from_millis(300));
    drop(watcher);
    let version = layer.version();
    fs::write(&path, "300").unwrap();
    sleep(Duration::from_millis(800));
    assert_eq!(layer.version(), version);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules");
    let open = || WatchedFile::open(&path, parse).unwrap_err().to_string();
    assert!(open().ends_with("rules: cannot be read: No such file or directory (os error 2)"), "{}", open());
    fs::write(&path, "many").unwrap();
    assert!(open().ends_with("rules: line 1: \"many\": invalid digit found in string"), "{}", open());
    assert!(open().starts_with(&*folder.path().to_string_lossy()));
}
