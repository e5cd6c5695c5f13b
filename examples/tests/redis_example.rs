//! The example of a fleet.

use tollgate_test_servers::{Kind, Server as Redis};

use crate::program::start;

#[test]
fn two_redis_examples_share_their_limit() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let servers = [(); 2].map(|()| start("redis", &["127.0.0.1:0", &redis.url()]));
    let answers: Vec<_> = (0..30).map(|n| servers[n % 2].get("/")).collect();
    // One unit is refilled every 600 ms. If Redis takes longer than 250 ms, a server grants its
    // half.
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(!refused.is_empty(), "nothing is limited: {answers:?}");
    refused[0].assert_refused_by(&["default"]);
    assert_eq!(servers[0].get("/health").header("ratelimit"), None);
}

#[test]
fn the_redis_example_keeps_a_limit_while_redis_is_down() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let server = start("redis", &["127.0.0.1:0", &redis.url()]);
    redis.kill();
    let answers: Vec<_> = (0..40).map(|_| server.get("/")).collect();
    assert_eq!(answers[0].status, 200, "{:?}", answers[0]);
    for answer in &answers {
        assert_eq!(answer.header("ratelimit-policy"), Some("\"default\";q=10;w=12"), "half of the burst");
    }
    assert!(answers.iter().any(|answer| answer.status == 429), "{answers:?}");
}
