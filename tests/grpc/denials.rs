//! What a gRPC client can read of a denial.

use std::time::Duration;

use prost::Message;
use tokio::time::sleep;
use tollgate::extract::{global, header};
use tollgate::{Fields, Head, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_tests::{Connection, Failing, Fault, Later, clock, per_user, store};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::grpc::echo::Echo;
use crate::grpc::echo::proto::echo_client::EchoClient;
use crate::grpc::{call, client, code, pushback, refused, serve};

fn layer(limit: u64) -> RateLimitLayer {
    RateLimitLayer::new([per_user("p", limit)]).store(store(&clock()))
}

/// The message, the headers and the details must agree.
#[track_caller]
fn assert_details_agree(status: &Status) {
    let details = tonic_types::pb::Status::decode(status.details()).expect("a status");
    assert_eq!((details.code, details.message.as_str()), (i32::from(status.code()), status.message()));
}

#[tokio::test]
async fn a_client_reads_the_code_the_wait_and_the_policy() {
    let mut client = client(layer(2)).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    for _ in 0..2 {
        let status = refused(&mut client, "ada").await;
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "quota exceeded: p"));
        assert_eq!(pushback(&status), 30_000);
        assert_details_agree(&status);
        let details = status.get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(30)));
        let [violation] = &details.quota_failure().unwrap().violations[..] else { panic!("{details:?}") };
        assert_eq!((violation.subject.as_str(), violation.description.as_str()), ("p", "quota exceeded"));
    }
    assert_eq!(code(&mut client, "bob").await, Code::Ok, "the connection lives on");
}

#[tokio::test]
async fn an_awaited_verdict_gives_the_same_answer() {
    let layer = layer(1).store(Later::deciding_last(store(&clock())));
    let mut client = client(layer).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    let status = refused(&mut client, "ada").await;
    assert_eq!((status.code(), pushback(&status)), (Code::ResourceExhausted, 60_000));
    assert_details_agree(&status);
}

#[tokio::test]
async fn the_pushback_is_the_longest_wait_rounded_up() {
    let time = clock();
    let rules = [per_user("slow", 7), per_user("wide", 1_000), per_user("slower", 6)];
    let mut client = client(RateLimitLayer::new(rules).store(store(&time))).await;
    for _ in 0..6 {
        assert_eq!(code(&mut client, "ada").await, Code::Ok);
    }
    time.advance(Duration::from_micros(999));
    let status = refused(&mut client, "ada").await;
    assert_eq!(status.message(), "quota exceeded: slower");
    assert_eq!(pushback(&status), 10_000, "9,999.001 ms");
    let details = status.get_error_details();
    assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_micros(9_999_001)));
    time.advance(Duration::from_millis(9_999));
    assert_eq!(code(&mut client, "ada").await, Code::ResourceExhausted, "a microsecond too early");
    time.advance(Duration::from_millis(1));
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
}

#[tokio::test]
async fn all_policies_that_refuse_are_named() {
    let rules = [per_user("a", 1), per_user("b", 5), per_user("100% \"c\", d", 1)];
    let mut client = client(RateLimitLayer::new(rules).store(store(&clock()))).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    let status = refused(&mut client, "ada").await;
    assert_eq!(status.message(), "quota exceeded: a, 100% \"c\", d");
    assert_details_agree(&status);
    let failure = status.get_details_quota_failure().unwrap();
    let subjects: Vec<_> = failure.violations.iter().map(|violation| violation.subject.as_str()).collect();
    assert_eq!(subjects, ["a", "100% \"c\", d"]);
}

/// In real time, as in a program.
#[tokio::test]
async fn a_client_that_waits_for_the_pushback_passes() {
    let mut client = client(RateLimitLayer::per_ip(Quota::per_second(1))).await;
    let status = loop {
        if let Err(status) = call(&mut client, "ada").await {
            break status;
        }
    };
    let wait = u64::try_from(pushback(&status)).expect("it is worth waiting");
    sleep(Duration::from_millis(wait)).await;
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
}

#[tokio::test]
async fn a_cost_that_can_never_pass_is_marked_as_not_retryable() {
    let rule = per_user("p", 5).cost(|_: &Head<'_>| 6);
    let mut client = client(RateLimitLayer::new([rule]).store(store(&clock()))).await;
    let status = refused(&mut client, "ada").await;
    assert_eq!((status.code(), pushback(&status)), (Code::ResourceExhausted, -1));
    assert_eq!(status.message(), "the cost exceeds the whole quota: p");
    assert_details_agree(&status);
    let details = status.get_error_details();
    assert!(details.retry_info().is_none(), "{details:?}");
    assert_eq!(details.quota_failure().unwrap().violations[0].subject, "p");
}

#[tokio::test]
async fn fail_closed_answers_unavailable_while_the_store_fails() {
    for failure in [Connection::Fails(Fault::Unreachable), Connection::FailsLater(Fault::WrongPassword)] {
        let failing = Failing::new(store(&clock()), failure);
        let layer = layer(1).store(failing.clone().timeout(Duration::from_secs(60)).fail_closed());
        let mut client = client(layer).await;
        let status = refused(&mut client, "ada").await;
        assert_eq!((status.code(), pushback(&status)), (Code::Unavailable, 1_000));
        assert_eq!(status.message(), "the rate limit store is unavailable");
        assert_details_agree(&status);
        let details = status.get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
        assert!(details.quota_failure().is_none(), "no quota was exceeded");
        assert!(status.metadata().get("ratelimit").is_none(), "nobody knows what is left");
        failing.set(Connection::Works);
        assert_eq!(code(&mut client, "ada").await, Code::Ok);
        assert_eq!(code(&mut client, "ada").await, Code::ResourceExhausted);
    }
}

#[tokio::test]
async fn a_call_without_a_key_is_invalid_and_charges_no_caller() {
    let store = store(&clock());
    let rules = [
        Policy::new("all", Quota::per_minute(1)).by(global()),
        Policy::new("key", Quota::per_minute(1)).by(header("x-api-key")),
    ];
    let mut client = client(RateLimitLayer::new(rules).store(store.clone())).await;
    for _ in 0..2 {
        let status = refused(&mut client, "ada").await;
        assert_eq!((status.code(), pushback(&status)), (Code::InvalidArgument, -1));
        assert_eq!(status.message(), "the request carries no key: key");
        assert!(status.details().is_empty());
    }
    assert_eq!(store.keys(), 0);
}

#[tokio::test]
async fn passed_and_denied_calls_carry_the_fields() {
    let mut client = client(layer(1)).await;
    let passed = call(&mut client, "ada").await.unwrap();
    assert_eq!(passed.metadata().get("ratelimit").unwrap(), "\"p\";r=0;t=60");
    assert_eq!(passed.metadata().get("ratelimit-policy").unwrap(), "\"p\";q=1;w=60");
    assert_eq!(passed.into_inner().text, "hello");
    let status = refused(&mut client, "ada").await;
    assert_eq!(status.metadata().get("ratelimit").unwrap(), "\"p\";r=0;t=60");
    assert_eq!(status.metadata().get("ratelimit-policy").unwrap(), "\"p\";q=1;w=60");
}

#[tokio::test]
async fn a_grpc_denial_without_fields_still_has_a_pushback() {
    let mut client = client(layer(1).fields(Fields::None)).await;
    assert!(call(&mut client, "ada").await.unwrap().metadata().get("ratelimit").is_none());
    let status = refused(&mut client, "ada").await;
    assert_eq!(pushback(&status), 60_000);
    assert!(status.metadata().get("ratelimit").is_none());
}

/// A client that accepts 8 kB of headers would fail with an error of its own.
#[tokio::test]
async fn a_denial_by_sixty_rules_with_long_names_fits_in_eight_kilobytes() {
    let name = |n: u64| format!("{n:02}%{}", "x".repeat(110));
    let rule = |n| Policy::new(&name(n), Quota::new(1, Duration::from_secs(60 + n))).by(global());
    let layer = RateLimitLayer::new((0..60).map(rule)).store(store(&clock()));
    let address = serve(layer.fields(Fields::IetfAndXEpoch), Echo::default());
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint.http2_max_header_list_size(8 * 1_024);
    let mut client = EchoClient::new(endpoint.connect().await.unwrap());
    assert_eq!(code(&mut client, "ada").await, Code::Ok);
    let status = refused(&mut client, "ada").await;
    assert_eq!((status.code(), pushback(&status)), (Code::ResourceExhausted, 119_000), "{status:?}");
    assert_details_agree(&status);
    let details = status.get_error_details();
    assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(119)));
    let violations = &details.quota_failure().unwrap().violations;
    let subjects: Vec<&str> = violations.iter().map(|violation| violation.subject.as_str()).collect();
    assert_eq!(subjects[..2], [name(59), name(58)], "the longest waits come first");
    let (message, more) = (status.message(), 60 - subjects.len());
    assert!(message.starts_with(&format!("quota exceeded: {}, ", name(59))), "{message}");
    assert!(message.ends_with(&format!(", and {more} more")), "{message}");
    assert!(status.metadata().get("ratelimit").unwrap().to_str().unwrap().contains(&name(59)));
    let metadata = status.metadata().clone().into_headers();
    let metadata: usize = metadata.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
    let (details, message) = (status.details().len(), status.message().len());
    println!("{metadata} bytes of metadata, {details} of details before base64, {message} of message");
}
