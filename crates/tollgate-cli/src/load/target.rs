//! What is loaded.

use super::args::LoadArgs;
use super::http::HttpTarget;
use super::outcome::Outcome;
use super::store::StoreTarget;

pub(crate) enum Target {
    Http(Box<HttpTarget>),
    Store(StoreTarget),
}

impl Target {
    /// Opens the target, and checks that it can be reached. Charges nothing.
    pub(crate) async fn open(args: &LoadArgs) -> Result<Target, String> {
        match &args.url {
            Some(url) => HttpTarget::open(url, args).await.map(|http| Target::Http(Box::new(http))),
            None => StoreTarget::open(args).await.map(Target::Store),
        }
    }

    pub(crate) async fn send(&self, key: u32) -> Outcome {
        match self {
            Target::Http(http) => http.send(key).await,
            Target::Store(store) => store.send(key).await,
        }
    }
}
