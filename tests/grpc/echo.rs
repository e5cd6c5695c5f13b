//! A service with a method of each kind.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_core::Stream;
use tokio_stream::StreamExt;
use tonic::{Request, Response, Status, Streaming};

use proto::Text;

#[allow(missing_docs, unreachable_pub, reason = "generated")]
pub(crate) mod proto {
    include!("proto/echo.rs");
}

/// Counts the calls that reach it. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Echo(Arc<AtomicU32>);

impl Echo {
    pub(crate) fn calls(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn text(text: &str) -> Text {
    Text { text: text.to_owned() }
}

/// A request of that user.
pub(crate) fn asking<T>(user: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-user", user.parse().expect("a name"));
    request
}

type Texts = Pin<Box<dyn Stream<Item = Result<Text, Status>> + Send>>;

#[tonic::async_trait]
impl proto::echo_server::Echo for Echo {
    async fn once(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        self.count();
        Ok(Response::new(request.into_inner()))
    }

    type WordsStream = Texts;

    /// Does not end, so it must not be collected.
    async fn words(&self, request: Request<Text>) -> Result<Response<Texts>, Status> {
        self.count();
        let words: Vec<_> = request.into_inner().text.split(' ').map(|word| Ok(text(word))).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(words).chain(tokio_stream::pending()))))
    }

    async fn join(&self, request: Request<Streaming<Text>>) -> Result<Response<Text>, Status> {
        self.count();
        let mut texts = request.into_inner();
        let mut joined = String::new();
        while let Some(text) = texts.message().await? {
            joined.push_str(&text.text);
        }
        Ok(Response::new(text(&joined)))
    }

    type ChatStream = Streaming<Text>;

    async fn chat(&self, request: Request<Streaming<Text>>) -> Result<Response<Streaming<Text>>, Status> {
        self.count();
        Ok(Response::new(request.into_inner()))
    }
}

#[tonic::async_trait]
impl proto::other_server::Other for Echo {
    async fn once(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        proto::echo_server::Echo::once(self, request).await
    }
}
