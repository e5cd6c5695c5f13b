//! An axum server whose callers have plans: the quota depends on the plan, and the cost on the
//! route. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example tiers`, then a few times `curl -i -H 'x-api-key: key-of-pat'
//! http://127.0.0.1:3000/export`. Compare with `key-of-fay` on the free plan, and `key-of-eve` on
//! the enterprise plan.

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Router, routing::get};
use http::StatusCode;
use tokio::net::TcpListener;
use tollgate::extract::{PeerIp, extension};
use tollgate::{Fields, Head, Key, Policy, PolicyExt, Quota, RateLimitLayer, Report};

/// A caller that the server knows.
#[derive(Clone, Copy)]
struct Caller {
    name: &'static str,
    plan: &'static str,
    api_key: &'static str,
}

/// Usually in a database, by a digest of the key.
const CALLERS: [Caller; 3] = [
    Caller { name: "fay", plan: "free", api_key: "key-of-fay" },
    Caller { name: "pat", plan: "pro", api_key: "key-of-pat" },
    Caller { name: "eve", plan: "enterprise", api_key: "key-of-eve" },
];

/// Refuses unknown callers, so that the rule inside counts only checked keys.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let api_key = request.headers().get("x-api-key").ok_or(StatusCode::UNAUTHORIZED)?;
    let caller = CALLERS.iter().find(|caller| api_key == caller.api_key).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(*caller);
    Ok(next.run(request).await)
}

/// An export is expensive. Asking what is left is free.
fn cost(head: &Head<'_>) -> u64 {
    match head.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
        Some("/export") => 10,
        Some("/me") => 0,
        _ => 1,
    }
}

async fn me(Extension(caller): Extension<Caller>, report: Report) -> String {
    match report.get("api") {
        Some((policy, status)) => {
            format!("{}: {} of {} left\n", caller.name, status.remaining(), policy.capacity())
        }
        None => format!("{}: no limit applies\n", caller.name),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The policy's own quota applies to the free plan, and to every plan that is not listed.
    let rule = Policy::new("api", Quota::per_day(20))
        .by(extension(|caller: &Caller| caller.name))
        .tiers(
            [("pro", Quota::per_day(200)), ("enterprise", Quota::per_day(2_000))],
            |head: &Head<'_>, _: &Key| head.extensions().get::<Caller>().map(|caller| caller.plan),
        )
        .cost(cost);

    // Limits attempts to guess keys. Clients do not see this limit.
    let guesses = Policy::new("guesses", Quota::per_minute(1_000)).by(PeerIp::new());
    let guesses = RateLimitLayer::new([guesses]).fields(Fields::None);

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/export", get(|| async { "a,b,c\n" }))
        .route("/me", get(me))
        // Inside authentication. `expose_report` provides the report for `me`.
        .layer(RateLimitLayer::new([rule]).expose_report())
        .layer(from_fn(authenticate))
        // Outside authentication, so that each guess counts.
        .layer(guesses);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
