//! The example with the layers of a production server.

use crate::program::start;

const ORIGIN: (&str, &str) = ("origin", "https://app.example");

#[test]
fn the_stack_example_logs_refusals_and_exposes_their_fields() {
    let mut server = start("stack", &["127.0.0.1:0"]);
    let compressed = server.get_with("/", &[ORIGIN, ("accept-encoding", "gzip")]);
    assert_eq!((compressed.status, compressed.header("content-encoding")), (200, Some("gzip")));
    for _ in 0..50 {
        let preflight = [ORIGIN, ("access-control-request-method", "GET")];
        let answer = server.connect().request("OPTIONS", "/", &preflight);
        assert_eq!((answer.status, answer.header("ratelimit")), (200, None), "it costs nothing");
    }
    let passed = server.get_with("/", &[ORIGIN]);
    let mut more = (0..1_000).map(|_| server.get_with("/", &[ORIGIN]));
    let refused = more.find(|answer| answer.status != 200).expect("nothing is limited");
    refused.assert_refused_by(&["default"]);
    drop(more);
    for answer in [passed, refused] {
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        let readable = answer.header("access-control-expose-headers");
        assert_eq!(readable, Some("ratelimit,ratelimit-policy,retry-after"));
    }
    while !server.says_until(" INFO").contains("status=429") {}
}

#[test]
fn the_stack_example_times_out_slow_requests() {
    let server = start("stack", &["127.0.0.1:0"]);
    let answer = server.get("/slow");
    assert_eq!((answer.status, answer.remaining("default")), (504, 19));
}
