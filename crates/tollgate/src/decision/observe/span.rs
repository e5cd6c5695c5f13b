//! The fields of the current span.

use tracing::Span;
use tracing::level_filters::LevelFilter;

use super::decision::Decision;

/// Whether there may be a span: some subscriber listens.
#[inline]
pub(super) fn is_on() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// Records a decision in the fields that the current span declares.
pub(super) fn record(decision: &Decision<'_>) {
    let span = Span::current();
    span.record("rate_limit.decision", decision.outcome().name());
    span.record("rate_limit.policy", decision.policy().name());
    span.record("rate_limit.source", decision.source().name());
}
