//! The fields about quotas in a response.

use tollgate_examples::testing::Response;

use crate::server::Server;

/// Returns the answers to a request that passes and to one that is refused.
fn answers(style: &str) -> (Response, Response) {
    let server = Server::playground(&["--rule", "api=1/h", "--headers", style]);
    let (passed, refused) = (server.get("/"), server.get("/"));
    assert_eq!(passed.status, 200);
    refused.assert_refused_by(&["api"]);
    (passed, refused)
}

#[test]
fn the_fields_of_the_ietf_draft() {
    let (passed, refused) = answers("ietf");
    for response in [&passed, &refused] {
        assert_eq!(response.header("ratelimit-policy"), Some("\"api\";q=1;w=3600"));
        assert_eq!(response.header("x-ratelimit-limit"), None);
    }
    assert_eq!(passed.header("ratelimit"), Some("\"api\";r=0;t=3600"));
    assert_eq!(refused.field("ratelimit", "api", "t"), refused.retry_after().as_secs());
}

#[test]
fn x_fields_with_a_reset_in_seconds_or_as_a_time() {
    let number = |response: &Response, name| response.header(name).unwrap().parse::<u64>().unwrap();
    let (passed, refused) = answers("x-delta");
    assert_eq!(number(&passed, "x-ratelimit-reset"), 3_600);
    assert!(number(&refused, "x-ratelimit-reset") <= 3_600);
    let (passed_epoch, refused_epoch) = answers("x-epoch");
    // A time after this test was written.
    assert!(number(&passed_epoch, "x-ratelimit-reset") > 1_700_000_000);
    for response in [passed, refused, passed_epoch, refused_epoch] {
        assert_eq!(
            (number(&response, "x-ratelimit-limit"), number(&response, "x-ratelimit-remaining")),
            (1, 0)
        );
        assert_eq!(response.header("ratelimit"), None);
        assert_eq!(response.header("ratelimit-policy"), None);
    }
}

#[test]
fn no_fields_but_retry_after() {
    let (passed, refused) = answers("none");
    for response in [&passed, &refused] {
        for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-reset"] {
            assert_eq!(response.header(name), None);
        }
    }
    assert_eq!(passed.header("retry-after"), None);
}

#[test]
fn a_quote_in_a_policy_name_is_escaped_in_the_fields() {
    let server = Server::with_rules(&[r#"a"b\c;r, =1/h"#]);
    let passed = server.get("/");
    assert_eq!(passed.header("ratelimit-policy"), Some(r#""a\"b\\c;r, ";q=1;w=3600"#));
    assert_eq!(passed.header("ratelimit"), Some(r#""a\"b\\c;r, ";r=0;t=3600"#));
    server.get("/").assert_refused_by(&[r#"a"b\c;r, "#]);
    assert_eq!(server.get("/me").json()["policies"][0]["name"], r#"a"b\c;r, "#);
}
