//! Mistakes on the command line, and servers that cannot be reached: one line, and exit code 2.

use crate::playground::Playground;
use crate::run::tollgate;

/// Returns the error line of a load that does not begin.
#[track_caller]
fn complaint(arguments: &[&str]) -> String {
    let ran = tollgate(&[&["load"], arguments].concat());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {}", ran.stderr);
    assert!(ran.stderr.starts_with("error: ") && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran.stderr
}

#[test]
fn a_bad_argument_is_one_error_line() {
    let url = "http://127.0.0.1:1/";
    let redis = ["--redis", "127.0.0.1:1"];
    for (arguments, hint) in [
        (&[][..], "<URL>"),
        (&["127.0.0.1:1"], "is not a URL"),
        (&["ftp://127.0.0.1/"], "\"ftp\" is no scheme of a load"),
        (&["http://"], "is not a URL"),
        (&["http://a b/"], "is not a URL"),
        (&["grpc://127.0.0.1:1/Method"], "must be /PACKAGE.SERVICE/METHOD"),
        (&["grpc://127.0.0.1:1/p.S/M", "--method", "PUT"], "--method has no meaning for gRPC"),
        (&[url, "--concurrency", "0"], "--concurrency"),
        (&[url, "--iterations", "0"], "--iterations"),
        (&[url, "--duration", "0s"], "--duration"),
        (&[url, "--duration", "10"], "expected a time such as 10s"),
        (&[url, "--keys", "0"], "--keys"),
        (&[url, "--keys", "2"], "--keys needs {key} in the URL, in a --header or in the --body"),
        (&[url, "--distribution", "even"], "possible values: uniform, zipf, hot"),
        (&[url, "--header", "x-user"], "expected NAME: VALUE"),
        (&[url, "--header", "x user: 1"], "is not the name of a header"),
        (&[url, "--header", "x-user: a\nb"], "--header"),
        (&[url, "--window", "0s"], "--window"),
        (&[url, "--window", "367d"], "--window <D>': expected at most 366d"),
        (&[url, "--window", "3000000d", "--windows", "aligned"], "--window <D>': expected at most 366d"),
        (&[url, "--windows", "fixed"], "possible values: sliding, aligned"),
        (&[url, "--threshold", "-1"], "'-1'"),
        (&[url, "--body", "@/no/such/file"], "--body: cannot read /no/such/file"),
        (&[url, "--plot", "/no/such/directory/load.svg"], "--plot: cannot write /no/such/directory/load.svg"),
        (&[url, "--policy", "api=5/s"], "cannot be used with"),
        (&[url, "--prefix", "mine"], "cannot be used with"),
        (&[url, "--redis", "127.0.0.1:1", "--policy", "api=5/s"], "cannot be used with"),
        (&redis, "--redis needs a --policy"),
        (&["--redis", "127.0.0.1:1", "--policy", "api"], "expected NAME=LIMIT/WINDOW"),
        (&["--redis", "ftp://127.0.0.1:1", "--policy", "a=1/s"], "no scheme of redis"),
        (&["--redis", "redis://ada@h", "--user", "ada", "--policy", "a=1/s"], "have no meaning"),
        (&["--redis", "127.0.0.1:1", "--prefix", "{", "--policy", "a=1/s"], "prefix"),
        (
            &["--redis", "127.0.0.1:1", "--policy", "a=1"],
            "--policy a: a load of a store ends no request in flight",
        ),
        (&["http://ci:s3cret@127.0.0.1:1/"], "the URL of a load has no user"),
        (&["http://ci:s3cret@127.0.0.1:1?a b"], "the URL of a load has no user"),
        (&["ci:s3cret@127.0.0.1:1/"], "the URL of a load has no user"),
        (&[url, "--unknown"], "--unknown"),
    ] {
        let line = complaint(arguments);
        assert!(line.contains(hint) && !line.contains("s3cret"), "{arguments:?}: {line}");
    }
}

#[test]
fn an_unreachable_server_is_one_error_line() {
    // No server listens on port 1.
    for url in ["http://127.0.0.1:1/", "grpc://127.0.0.1:1/p.Service/Method", "https://127.0.0.1:1/"] {
        let line = complaint(&[url]);
        assert!(line.contains("cannot connect to 127.0.0.1:1: "), "{line}");
        assert!(line.to_lowercase().contains("connection refused"), "{line}");
    }
    let line = complaint(&["http://no-such-host.invalid/"]);
    assert!(line.contains("cannot connect to no-such-host.invalid: "), "{line}");
    for redis in ["127.0.0.1:1", "redis://127.0.0.1:1/", "redis-cluster://127.0.0.1:1"] {
        let line = complaint(&["--redis", redis, "--policy", "api=5/s"]);
        assert!(line.starts_with("error: --redis: "), "{line}");
    }
}

#[test]
fn tls_to_a_server_without_tls_is_one_error_line() {
    let playground = Playground::start("api=5/s");
    let line = complaint(&[&format!("https://{}/", playground.address)]);
    assert!(line.contains("cannot connect to "), "{line}");
}

#[test]
fn help_lists_all_options_and_succeeds() {
    let ran = tollgate(&["load", "--help"]);
    assert_eq!(ran.code, Some(0));
    for option in ["--concurrency", "--iterations", "--duration", "--keys", "--distribution", "--header"] {
        assert!(ran.stdout.contains(option), "no {option}: {}", ran.stdout);
    }
    for option in ["--threshold", "--window", "--plot", "--redis", "--user", "--password", "--policy"] {
        assert!(ran.stdout.contains(option), "no {option}: {}", ran.stdout);
    }
    let none = tollgate(&[]);
    assert!(none.code == Some(2) && none.stderr.contains("requires a subcommand"), "{}", none.stderr);
    assert!(tollgate(&["--help"]).stdout.contains("load"));
    assert!(tollgate(&["--version"]).stdout.starts_with("tollgate 0."));
}
