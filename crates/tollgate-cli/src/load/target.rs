//! What is loaded.

use std::time::Duration;

use super::args::LoadArgs;
use super::http::HttpTarget;
use super::outcome::{RequestOutcome, within};
use super::store::StoreTarget;

pub(crate) enum LoadTarget {
    Http(Box<HttpTarget>),
    Store(StoreTarget),
}

impl LoadTarget {
    /// Opens the target, and checks that it can be reached. Charges nothing.
    pub(crate) async fn open(args: &LoadArgs) -> Result<LoadTarget, String> {
        match &args.url {
            Some(url) => HttpTarget::open(url, args).await.map(|http| LoadTarget::Http(Box::new(http))),
            None => StoreTarget::open(args).await.map(LoadTarget::Store),
        }
    }

    /// Sends a request, and waits for the response no longer than `limit`.
    pub(crate) async fn send(&self, key: u32, limit: Duration) -> RequestOutcome {
        match self {
            LoadTarget::Http(http) => within(limit, http.send(key)).await.unwrap_or_else(|late| late),
            LoadTarget::Store(store) => store.send(key, limit).await,
        }
    }
}
