//! The example without axum.

use crate::program::start;

#[test]
fn the_hyper_example_limits_its_callers() {
    let server = start("hyper", &["127.0.0.1:0"]);
    // On one connection and on others: all connections of the layer count together.
    let mut connection = server.connect();
    let answers: Vec<_> = (0..20)
        .map(|n| if n % 2 == 0 { connection.request("GET", "/", &[]) } else { server.get("/") })
        .collect();
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == "hello\n"));
    assert_eq!(answers[0].header("ratelimit-policy"), Some("\"default\";q=20;w=12"));
    let mut more = (0..1_000).map(|_| server.get("/"));
    let refused = more.find(|answer| answer.status != 200).expect("nothing is limited");
    refused.assert_refused_by(&["default"]);
}
