//! `--leaving` and `--block`.

use crate::server::Server;

#[test]
fn batch_requests_leave_units_to_others() {
    let server = Server::playground(&["--rule", "api=10/d", "--leaving", "api=4"]);
    let ask = |headers: &[(&str, &str)]| server.connect().request("GET", "/", headers).status;
    for _ in 0..6 {
        assert_eq!(ask(&[("x-class", "batch")]), 200);
    }
    assert_eq!(ask(&[("x-class", "batch")]), 429);
    for _ in 0..4 {
        assert_eq!(ask(&[]), 200);
    }
    assert_eq!((ask(&[]), ask(&[("x-class", "unknown")])), (429, 429));
}

#[test]
fn a_client_that_goes_on_after_its_denials_is_blocked() {
    let server = Server::playground(&["--rule", "api=2/s", "--block", "api=5/1h"]);
    assert_eq!(server.me("api", "blocked_for"), None);
    let ask = || server.get("/");
    let mut answers = Vec::new();
    while answers.last().is_none_or(|body: &String| !body.contains("abnormal-usage-detected")) {
        answers.push(ask().body);
        assert!(answers.len() < 50, "{answers:?}");
    }
    let blocked = ask();
    let wait: u64 = blocked.header("retry-after").unwrap().parse().unwrap();
    assert_eq!((blocked.status, (3_000..=3_600).contains(&wait)), (429, true), "{wait}");
    let me = server.get("/me").json();
    assert_eq!(me["policies"].as_array().unwrap().len(), 1, "a rule and its block are one: {me}");
    assert!((3_000..=3_600).contains(&server.me("api", "blocked_for").unwrap()), "{me}");
}

#[test]
fn the_banner_says_when_a_rule_blocks() {
    let options = ["--rule", "login=5/h", "--in-flight", "exports=2", "--block", "login=20/15m"];
    let said = Server::playground(&options).says_until("http://");
    assert!(
        said.contains(
            "; after 20 denials within 1 hour blocked for 15 minutes; only failures of POST /login count\n"
        ),
        "{said}"
    );
    assert_eq!(said.matches("blocked for").count(), 1, "{said}");
    assert!(said.contains("-d 'user=ada&password=open sesame'"), "{said}");
    let said = Server::with_rules(&["api=5/d"]).says_until("http://");
    assert!(said.contains("Add --rule login=5/h --block login=20/15m to limit failures"), "{said}");
}
