//! `tollgate explain`, without a Redis and with one.

use tollgate_test_servers::{Kind, Server};

use crate::rules::{RULES, file};
use crate::run::{load, row, shown, tollgate};

/// What is said of a rule: the line after its words.
#[track_caller]
fn said<'a>(explained: &'a str, rule: &str) -> &'a str {
    let mut lines = explained.lines();
    lines.find(|line| line.starts_with(&format!("{rule}: "))).unwrap_or_else(|| panic!("{explained}"));
    lines.next().unwrap().trim_start()
}

#[test]
fn a_request_is_explained_rule_by_rule() {
    let path = file(RULES);
    let explain = |more: &[&str]| shown(&[&["explain", &path], more].concat());
    let api = ["--path", "/api/users?x=1", "--peer", "192.0.2.1"];
    let explained = explain(&api);
    assert_eq!(said(&explained, "burst"), "key @192.0.2.1, cost 1, 20 of 20 left: passes");
    assert_eq!(
        said(&explained, "api"),
        "not explained: only the application knows its key user, its cost kib, its class plan (see --given)"
    );
    assert_eq!(said(&explained, "token"), "does not apply to the request");
    let end = "by the rules that are explained, the request passes\n\
               Without --redis, each key is shown as if it had used nothing.\n";
    assert!(explained.ends_with(end), "{explained}");

    let pro = ["--given", "key user=ada", "--given", "class plan=pro", "--given", "cost kib=200"];
    let explained = explain(&[&api[..], &pro].concat());
    assert_eq!(said(&explained, "api"), "key 0|=hidden, cost 200, 600 of 600 left: passes");
    assert!(explained.contains("\nthe request passes\n"), "{explained}");
    let free = ["--given", "key user=#42", "--given", "class plan=free", "--given", "cost kib=200"];
    let explained = explain(&[&api[..], &free].concat());
    assert_eq!(
        said(&explained, "api"),
        "key 0|=hidden, cost 200, 60 of 60 left: is refused with 422 Unprocessable Entity: the cost exceeds the whole \
         quota: api"
    );
    assert!(explained.contains("\nthe request is refused with 422 "), "{explained}");

    let log_in = ["--path", "/log-in", "--method", "POST", "--peer", "[2001:db8::1]:4000"];
    let explained = explain(&log_in);
    assert_eq!(
        said(&explained, "token"),
        "is refused with 400 Bad Request: the request carries no key: token"
    );
    let explained = explain(&[&log_in[..], &["--header", "authorization: Bearer sesame"]].concat());
    assert_eq!(said(&explained, "token"), "key (=hidden,=POST), cost 1, 5 of 5 left: passes");
    assert!(said(&explained, "burst").starts_with("key @2001:db8::/64, cost 1, "), "{explained}");

    assert!(explain(&["--peer", "10.0.0.1"]).contains("does not apply: the request is exempt"));
    let hops = ["--trust", "10.0.0.0/8", "--client-ip-header", "x-forwarded-for"];
    let proxied = ["--peer", "10.0.0.1", "--header", "x-forwarded-for: 192.0.2.7"];
    assert!(explain(&[&hops[..], &proxied].concat()).contains("key @192.0.2.7, "));
    let unknown = explain(&[]);
    assert!(
        said(&unknown, "burst")
            .ends_with("the server does not provide the peer's address: burst (give --peer)")
    );
}

#[test]
fn a_rule_in_shadow_is_explained_and_refuses_nothing() {
    let rules = "[[rule]]\nname = \"a\"\nquota = \"9/s\"\nby = \"ip\"\n\
                 [[rule]]\nname = \"b\"\nquota = \"5/s\"\nby = \"ip\"\ncost = \"kib\"\nmode = \"shadow\"\n";
    let given = ["--peer", "192.0.2.1", "--given", "cost kib=6"];
    let explained = shown(&[&["explain", &file(rules)], &given[..]].concat());
    let refused = "in shadow, so nothing follows: key @192.0.2.1, cost 6, 5 of 5 left: is refused with 422";
    assert!(said(&explained, "b").starts_with(refused), "{explained}");
    assert!(
        explained.contains("; in shadow: refuses nothing\n") && explained.contains("\nthe request passes\n"),
        "{explained}"
    );
}

#[test]
fn rules_that_cannot_be_explained_do_not_hide_the_others() {
    let rules = "[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"path\"\n\
                 [[rule]]\nname = \"b\"\nquota = \"5/s\"\nby = \"ip\"\nquota-by = \"claims\"\n";
    let explained = shown(&["explain", &file(rules)]);
    assert_eq!(
        said(&explained, "a"),
        "not explained: only the application knows its route path (see --given)"
    );
    assert_eq!(
        said(&explained, "b"),
        "not explained: only the application knows its quota claims (see --given)"
    );
    assert!(!explained.contains("the request "), "{explained}");
    let elsewhere = file("[[rule]]\nname = \"a\"\nquota = \"5/s\"\nby = \"ip\"\nwhen = { path = \"/a\" }");
    let explained = shown(&["explain", &elsewhere]);
    assert_eq!(said(&explained, "a"), "does not apply to the request");
    assert!(!explained.contains("\nthe request "), "{explained}");
}

#[test]
fn an_explanation_hides_secrets() {
    let by = |name: &str, by: &str| format!("[[rule]]\nname = \"{name}\"\nquota = \"5/s\"\nby = \"{by}\"\n");
    let rules = by("a", "header:x-api-key")
        + &by("b", "cookie:s")
        + &by("c", "bearer | user")
        + &by("d", "basic-user | user");
    let headers = ["x-api-key: sesame", "cookie: s=sesame"].map(|header| ["--header", header]).concat();
    for authorization in ["authorization: Bearer sesame", "authorization: Basic c2VzYW1lOnNlc2FtZQ=="] {
        let path = file(&rules);
        let more = ["explain", &path, "--given", "key user==sesame", "--header", authorization];
        let explained = shown(&[&more[..], &headers].concat());
        assert!(!explained.contains("sesame") && !explained.contains("c2Vz"), "{explained}");
        assert_eq!(explained.matches("hidden, cost 1, 5 of 5 left: passes").count(), 4, "{explained}");
    }
    for arguments in
        [["--header", "sesame"], ["--header", "x-key: \u{1}sesame"], ["--given", "key user=(sesame"]]
    {
        let ran = tollgate(&[&["explain", &file(by("a", "user"))], &arguments[..]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(!ran.stderr.contains("sesame"), "{}", ran.stderr);
    }
}

#[test]
fn an_explanation_shows_what_is_left_in_a_redis_and_charges_nothing() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let rule = |name: &str, quota: &str, more: &str| {
        format!("[[rule]]\nname = \"{name}\"\nquota = \"{quota}\"\nby = \"header:x-user\"\n{more}\n")
    };
    let text = rule("day", "100/d", "cost = 3\nalgorithm = \"fixed-window\"") + &rule("api", "40/d", "");
    let path = file(text);
    let explain = |more: &[&str]| {
        shown(&[&["explain", &path, "--redis", &url, "--header", "x-user: 1"], more].concat())
    };
    let charge = |requests: &str, more: &[&str]| {
        let policies = ["--policy", "day=100/d,algorithm=fixed-window", "--policy", "api=40/d"];
        let all = ["--redis", &url, "--prefix", "tollgate", "-n", requests, "-c", "1"];
        load(&[&all[..], &policies, more].concat());
    };
    charge("30", &[]);
    for _ in 0..50 {
        let explained = explain(&[]);
        assert_eq!(said(&explained, "day"), "key =hidden, cost 3, 70 of 100 left: passes");
        assert_eq!(said(&explained, "api"), "key =hidden, cost 1, 10 of 40 left: passes");
        assert!(explained.ends_with("\nthe request passes\n"), "{explained}");
    }
    charge("10", &[]);
    let explained = explain(&[]);
    assert_eq!(said(&explained, "day"), "key =hidden, cost 3, 60 of 100 left: passes");
    let refused = "is refused with 429 Too Many Requests: quota exceeded: api, retry after ";
    assert!(said(&explained, "api").starts_with(&format!("key =hidden, cost 1, 0 of 40 left: {refused}")));
    assert!(explained.contains(&format!("\nthe request {refused}")), "{explained}");
    assert_eq!(row(&shown(&["look", "=1", "--redis", &url]), "day")[4], "40", "nothing was charged");

    let secret = ["--secret", "sesame"];
    assert!(explain(&secret).contains("100 of 100 left"));
    charge("5", &secret);
    assert!(explain(&secret).contains("95 of 100 left"));
    assert!(explain(&["--prefix", "other"]).contains("100 of 100 left"));
}

#[test]
fn a_blocked_key_and_taken_slots_are_explained() {
    let redis = Server::start(Kind::Valkey9_1).unwrap();
    let url = redis.url();
    let rules = "[[rule]]\nname = \"log-ins\"\nquota = \"5/min\"\nby = \"ip\"\nblock = { after = 3, for = \"15m\" }\n\
                 [[rule]]\nname = \"slots\"\nin-flight = 2\nby = \"ip\"\n";
    let path = file(rules);
    let explain = || shown(&["explain", &path, "--redis", &url, "--peer", "192.0.2.1"]);
    let explained = explain();
    assert_eq!(said(&explained, "slots"), "key @192.0.2.1, cost 1, 2 of 2 left: passes");
    shown(&["block", "@192.0.2.1", "--policy", "log-ins", "--for", "15m", "--redis", &url]);
    let explained = explain();
    let blocked =
        "is refused with 429 Too Many Requests: blocked after too many refusals: log-ins, retry after ";
    assert!(said(&explained, "log-ins").contains(blocked), "{explained}");
    assert!(explained.contains(&format!("\nthe request {blocked}")), "{explained}");
}
