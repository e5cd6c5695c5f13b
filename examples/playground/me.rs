//! `GET /me`: what the caller has left, without a charge.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;
use tollgate::store::Status;
use tollgate::{Head, Policy, RateLimitLayer, Report, Wait};

use crate::store::AnyStore;

#[derive(Serialize)]
struct Me<'a> {
    policies: Vec<Standing<'a>>,
}

/// What the caller has left of one policy. Times are in seconds, rounded up.
#[derive(Serialize)]
struct Standing<'a> {
    name: &'a str,
    algorithm: &'static str,
    /// Units per window, or requests in flight.
    limit: u64,
    /// The largest number of units at once.
    capacity: u64,
    /// Units that would pass now, without delay.
    remaining: u64,
    /// Time until the whole quota is back; absent for requests in flight, which end at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after: Option<u64>,
    /// Time until a request of cost 1 would pass; absent if it would pass now.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// Time until the end of the block of this key; absent if it is not blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_for: Option<u64>,
}

/// Looks at the caller's quotas. This route is outside the layer, so asking is free. A rule by
/// `path` shows the state of the route `/me` itself.
pub(crate) async fn me(State(layer): State<RateLimitLayer<AnyStore>>, parts: Parts) -> Response {
    // With the rules that the layer has now.
    let report = match layer.limiter().look(&Head::from(&parts)).await {
        Ok(report) => report,
        Err(denial) => return denial.into_response(),
    };
    let policies = (report.iter().filter(|(policy, _)| !policy.numbers().is_block()))
        .map(|(policy, status)| standing(policy, status, &report))
        .collect();
    json(&Me { policies })
}

pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string_pretty(value) {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json + "\n").into_response(),
        Err(error) => (http::StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Returns whole seconds, rounded up, so that a client that waits this long waits long enough.
pub(crate) fn seconds_up(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

fn standing<'a>(policy: &'a Policy, status: &Status, report: &Report) -> Standing<'a> {
    // The block of a rule has its name.
    let mut blocks =
        report.iter().filter(|(each, _)| each.numbers().is_block() && each.name() == policy.name());
    let blocked_for = blocks.find_map(|(_, status)| match status.wait() {
        Wait::For(wait) => Some(seconds_up(wait)),
        Wait::None | Wait::Never => None,
    });
    let retry_after = match status.wait() {
        // As `Retry-After`: another request may end at any time.
        Wait::For(_) if policy.is_in_flight() => Some(1),
        Wait::For(wait) => Some(seconds_up(wait)),
        Wait::None | Wait::Never => None,
    };
    Standing {
        name: policy.name(),
        algorithm: policy.algorithm().name(),
        limit: policy.quota().limit(),
        capacity: policy.capacity(),
        remaining: status.remaining(),
        reset_after: (!policy.is_in_flight()).then(|| seconds_up(status.reset_after())),
        retry_after,
        blocked_for,
    }
}
