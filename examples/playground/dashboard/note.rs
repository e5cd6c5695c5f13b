//! Notes the keys of requests, of the rules whose keys the page shows.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tollgate::{Denial, Head};

use crate::live_rules::LiveRules;

/// Notes the keys of requests in flight, and those that a rule which blocks has denied. The denial
/// in the response has no key.
pub(super) async fn note(State(rules): State<LiveRules>, request: Request, next: Next) -> Response {
    let rules = rules.now();
    let head = Head::from(&request);
    let keys: Vec<_> = rules.iter().map(|rule| rule.shown_key(&head)).collect();
    for (rule, key) in rules.iter().zip(&keys) {
        if let Some(key) = key.as_ref().filter(|_| !rule.blocks()) {
            rule.latest_keys().note(key.clone());
        }
    }
    let response = next.run(request).await;
    if let Some(denial) = response.extensions().get::<Denial>() {
        for (rule, key) in rules.iter().zip(keys) {
            let is_denied = rule.blocks() && denial.violated().any(|name| name == rule.name());
            if let Some(key) = key.filter(|_| is_denied) {
                rule.latest_keys().note(key);
            }
        }
    }
    response
}
