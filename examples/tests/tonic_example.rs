//! The example of a tonic server.

use tollgate_examples::helloworld::HelloRequest;
use tollgate_examples::helloworld::greeter_client::GreeterClient;
use tonic::Code;
use tonic::transport::Channel;

use crate::program::start;

#[tokio::test]
async fn the_tonic_example_limits_its_callers() {
    let server = start("tonic", &["127.0.0.1:0"]);
    let endpoint = Channel::from_shared(format!("http://{}", server.address())).unwrap();
    let mut client = GreeterClient::new(endpoint.connect().await.unwrap());
    let mut answers = Vec::new();
    for _ in 0..25 {
        let reply = client.say_hello(HelloRequest { name: "ada".to_owned() }).await;
        answers.push(reply.map(|reply| reply.into_inner().message));
    }
    assert!(answers[..20].iter().all(|answer| answer.as_ref().is_ok_and(|reply| reply == "hello ada")));
    let refused = answers.into_iter().find_map(Result::err).expect("nothing is limited");
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "quota exceeded: default"));
    assert!(refused.metadata().get("grpc-retry-pushback-ms").is_some());
}
