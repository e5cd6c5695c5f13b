//! `tollgate block`, `unblock` and `blocked`.

use tollgate_test_servers::{Kind, Server};

use crate::playground::{Playground, get};
use crate::run::{row, shown, tollgate};

#[test]
fn a_key_is_blocked_until_it_is_unblocked() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let run = |args: &[&str]| shown(&[args, &["ada", "--redis", &url]].concat());
    let none = "key =ada\nno policy blocks it\n";
    assert_eq!(run(&["blocked"]), none);
    for policy in ["log-ins", "mails"] {
        let table = run(&["block", "--policy", policy, "--for", "15m"]);
        assert!(["15m", "14m 59s"].contains(&row(&table, policy)[1]), "{table}");
    }
    let names = redis.command(&["KEYS", "*"]).unwrap();
    assert!(names.contains("tollgate:2:{=ada}:log-ins~block"), "{names}");
    let both = run(&["blocked"]);
    assert!(both.contains("log-ins") && both.contains("mails"), "{both}");
    let table = run(&["look"]);
    assert_eq!(row(&table, "mails")[1], "block", "{table}");

    assert_eq!(run(&["unblock", "--policy", "mails"]), "key =ada\nunblocked by mails\n");
    assert_eq!(run(&["blocked", "--policy", "mails"]), none);
    assert_eq!(run(&["unblock"]), "key =ada\nunblocked by log-ins\n");
    assert_eq!((run(&["unblock"]), run(&["blocked"])), (none.to_owned(), none.to_owned()));
}

#[test]
fn a_service_heeds_a_block_that_an_operator_starts_and_lifts() {
    let redis = Server::start(Kind::Valkey9_1).unwrap();
    let options =
        ["--store", &redis.url(), "--timeout", "30s", "--rule", "api=20/d", "--block", "api=50/15m"];
    let playground = Playground::start_with(&options);
    let run = |args: &[&str]| shown(&[args, &["@127.0.0.1", "--redis", &redis.url()]].concat());
    assert!(get(playground.address, "/").starts_with("HTTP/1.1 200 "));
    // Its own blocks last for 15 minutes.
    run(&["block", "--policy", "api", "--for", "1h"]);
    let blocked = get(playground.address, "/");
    assert!(blocked.starts_with("HTTP/1.1 429 ") && blocked.contains("abnormal-usage-detected"), "{blocked}");
    run(&["unblock"]);
    assert!(get(playground.address, "/").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_block_needs_a_name_and_a_time() {
    for (args, why) in [
        (&["block", "ada"][..], "--policy"),
        (&["block", "ada", "--policy", "p"], "--for"),
        (&["block", "ada", "--policy", "p", "--for", "soon"], "\"soon\" is not a time"),
        (&["block", "ada", "--policy", "", "--for", "15m"], "name"),
        (&["block", "ada", "--policy", "p", "--for", "400d"], "366 days"),
    ] {
        let ran = tollgate(args);
        assert!(ran.code == Some(2) && ran.stderr.contains(why), "{args:?}: {}", ran.stderr);
    }
}
