//! The example of a tonic server.

use tonic::Code;

use crate::grpc::{channel, greet};
use crate::server::Server;

#[tokio::test]
async fn the_tonic_example_limits_its_callers() {
    let server = Server::start("tonic", &["127.0.0.1:0"]);
    let channel = channel(&server).await;
    let mut answers = Vec::new();
    for _ in 0..25 {
        answers.push(greet(&channel, "ada").await);
    }
    assert!(answers[..20].iter().all(|answer| answer.as_ref().is_ok_and(|reply| reply == "hello ada")));
    let refused = answers.into_iter().find_map(Result::err).expect("nothing is limited");
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "quota exceeded: default"));
    assert!(refused.metadata().get("grpc-retry-pushback-ms").is_some());
}
