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
    let mut passed = 0;
    let refused = loop {
        match client.say_hello(HelloRequest { name: "ada".to_owned() }).await {
            Ok(reply) => assert_eq!(reply.into_inner().message, "hello ada"),
            Err(refused) => break refused,
        }
        passed += 1;
        assert!(passed < 1_000, "nothing is limited");
    };
    assert!(passed >= 20, "{passed}");
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "quota exceeded: default"));
    assert!(refused.metadata().get("grpc-retry-pushback-ms").is_some());
}
