//! Mistakes on the command line: one clear line each, and a program that does not start.

use std::net::TcpListener;
use std::process::Output;

use crate::server::program;

/// The line that the playground says instead of starting.
#[track_caller]
fn complaint(options: &[&str]) -> (i32, String) {
    let mut command = program("playground");
    let Output { status, stdout, stderr } = command.args(options).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(stdout, "", "{options:?}");
    assert_eq!(stderr.lines().count(), 1, "{options:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.trim_end().len() > 20, "{options:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{options:?}: {stderr}");
    (status.code().unwrap_or_default(), stderr)
}

#[test]
fn mistakes_in_rules() {
    for rule in [
        "",
        "api",
        "=5/s",
        "api=",
        "api=5",
        "api=5/",
        "api=/s",
        "api=5/10",
        "api=5/s/s",
        "api=five/s",
        "api=5.5/s",
        "api=-5/s",
        "api=0/s",
        "api=99999999999/s",
        "api=5/0s",
        "api=5/1.5s",
        "api=5/367d",
        "api=5/99999999999999999999s",
        "api=5/s,",
        "api=5/s,,burst=1",
        "api=5/s,burst",
        "api=5/s,burst=",
        "api=5/s,burst=0",
        "api=5/s,burst=x",
        "api=5/s,burst=4294967296",
        "api=1/366d,burst=4294967295",
        "api=5/s,burst=1,burst=1",
        "api=5/s,color=red",
        "api=5/s,algorithm=",
        "api=5/s,algorithm=leaky",
        "api=5/s,burst=5,algorithm=fixed-window",
        "api=5/s,burst=5,algorithm=fixed-window-aligned",
        "api=5/s,burst=5,algorithm=sliding-window",
        "api=5/s,burst=5,algorithm=sliding-buckets",
        "api=5/s,burst=5,algorithm=sliding-log",
        "api=100001/s,algorithm=sliding-log",
        "api=5/s,max-wait=5s",
        "api=5/s,algorithm=leaky-bucket,max-wait=soon",
        "api=5/s,algorithm=leaky-bucket,max-wait=99999999999d",
        "api=5/s,key=",
        "api=5/s,key=user",
        "api=5/s,key=ip+",
        "api=5/s,key=|ip",
        "api=5/s,key=header:",
        "api=5/s,key=header:not a header",
        "api=5/s,key=header:é",
        "api=5/s,key=cookie:not a cookie",
        "caffè=5/s",
        "two\nlines=5/s",
        "api=5/\n\ns",
    ] {
        let (code, line) = complaint(&["--rule", rule]);
        assert_eq!(code, 2, "{rule:?}: {line}");
        assert!(line.contains("--rule"), "{rule:?}: {line}");
    }
}

#[test]
fn mistakes_in_other_options() {
    for (options, hint) in [
        (&["--rule", "api=5/s", "--rule", "api=6/s"][..], "two rules have the name \"api\""),
        (&["--rule"], "--rule"),
        (&["--store", "redis://127.0.0.1/"], "only \"memory\""),
        (&["--store", ""], "only \"memory\""),
        (&["--trust", "10.0.0.0/8"], "needs --client-ip-header"),
        (&["--client-ip-header", "x-forwarded-for"], "needs --trust"),
        (&["--trust", "10.0.0.0/33", "--client-ip-header", "x-forwarded-for"], "10.0.0.0/33"),
        (&["--trust", "everyone", "--client-ip-header", "x-forwarded-for"], "everyone"),
        (&["--trust", "", "--client-ip-header", "x-forwarded-for"], "--trust"),
        (&["--trust", "10.0.0.0/8", "--client-ip-header", "x forwarded for"], "x forwarded for"),
        (&["--trust", "10.0.0.0/8", "--client-ip-header", ""], "--client-ip-header"),
        (&["--headers", "all"], "possible values: ietf, x-epoch, x-delta, none"),
        (&["--headers", "a\n\nb"], "invalid value"),
        (&["--headers", "ietf", "--headers", "none"], "--headers"),
        (&["--missing-key", "ignore"], "possible values: refuse, skip, share"),
        (&["--unknown"], "--unknown"),
        (&["--un\nkn\town"], "--un kn\u{fffd}own"),
        (&["stray"], "stray"),
    ] {
        let (code, line) = complaint(options);
        assert_eq!(code, 2, "{options:?}: {line}");
        assert!(line.contains(hint), "{options:?}: {line}");
    }
}

#[test]
fn addresses_that_cannot_be_listened_on() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for address in [taken.as_str(), "", "nowhere", "127.0.0.1", "127.0.0.1:99999", "\n"] {
        let (code, line) = complaint(&["--listen", address]);
        assert_ne!(code, 0, "{address:?}");
        assert!(line.contains(&format!("cannot listen on {address:?}")), "{line}");
    }
}

#[test]
fn help_is_no_mistake() {
    let output = program("playground").arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for option in
        ["--listen", "--store", "--rule", "--trust", "--client-ip-header", "--headers", "--missing-key"]
    {
        assert!(help.contains(option), "{help}");
    }
    assert!(help.contains("NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]"), "{help}");
}
