//! `GET /rules`: the rules in force, and what the server makes of its file.

use axum::response::Response;
use serde::Serialize;
use tollgate::RateLimitLayer;
use tollgate::layer::RulesInForce;
use tollgate::watch::Watcher;

use crate::me::json;
use crate::store::AnyStore;

#[derive(Serialize)]
struct Rules {
    in_force: RulesInForce,
    /// Absent without a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<OfFile>,
}

#[derive(Serialize)]
struct OfFile {
    /// The version of the rules after its latest change.
    version: u64,
    /// Why the file as it is now is not used.
    error: Option<String>,
}

/// Not for callers, who would know how to stay below the limits: a service has this behind the
/// authentication of its operators.
pub(crate) fn rules(layer: &RateLimitLayer<AnyStore>, watcher: Option<&Watcher>) -> Response {
    let file = watcher
        .map(Watcher::status)
        .map(|status| OfFile { version: status.version(), error: status.error().map(str::to_owned) });
    json(&Rules { in_force: layer.rules_in_force(), file })
}
