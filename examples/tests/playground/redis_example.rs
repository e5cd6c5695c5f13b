//! The example of a fleet that is there to be copied.

use tollgate_conformance::servers::{Kind, Server as Redis};

use crate::server::Server;

#[test]
fn two_of_the_example_share_their_limit() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let servers = [(); 2].map(|()| Server::start("redis", &["127.0.0.1:0", &redis.url()]));
    let answers: Vec<_> = (0..30).map(|n| servers[n % 2].get("/")).collect();
    // One more flows in each 600 ms. Where Redis takes longer than 50 ms, one passes unasked, and says nothing of what is left.
    let asked = answers.iter().filter(|answer| answer.header("ratelimit").is_some());
    let refused: Vec<_> = asked.filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty(), "nothing is limited: {answers:?}");
    refused[0].assert_refused_by(&["default"]);
    assert_eq!(servers[0].get("/health").header("ratelimit"), None);
    redis.kill();
    assert_eq!(servers[0].get("/").status, 200, "it fails open");
}
