//! What is loaded.

use super::args::LoadArgs;
use super::http::HttpTarget;
use super::outcome::RequestOutcome;
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

    pub(crate) async fn send(&self, key: u32) -> RequestOutcome {
        match self {
            LoadTarget::Http(http) => http.send(key).await,
            LoadTarget::Store(store) => store.send(key).await,
        }
    }
}
