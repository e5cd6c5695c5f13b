//! What a server knows of the claims of slots that its store has sent.

use std::net::SocketAddr;

use axum::routing::{MethodRouter, get};
use tollgate::store::Store;
use tollgate_redis::RedisStore;

use crate::Client;

/// Claims of slots that a store has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Those that were not answered yet.
    pub unanswered: u64,
    /// Those that were lost.
    pub lost: u64,
}

impl Claims {
    /// Answers with the claims of a store.
    pub fn route(store: &RedisStore) -> MethodRouter {
        let claims = store.sent_claims().cloned().expect("it counts claims");
        get(async move || format!("{} {}", claims.unanswered(), claims.lost()))
    }

    /// The claims of a server that has the route at this path.
    ///
    /// # Panics
    /// If the server has none.
    pub async fn at(server: SocketAddr, path: &str) -> Claims {
        let answer = Client::connect(server).await.get(path, &["connection: close"]).await;
        let numbers = answer.body.split_once(' ');
        let numbers =
            numbers.and_then(|(unanswered, lost)| Some((unanswered.parse().ok()?, lost.parse().ok()?)));
        let (unanswered, lost) = numbers.unwrap_or_else(|| panic!("no claims: {answer:?}"));
        Claims { unanswered, lost }
    }
}
