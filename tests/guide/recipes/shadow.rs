//! A limit that counts what it would refuse.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use axum::middleware::{Next, from_fn_with_state};
use axum::routing::get;
use axum::{
    Router,
    extract::{Request, State},
    response::Response,
};
use tollgate::extract::header;
use tollgate::{Head, Outcome, Policy, PolicyExt, Quota, RequestLimiter};

use crate::{from_peer, shows, status};

async fn shadow(State(planned): State<RequestLimiter>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let _ignored = planned.check(&Head::from(&parts)).await;
    next.run(Request::from_parts(parts, body)).await
}

fn with_shadow(app: Router, refused: Arc<AtomicU64>) -> Router {
    let rule = Policy::new("planned", Quota::per_hour(2)).by(header("x-api-key"));
    let planned = RequestLimiter::new(rule).observe(move |decision| {
        if decision.outcome() == Outcome::Denied {
            refused.fetch_add(1, Ordering::Relaxed);
        }
    });
    app.layer(from_fn_with_state(planned, shadow))
}

#[tokio::test]
async fn a_limit_in_the_shadow_counts_and_refuses_nothing() {
    shows("recipes/applications.md", include_str!("shadow.rs"), &["fn with_shadow"]);
    let refused = Arc::new(AtomicU64::new(0));
    let app = with_shadow(Router::new().route("/", get(|| async {})), Arc::clone(&refused));
    for _ in 0..5 {
        assert_eq!(
            status(&app, from_peer(1, http::Request::get("/").header("x-api-key", "a"), "")).await,
            200
        );
    }
    assert_eq!(refused.load(Ordering::Relaxed), 3);
}
