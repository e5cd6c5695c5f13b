//! `/chat` and `/stream`: units that are reserved before the work and settled after it.

use std::time::Instant;

use serde_json::json;
use tollgate_examples::testing::Response;
use tollgate_test_servers::{Kind, Server as Redis};

use crate::fleet::on;
use crate::server::{Server, wait_until};

/// The algorithms that can be reserved.
const ALGORITHMS: [&str; 5] = ["gcra", "fixed-window", "sliding-window", "sliding-buckets", "sliding-log"];

fn post(server: &Server, path: &str) -> Response {
    server.connect().request("POST", path, &[])
}

fn remaining(server: &Server) -> u64 {
    server.me("tokens", "remaining").unwrap()
}

#[test]
fn units_that_a_chat_does_not_use_are_given_back() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for algorithm in ALGORITHMS {
        let rule = format!("tokens=1000/d,algorithm={algorithm}");
        redis.command(&["FLUSHALL"]).unwrap();
        for server in [Server::with_rules(&[&rule]), on(&redis.url(), &[&rule])] {
            let chat = post(&server, "/chat/1000/137");
            assert_eq!((chat.status, chat.remaining("tokens")), (200, 0), "{algorithm}");
            let settled = json!({ "reserved": 1_000, "charged": 137, "debt": 0, "forgiven": 0 });
            assert_eq!(chat.json(), settled, "{algorithm}");
            assert_eq!(server.get("/").remaining("tokens"), 862, "863, and this request costs 1");
        }
    }
}

#[test]
fn a_chat_that_uses_more_makes_debt_and_later_requests_wait() {
    for algorithm in ALGORITHMS {
        let server = Server::with_rules(&[&format!("tokens=100/d,algorithm={algorithm}")]);
        let settled = json!({ "reserved": 10, "charged": 200, "debt": 100, "forgiven": 50 });
        assert_eq!(post(&server, "/chat/10/250").json(), settled, "{algorithm}");
        server.get("/").assert_refused_by(&["tokens"]);
    }
}

#[test]
fn other_rules_charge_one_for_a_chat_and_other_routes_charge_the_tokens() {
    let server = Server::with_rules(&["api=10/d", "tokens=1000/d"]);
    let chat = post(&server, "/chat/500/100");
    assert_eq!((chat.remaining("api"), chat.remaining("tokens")), (9, 500));
    let transfer = server.transfer("3");
    assert_eq!((transfer.remaining("api"), transfer.remaining("tokens")), (6, 897));
    assert_eq!(server.get("/chat/500/100").remaining("tokens"), 896, "a GET costs 1");
    assert_eq!(remaining(&server), 896, "what is not settled stays charged");
}

#[test]
fn a_stream_produces_all_chunks_and_pays_for_them() {
    let server = Server::with_rules(&["tokens=1000/d,algorithm=fixed-window"]);
    let chunks: Vec<_> = server.stream("POST /stream/4/10").collect();
    let expected: Vec<_> = (1..=10).map(|number| format!("chunk {number}")).collect();
    assert_eq!((chunks, remaining(&server)), (expected, 990));
}

#[test]
fn a_stream_ends_at_the_limit_and_says_why() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let rules = ["tokens=100/d,algorithm=fixed-window"];
    for server in [Server::with_rules(&rules), on(&redis.url(), &rules)] {
        let lines: Vec<_> = server.stream("POST /stream/30/1000").collect();
        assert_eq!(lines.len(), 91, "{lines:?}");
        assert_eq!(lines[89], "chunk 90");
        let end = "stopped: 30 more units are refused: quota exceeded: tokens; retry in ";
        assert!(lines[90].starts_with(end), "{lines:?}");
        assert_eq!(remaining(&server), 10, "settled before the body ends");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "bounds how many chunks can be produced")]
fn a_client_that_leaves_a_stream_pays_for_what_was_produced() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let rules = ["tokens=10000/d,algorithm=fixed-window"];
    for server in [Server::with_rules(&rules), on(&redis.url(), &rules)] {
        let start = Instant::now();
        let mut chunks = server.stream("POST /stream/5000/9000");
        assert_eq!(chunks.nth(39).as_deref(), Some("chunk 40"));
        assert_eq!(remaining(&server), 5_000, "still reserved");
        drop(chunks);
        wait_until(|| remaining(&server) > 5_000);
        let charged = 10_000 - remaining(&server);
        // One each 10 ms, so about 40 unless the machine is slow.
        let at_most = 1 + start.elapsed().as_millis() / 10;
        assert!((40..=at_most).contains(&u128::from(charged)), "{charged} were charged, at most {at_most}");
    }
}

#[test]
fn numbers_that_cannot_be_reserved_are_refused() {
    let server = Server::with_rules(&["tokens=1000/d,algorithm=fixed-window"]);
    let max = u64::MAX.to_string();
    let (mut left, mut connection) = (1_000, server.connect());
    for route in ["chat", "stream"] {
        let bad = ["-1", "+1", "1.5", "x", "%31", &max, "1099511627777", "99999999999999999999"];
        let paths = bad.into_iter().flat_map(|bad| [format!("{bad}/1"), format!("1/{bad}")]);
        for path in paths.chain(["0/1".to_owned()]) {
            let refused = connection.request("POST", &format!("/{route}/{path}"), &[]);
            left -= 1;
            assert_eq!((refused.status, refused.remaining("tokens")), (400, left), "{route}/{path} costs 1");
        }
        for path in ["1", "1/2/3"] {
            assert_eq!(connection.request("POST", &format!("/{route}/{path}"), &[]).status, 404);
            left -= 1;
        }
        for estimate in ["1001", "1099511627776"] {
            let never = connection.request("POST", &format!("/{route}/{estimate}/1"), &[]);
            assert_eq!((never.status, never.header("retry-after")), (422, None), "{route}/{estimate}");
            assert_eq!(never.remaining("tokens"), left, "nothing is charged");
        }
    }
    assert_eq!(post(&server, "/chat/5/0").json()["charged"], 0);
    assert_eq!((server.stream("POST /stream/5/0").count(), remaining(&server)), (0, left));
}

#[test]
fn without_a_rule_named_tokens_the_routes_say_so() {
    let server = Server::with_rules(&["api=10/d"]);
    for path in ["/chat/5/1", "/stream/5/1"] {
        let answer = post(&server, path);
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("--rule tokens=1000/m"), "{answer:?}");
    }
}

/// The rule does not apply, so nothing is charged.
#[test]
fn a_request_without_a_key_is_settled_to_nothing_if_the_rule_is_skipped() {
    let rule = ["--rule", "tokens=5/d,key=header:x-user", "--missing-key", "skip"];
    let server = Server::playground(&rule);
    let settled = json!({ "reserved": 0, "charged": 0, "debt": 0, "forgiven": 137 });
    assert_eq!(post(&server, "/chat/1000/137").json(), settled);
    assert_eq!(server.stream("POST /stream/1/20").count(), 20);
}
