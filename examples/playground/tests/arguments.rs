//! Mistakes on the command line: each is one error line, and the program does not start.

use std::net::TcpListener;
use std::process::Output;

use tollgate_test_servers::{Cluster, Kind, Sentinel, Server as Redis};

use crate::server::{Server, playground};

/// Returns the exit code and the error line of a playground that does not start.
#[track_caller]
pub(crate) fn complaint(options: &[&str]) -> (i32, String) {
    let mut command = playground();
    let Output { status, stdout, stderr } = command.args(options).output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(stdout, "", "{options:?}");
    assert_eq!(stderr.lines().count(), 1, "{options:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.trim_end().len() > 20, "{options:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{options:?}: {stderr}");
    (status.code().unwrap_or_default(), stderr)
}

#[test]
fn a_malformed_rule_is_one_error_line() {
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
        "api=9999999999999/s",
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
        "api=5/s,burst=1099511627777",
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
        "tokens=5/s,algorithm=leaky-bucket",
        "login=5/s,algorithm=leaky-bucket",
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
fn a_malformed_limit_of_requests_in_flight_is_one_error_line() {
    for limit in [
        "",
        "exports",
        "exports=",
        "exports=0",
        "exports=-1",
        "exports=2/s",
        "exports=1000001",
        "exports=2,",
        "exports=2,burst=3",
        "exports=2,algorithm=gcra",
        "exports=2,ttl=0s",
        "exports=2,ttl=soon",
        "exports=2,max-wait=5",
        "exports=2,max-wait=5s,max-wait=5s",
        "exports=2,key=user",
        "tokens=2",
        "login=2",
        "two\nlines=2",
    ] {
        let (code, line) = complaint(&["--in-flight", limit]);
        assert_eq!(code, 2, "{limit:?}: {line}");
        assert!(line.contains("--in-flight"), "{limit:?}: {line}");
    }
}

#[test]
fn a_malformed_option_is_one_error_line() {
    for (options, hint) in [
        (
            &["--rule", "api=5/s", "--in-flight", "api=6"][..],
            "--rule, --in-flight: two rules have the name \"api\"",
        ),
        (&["--rule", "api=5"], "expected NAME=LIMIT/WINDOW: --in-flight"),
        (&["--in-flight", "api=5/s"], "expected NAME=N: --rule"),
        (&["--block", "api=3"], "--block \"api=3\": expected RULE=DENIALS/TIME"),
        (&["--block", "other=3/m"], "there is no rule \"other\""),
        (&["--block", "api=0/m"], "rule \"api\", block: "),
        (&["--block", "api=4294967296/m"], "--block \"api=4294967296/m\": "),
        (&["--block", "api=x/m"], "\"x\" is not a whole number"),
        (&["--block", "api=3/soon"], "\"soon\" is not a time"),
        (&["--block", "api=3/0s"], "rule \"api\", block: "),
        (&["--block", "api=3/m", "--block", "api=4/m"], "the rule \"api\" has this option already"),
        (&["--leaving", "api"], "--leaving \"api\": expected RULE=UNITS"),
        (&["--leaving", "other=3"], "there is no rule \"other\""),
        (&["--leaving", "api="], "\"\" is not a whole number"),
        (&["--leaving", "api=1000000"], "rule \"api\", leaving: "),
        (&["--in-flight", "api=5", "--in-flight", "api=6"], "two rules have the name \"api\""),
        (&["--rule", "api=5/s", "--rule", "api=6/s"], "two rules have the name \"api\""),
        (&["--rules", "rules.toml", "--rule", "api=5/s"], "cannot be used with"),
        (&["--rules", "rules.toml", "--in-flight", "api=5"], "cannot be used with"),
        (&["--rules", "rules.toml", "--block", "api=5/1h"], "cannot be used with"),
        (&["--rules", "rules.toml", "--leaving", "api=5"], "cannot be used with"),
        (&["--rules", "rules.toml", "--missing-key", "skip"], "cannot be used with"),
        (&["--rule"], "--rule"),
        (&["--store", ""], "--store"),
        (&["--store", "disk"], "not a URL of redis"),
        (&["--store", "http://127.0.0.1/"], "\"http\" is no scheme of redis"),
        (&["--store", "redis://"], "--store"),
        (&["--store", "redis://127.0.0.1:99999/"], "--store"),
        (&["--store", "redis://127.0.0.1/first"], "--store"),
        (&["--store", "redis-sentinel://127.0.0.1"], "must name the master"),
        (&["--store", "redis-cluster://127.0.0.1/1"], "a cluster has no databases"),
        (&["--prefix", "mine"], "--prefix needs --store redis"),
        (&["--secret", "sesame"], "--secret needs --store redis"),
        (&["--password-file", "password"], "--password-file needs --store redis"),
        (&["--keep-corrections", "10"], "--keep-corrections needs --store redis"),
        (&["--store", "redis://127.0.0.1/", "--prefix", ""], "--store, --prefix: "),
        (&["--store", "redis://127.0.0.1/", "--prefix", "{a}"], "--store, --prefix: "),
        (&["--store", "redis://127.0.0.1/", "--secret", ""], "--store, --secret: "),
        (&["--on-failure", "open"], "needs --store redis"),
        (&["--store", "memory", "--on-failure", "closed"], "needs --store redis"),
        (
            &["--on-failure", "explode", "--store", "redis://127.0.0.1/"],
            "possible values: open, closed, fallback",
        ),
        (&["--breaker", "5/1s"], "needs --store redis"),
        (&["--lease", "64/250ms"], "needs --store redis"),
        (&["--deny-cache", "100"], "needs --store redis"),
        (&["--store", "redis://127.0.0.1/", "--max-keys", "100"], "--max-keys needs --store memory"),
        (&["--max-keys", "0"], "--max-keys must be at least 1, got 0"),
        (&["--share", "1/3"], "needs --store redis"),
        (&["--store", "redis://127.0.0.1/", "--share", "1/3"], "--share needs --on-failure fallback"),
        (&["--store", "redis://127.0.0.1/", "--on-failure", "open", "--share", "1/3"], "--share needs"),
        (
            &["--store", "redis://127.0.0.1/", "--on-failure", "fallback", "--share", "a third"],
            "--share: \"a third\"",
        ),
        (
            &["--store", "redis://127.0.0.1/", "--on-failure", "fallback", "--share", "0/3"],
            "a share of nothing",
        ),
        (
            &["--store", "redis://127.0.0.1/", "--on-failure", "fallback", "--share", "4/3"],
            "more than the whole",
        ),
        (&["--store", "redis://127.0.0.1/", "--breaker", "5"], "--breaker: \"5\" must be"),
        (&["--store", "redis://127.0.0.1/", "--lease", "0/1s"], "at least 1 unit, got 0"),
        (&["--store", "redis://127.0.0.1/", "--deny-cache", "0"], "--deny-cache must be at least 1"),
        (&["--store", "redis://127.0.0.1/", "--breaker", "five/1s"], "--breaker: \"five/1s\" must be"),
        (&["--store", "redis://127.0.0.1/", "--breaker", "5/soon"], "--breaker: \"5/soon\" must be"),
        (&["--store", "redis://127.0.0.1/", "--breaker", "0/1s"], "1 to 128 failures"),
        (&["--store", "redis://127.0.0.1/", "--breaker", "5/0s"], "at least 1 ms"),
        (&["--timeout", "1s"], "needs --store redis"),
        (&["--timeout", "soon", "--store", "redis://127.0.0.1/"], "--timeout: \"soon\" must be a time"),
        (&["--timeout", "0s", "--store", "redis://127.0.0.1/"], "--timeout: \"0s\" must be a time"),
        (&["--trust", "10.0.0.0/8"], "needs --client-ip-header"),
        (&["--client-ip-header", "x-forwarded-for"], "needs --trust"),
        (&["--trust", "10.0.0.0/33", "--client-ip-header", "x-forwarded-for"], "10.0.0.0/33"),
        (&["--trust", "everyone", "--client-ip-header", "x-forwarded-for"], "everyone"),
        (&["--trust", "", "--client-ip-header", "x-forwarded-for"], "--trust"),
        (&["--trust", "10.0.0.0/8", "--client-ip-header", "x forwarded for"], "x forwarded for"),
        (&["--trust", "10.0.0.0/8", "--client-ip-header", ""], "--client-ip-header"),
        (
            &["--headers", "all"],
            "possible values: ietf, x-epoch, x-delta, ietf+x-epoch, ietf+x-delta, draft-06, draft-07, none",
        ),
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
fn an_unusable_listen_address_is_one_error_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for address in [taken.as_str(), "", "nowhere", "127.0.0.1", "127.0.0.1:99999", "\n"] {
        let (code, line) = complaint(&["--listen", address]);
        assert_ne!(code, 0, "{address:?}");
        assert!(line.contains(&format!("cannot listen on {address:?}")), "{line}");
    }
}

/// Errors go to logs, so they must not contain the password, whatever is wrong with the URL.
#[test]
fn errors_do_not_show_the_password_of_a_url() {
    for url in [
        "http://ada:hunter2@127.0.0.1/",
        "redis://ada:hunter2@127.0.0.1:port/",
        "redis://ada:hunter2@127.0.0.1/first",
        "redis://ada:hunter2@",
        "redis-sentinel://ada:hunter2@127.0.0.1",
        "redis-sentinel://ada:hunter2@127.0.0.1/main/first",
        "redis-cluster://ada:hunter2@127.0.0.1/1",
        "redis-cluster://ada:hunter2@127.0.0.1:port",
    ] {
        let (code, line) = complaint(&["--store", url]);
        assert_eq!(code, 2, "{url:?}: {line}");
        assert!(line.contains("--store") && !line.contains("hunter2"), "{url:?}: {line}");
    }
}

#[test]
fn a_wrong_password_fails_the_start_and_is_not_shown() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    redis.command(&["CONFIG", "SET", "requirepass", "sesame"]).unwrap();
    let address = redis.address();
    for credentials in ["", ":hunter2@", "ada:hunter2@"] {
        let (code, line) = complaint(&["--store", &format!("redis://{credentials}{address}/")]);
        assert_eq!(code, 2, "{line}");
        assert!(line.contains("--store: redis: ") && !line.contains("hunter2"), "{line}");
    }
    let server = Server::playground(&["--store", &format!("redis://:sesame@{address}/"), "--timeout", "30s"]);
    assert_eq!(server.get("/").remaining("api"), 9);
}

#[test]
fn the_banner_does_not_show_the_password() {
    // No server listens on port 1. That is no mistake on the command line.
    for (url, shown) in [
        ("redis://127.0.0.1:1/", "redis://127.0.0.1:1/"),
        ("redis://:hunter2@127.0.0.1:1/3", "redis://127.0.0.1:1/3"),
        ("redis://ada:h@nter2@127.0.0.1:1", "redis://127.0.0.1:1"),
        (
            "redis-sentinel://ada:hunter2@127.0.0.1:1,[::1]:1/main",
            "redis-sentinel://127.0.0.1:1,[::1]:1/main",
        ),
        ("redis-cluster://:hunter2@127.0.0.1:1", "redis-cluster://127.0.0.1:1"),
        ("unix:///no/such/socket?pass=hunter2", "unix:///no/such/socket"),
    ] {
        let mut server = Server::playground(&["--store", url]);
        let said = server.first_line().to_owned() + &server.says_until("http://");
        assert!(said.contains(&format!(", with its limits in {shown}. ")), "{said}");
        assert!(said.contains("Requests are refused while Redis does not answer within 1 second."), "{said}");
        assert!(!said.contains("nter2"), "{said}");
    }
    assert!(Server::with_rules(&["api=5/s"]).first_line().contains(", with its limits in memory. "));
}

#[test]
fn an_error_names_the_url_scheme_that_fits_the_server() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let (_, line) = complaint(&["--store", &cluster.nodes()[0].url()]);
    assert!(line.contains("redis-cluster://"), "{line}");
    let sentinel = Sentinel::start(Kind::Redis8_2).unwrap();
    let (_, line) = complaint(&["--store", &sentinel.sentinels()[0].url()]);
    assert!(line.contains("redis-sentinel://"), "{line}");
    let address = sentinel.sentinels()[0].address();
    let (_, line) = complaint(&["--store", &format!("redis-sentinel://{address}/another")]);
    assert!(line.contains("--store: redis: "), "{line}");
}

#[test]
fn help_lists_all_options_and_succeeds() {
    let output = playground().arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for option in [
        "--listen",
        "--metrics",
        "--store",
        "--max-keys",
        "--prefix",
        "--secret",
        "--password-file",
        "--keep-corrections",
        "--on-failure",
        "--share",
        "--timeout",
        "--breaker",
        "--lease",
        "--deny-cache",
        "--rule",
        "--rules",
        "--in-flight",
        "--trust",
        "--client-ip-header",
        "--headers",
        "--missing-key",
    ] {
        assert!(help.contains(option), "{help}");
    }
    assert!(help.contains("NAME=LIMIT/WINDOW[,burst=N][,algorithm=A][,key=K][,max-wait=D]"), "{help}");
    assert!(help.contains("NAME=N[,key=K][,ttl=D][,max-wait=D]"), "{help}");
    for route in [
        "GET /slow/MS",
        "GET /drip/MS",
        "POST /chat/ESTIMATE/USED",
        "POST /stream/ESTIMATE/CHUNKS",
        "POST /login",
    ] {
        assert!(help.contains(route), "{help}");
    }
}
