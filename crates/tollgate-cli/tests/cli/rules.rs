//! Files of rules for `tollgate check` and `explain`, and mistakes in their arguments.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::{command, tollgate};

pub(crate) const RULES: &str = r#"
[[rule]]
name = "burst"
quota = "10/s burst 20"
by = "ip"
exempt = ["10.0.0.0/8", "health"]

[[rule]]
name = "api"
quota = "60/min"
by = "user | ip"
when = { path = "/api/*" }
cost = "kib"
tiers = { by = "plan", quotas = { pro = "600/min" } }

[[rule]]
name = "token"
quota = "5/d"
by = "bearer + method"
algorithm = "fixed-window"
when = { path = "/log-in", method = "POST" }
"#;

/// Writes a file of rules, and returns its path.
pub(crate) fn file(text: impl AsRef<[u8]>) -> String {
    file_of("toml", text)
}

pub(crate) fn file_of(extension: &str, text: impl AsRef<[u8]>) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Some runners start a process for each test.
    let name = format!("rules-{}-{number}.{extension}", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_cannot_be_read_or_understood_is_one_error_line() {
    let valid = file("[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"user\"");
    let binary = file([0xff, 0xfe, b'x']);
    let folder = env!("CARGO_TARGET_TMPDIR");
    for (arguments, hint) in [
        (&["check", "no\u{7}file"][..], "no\u{fffd}file: "),
        (&["check", folder], "not a regular file"),
        (&["check", &binary], "is UTF-16: save it as UTF-8"),
        (&["check", &valid, "--before", &binary], "UTF-8"),
        (&["explain", &binary], "UTF-8"),
        (&["explain"], "<FILE>"),
        (&["explain", &valid, "--method", "get"], "--method \"get\": expected one such as GET"),
        (&["explain", &valid, "--path", "api"], "--path: expected one such as /api/users"),
        (&["explain", &valid, "--header", "x y: 1"], "--header: expected a name, a colon and a value"),
        (&["explain", &valid, "--peer", "localhost"], "--peer \"localhost\": expected one such as"),
        (&["explain", &valid, "--trust", "10.0.0.0/8"], "--client-ip-header"),
        (
            &["explain", &valid, "--trust", "x", "--client-ip-header", "x"],
            "--trust: \"x\" is neither a network",
        ),
        (&["explain", &valid, "--given", "key usr=ada"], "--given key usr: no rule of the file has it"),
        (&["explain", &valid, "--given", "key user"], "--given: expected 'key NAME=KEY'"),
        (&["explain", &valid, "--given", "cost user=1"], "--given cost user: no rule of the file has it"),
        (&["explain", &valid, "--redis", "127.0.0.1:1"], "--redis: "),
    ] {
        let ran = tollgate(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with("error: ") && ran.stderr.contains(hint),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

/// To open it waits until someone writes to it.
#[cfg(unix)]
#[test]
fn a_pipe_is_refused_as_a_file_of_rules() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("rules.toml").to_str().unwrap().to_owned();
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let valid = file(RULES);
    for arguments in [
        &["check", &pipe][..],
        &["check", &valid, "--before", &pipe],
        &["explain", &pipe],
        &["replay", &valid, "--rules", &pipe],
    ] {
        let ran = tollgate(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}");
        assert!(ran.stderr.ends_with("cannot be read: it is not a regular file\n"), "{}", ran.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_to_a_full_disk_is_an_error_and_a_closed_pipe_is_none() {
    let valid = file(RULES);
    let wrong = file("x");
    for arguments in
        [&["check", &valid][..], &["check", &wrong], &["explain", &valid], &["--help"], &["--version"]]
    {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = command(arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("error: standard output: No space left on device"), "{stderr}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = command(arguments).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8(closed.stderr).unwrap(), "", "{arguments:?}");
    }
}

#[test]
fn control_characters_of_a_file_are_replaced() {
    let junk = "\\u001b[31m\\u0007";
    let words = format!(
        "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"ip\"\nexempt = \"{junk}\"\nreserve = \"{junk}\"\ntiers = {{ by = \"{junk}\", quotas = {{ \"{junk}\" = \"5/s\" }} }}"
    );
    let wrong = format!("[[rule]]\n\"{junk}\" = \"{junk}\"\nname = \"{junk}\"");
    for text in [words, wrong] {
        let path = file(text);
        for command in ["check", "explain"] {
            let ran = tollgate(&[command, &path]);
            let all = ran.stdout + &ran.stderr;
            assert!(!all.is_empty() && !all.contains(['\u{1b}', '\u{7}']), "{all:?}");
        }
    }
    let long = format!("[[rule]]\nname = \"{}\"\nquota = \"5/s\"\nby = \"ip\"", "x".repeat(1_000_000));
    assert!(tollgate(&["check", &file(long)]).stdout.len() < 10_000);
}
