//! The playground's gRPC service, on the port of its HTTP routes.

use std::time::Duration;

use tollgate_examples::helloworld::HelloRequest;
use tollgate_examples::helloworld::greeter_client::GreeterClient;
use tollgate_test_servers::{Kind, Server as Redis};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_types::StatusExt;

use crate::server::Server;

/// A channel to that server.
async fn channel(server: &Server) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", server.address())).unwrap();
    endpoint.connect().await.unwrap()
}

/// Greets as that user, and returns the reply.
async fn greet(channel: &Channel, user: &str) -> Result<String, Status> {
    let mut request = Request::new(HelloRequest { name: user.to_owned() });
    request.metadata_mut().insert("x-user", user.parse().unwrap());
    let reply = GreeterClient::new(channel.clone()).say_hello(request).await?;
    Ok(reply.into_inner().message)
}

fn pushback(status: &Status) -> i64 {
    status.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn http_and_grpc_use_up_the_same_units() {
    let server = Server::with_rules(&["api=4/d,algorithm=fixed-window"]);
    let channel = channel(&server).await;
    assert_eq!(server.get("/").remaining("api"), 3);
    assert_eq!(greet(&channel, "ada").await.unwrap(), "hello ada");
    assert_eq!(server.get("/").remaining("api"), 1);
    assert_eq!(greet(&channel, "bob").await.unwrap(), "hello bob");
    assert_eq!(server.me("api", "remaining"), Some(0));
    server.get("/").assert_refused_by(&["api"]);
    let status = greet(&channel, "ada").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "quota exceeded: api"));
    let details = status.get_error_details();
    assert_eq!(details.quota_failure().unwrap().violations[0].subject, "api");
    let delay = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(delay > Duration::ZERO && pushback(&status) >= i64::try_from(delay.as_millis()).unwrap());
}

#[tokio::test]
async fn a_client_that_waits_for_the_pushback_gets_all_replies() {
    let server = Server::with_rules(&["api=2/s,burst=1"]);
    let channel = channel(&server).await;
    for _ in 0..4 {
        let Err(status) = greet(&channel, "ada").await else { continue };
        assert_eq!(status.code(), Code::ResourceExhausted);
        let wait = u64::try_from(pushback(&status)).expect("waiting helps");
        tokio::time::sleep(Duration::from_millis(wait)).await;
        assert!(greet(&channel, "ada").await.is_ok(), "after {wait} ms");
    }
}

#[tokio::test]
async fn metadata_is_a_key_and_a_call_without_it_is_invalid() {
    let server = Server::with_rules(&["user=1/d,key=header:x-user", "agent=9/d,key=header:x-agent|global"]);
    let channel = channel(&server).await;
    assert!(greet(&channel, "ada").await.is_ok() && greet(&channel, "bob").await.is_ok());
    assert_eq!(greet(&channel, "ada").await.unwrap_err().code(), Code::ResourceExhausted);
    let request = HelloRequest { name: "anonymous".to_owned() };
    let status = GreeterClient::new(channel.clone()).say_hello(request).await.unwrap_err();
    assert_eq!((status.code(), pushback(&status)), (Code::InvalidArgument, -1));
    let left = server.get_with("/me", &[("x-user", "ada")]).json();
    assert_eq!(left["policies"][1]["remaining"], 7, "two calls passed: {left}");
}

#[tokio::test]
async fn closed_is_unavailable_while_redis_is_down() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let rule = "api=1000/d,key=global";
    let server = Server::playground(&["--store", &redis.url(), "--on-failure", "closed", "--rule", rule]);
    let channel = channel(&server).await;
    assert_eq!(greet(&channel, "ada").await.unwrap(), "hello ada");
    redis.kill();
    for _ in 0..3 {
        let status = greet(&channel, "ada").await.unwrap_err();
        assert_eq!((status.code(), pushback(&status)), (Code::Unavailable, 1_000));
        assert_eq!(server.get("/").status, 503);
    }
}

#[tokio::test]
async fn open_serves_calls_while_redis_is_down() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let server = Server::playground(&["--store", &redis.url(), "--on-failure", "open", "--rule", "api=1/d"]);
    let channel = channel(&server).await;
    assert_eq!(greet(&channel, "ada").await.unwrap(), "hello ada");
    redis.kill();
    for _ in 0..3 {
        assert_eq!(greet(&channel, "ada").await.unwrap(), "hello ada");
    }
}

/// Clients may ask reflection before each call, so it must not be charged.
#[tokio::test]
async fn reflection_lists_the_service_and_costs_nothing() {
    let server = Server::with_rules(&["api=1/d"]);
    let channel = channel(&server).await;
    assert!(greet(&channel, "ada").await.is_ok());
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel.clone());
    let answers = reflection.server_reflection_info(tokio_stream::once(list)).await.unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<_> = services.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"helloworld.Greeter"), "{names:?}");
    assert_eq!(greet(&channel, "ada").await.unwrap_err().code(), Code::ResourceExhausted);
}
