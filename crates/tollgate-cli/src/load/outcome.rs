//! What came of a request.

use std::error::Error;

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Allowed,
    Denied,
    /// Neither, with the reason.
    Failed(String),
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
