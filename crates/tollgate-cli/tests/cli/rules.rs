//! Files of rules for `tollgate check` and `explain`, and mistakes in their arguments.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::run::tollgate;

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
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rules-{number}.{extension}"));
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
        (&["check", folder], "irectory"),
        (&["check", &binary], "UTF-8"),
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
