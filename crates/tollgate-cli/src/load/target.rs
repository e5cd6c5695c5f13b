//! What is loaded.

use std::error::Error;

use super::http::HttpTarget;
use super::store::StoreTarget;
use crate::cli::LoadArgs;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// Neither, with the reason.
    Failed(String),
}

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

/// Returns the text of an error with those of its sources.
pub(crate) fn reason(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        // Some errors repeat their source.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}
