//! What came of a request.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Allowed,
    Denied,
    /// Neither, with the reason.
    Failed(String),
}

/// Waits for a response no longer than `limit`. Otherwise the request has failed.
pub(crate) async fn within<T>(
    limit: Duration,
    response: impl Future<Output = T>,
) -> Result<T, RequestOutcome> {
    let late = |_| RequestOutcome::Failed(format!("no response within {limit:?}"));
    timeout(limit, response).await.map_err(late)
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
