//! Routes that are limited, and routes that are not.

use axum::Router;
use axum::routing::{get, post};
use http::StatusCode;
use tollgate::RateLimitLayer;

use crate::me::me;
use crate::store::AnyStore;
use crate::transfer::transfer;

/// All routes, those above the layer limited by it.
pub(crate) fn router(layer: RateLimitLayer<AnyStore>) -> Router {
    let limiter = layer.limiter();
    Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/transfer/{amount}", post(transfer))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there is /, /me, /health and POST /transfer/3\n") })
        .layer(layer)
        // Added after the layer, these are outside of it.
        .route("/health", get(|| async { "ok\n" }))
        .route("/me", get(me))
        .with_state(limiter)
}
