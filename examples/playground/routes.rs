//! Limited and unlimited routes of HTTP and gRPC, on one port.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use http::StatusCode;
use tollgate::{Limiter, RateLimitLayer};
use tonic::service::Routes;

use crate::greeter::Hello;
use crate::helloworld::greeter_server::GreeterServer;
use crate::login::{self, log_in};
use crate::me::me;
use crate::slow::{drip, slow};
use crate::store::AnyStore;
use crate::tokens::{chat, stream};
use crate::transfer::transfer;

const NOT_FOUND: &str = "try /, /dashboard, /rules, /me, /health, /slow/2000, /drip/2000, POST /transfer/3, POST /chat/100/37, \
                         POST /stream/20/500, POST /login, \
                         POST /jobs/KEY/ID with --jobs, or gRPC helloworld.Greeter/SayHello\n";

/// Returns all routes. The layer limits those that are added before it. Log-ins wait for their
/// turns before that, if failures are limited.
pub(crate) fn router(layer: &RateLimitLayer<AnyStore>, turns: Option<Limiter<AnyStore>>) -> Router {
    let http = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/transfer/{amount}", post(transfer))
        .route("/chat/{estimate}/{used}", post(chat))
        .route("/stream/{estimate}/{chunks}", post(stream))
        .route("/slow/{ms}", get(slow))
        .route("/drip/{ms}", get(drip))
        .fallback(|| async { (StatusCode::NOT_FOUND, NOT_FOUND) });
    let mut log_ins = Router::new().route(login::PATH, post(log_in)).layer(layer.clone());
    if let Some(turns) = turns {
        log_ins = log_ins.route_layer(from_fn_with_state((turns, layer.clone()), login::in_turn));
    }
    let limited =
        Routes::from(http).add_service(GreeterServer::new(Hello)).into_axum_router().layer(layer.clone());
    // Added after the layer, so never limited.
    #[cfg(feature = "reflection")]
    let limited = crate::reflection::add_to(limited);
    limited
        .merge(log_ins)
        .route("/health", get(|| async { "ok\n" }))
        .route("/me", get(me).with_state(layer.clone()))
}
