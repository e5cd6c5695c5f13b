//! Calls that stream: passed through message by message, or refused before their stream begins.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::{RateLimitLayer, StoreExt};
use tollgate_tests::{Later, clock, per_user, queue, store};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::grpc::echo::proto::Text;
use crate::grpc::echo::proto::echo_client::EchoClient;
use crate::grpc::echo::{Echo, asking, text};
use crate::grpc::{connect, serve};

/// Longer than any message takes.
const PATIENCE: Duration = Duration::from_secs(10);

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("an answer in time")
}

async fn next(texts: &mut Streaming<Text>) -> Option<String> {
    within(texts.message()).await.expect("no error").map(|text| text.text)
}

/// A chat whose client has sent nothing yet.
async fn chat(client: &mut EchoClient<Channel>) -> Result<(mpsc::Sender<Text>, Streaming<Text>), Status> {
    let (send, receive) = mpsc::channel(1);
    let replies = within(client.chat(asking("ada", ReceiverStream::new(receive)))).await?;
    Ok((send, replies.into_inner()))
}

/// Layers whose verdict is there at once, must be awaited, or delays the call. Each passes the call
/// on unchanged.
fn layers(limit: u64) -> [RateLimitLayer<tollgate::store::BoxStore<std::convert::Infallible>>; 3] {
    let per_user = || RateLimitLayer::new([per_user("p", limit)]);
    let queue = queue("q", Duration::from_millis(100 * (limit - 1)));
    [
        per_user().store(store(&clock()).boxed()),
        per_user().store(Later::deciding_last(store(&clock())).boxed()),
        RateLimitLayer::new([queue]).store(store(&clock()).boxed()),
    ]
}

#[tokio::test]
async fn messages_of_a_chat_arrive_as_they_are_sent() {
    for layer in layers(2) {
        let mut client = connect(serve(layer, Echo::default())).await;
        for _ in 0..2 {
            let (send, mut replies) = chat(&mut client).await.unwrap();
            for word in ["one", "two", "three"] {
                send.send(text(word)).await.unwrap();
                assert_eq!(next(&mut replies).await.as_deref(), Some(word));
            }
            drop(send);
            assert_eq!(next(&mut replies).await, None);
        }
    }
}

#[tokio::test]
async fn messages_of_a_server_arrive_before_its_stream_ends() {
    for layer in layers(2) {
        let mut client = connect(serve(layer, Echo::default())).await;
        let mut words =
            within(client.words(asking("ada", text("one two three")))).await.unwrap().into_inner();
        for word in ["one", "two", "three"] {
            assert_eq!(next(&mut words).await.as_deref(), Some(word));
        }
    }
}

#[tokio::test]
async fn all_messages_of_a_client_arrive() {
    for layer in layers(2) {
        let mut client = connect(serve(layer, Echo::default())).await;
        let texts: Vec<Text> = (0..1_000).map(|n| text(&format!("{n},"))).collect();
        let expected: String = texts.iter().map(|text| text.text.as_str()).collect();
        let joined = within(client.join(asking("ada", tokio_stream::iter(texts)))).await.unwrap();
        assert!(joined.metadata().get("ratelimit").is_some());
        assert_eq!(joined.into_inner().text, expected);
    }
}

#[tokio::test]
async fn a_stream_is_refused_before_it_begins() {
    for layer in layers(1) {
        let echo = Echo::default();
        let mut client = connect(serve(layer, echo.clone())).await;
        let (send, mut replies) = chat(&mut client).await.unwrap();

        // The client has sent nothing, and its stream does not end.
        let status = chat(&mut client).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let status = within(client.words(asking("ada", text("one two")))).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let endless = asking("ada", tokio_stream::pending());
        let status = within(client.join(endless)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(echo.calls(), 1, "none of them reached the service");

        send.send(text("still here")).await.unwrap();
        assert_eq!(next(&mut replies).await.as_deref(), Some("still here"), "the one that passed goes on");
    }
}
