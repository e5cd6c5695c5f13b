//! An axum server whose callers have plans: the quota depends on the plan, the cost on the route. Copy it.
//!
//! `cargo run --release --example tiers`, then `curl -i -H 'x-api-key: key-of-pat' http://127.0.0.1:3000/export` a few times,
//! and the same as `key-of-fay`, who is on the free plan, and as `key-of-eve`, an enterprise.

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Router, routing::get};
use http::StatusCode;
use http::request::Parts;
use tokio::net::TcpListener;
use tollgate::extract::{PeerIp, extension};
use tollgate::{Fields, Key, Policy, PolicyExt, Quota, RateLimitLayer, Report};

/// Somebody who may call.
#[derive(Clone, Copy)]
struct Caller {
    name: &'static str,
    plan: &'static str,
    api_key: &'static str,
}

/// In a database, usually, and by a digest of the key.
const CALLERS: [Caller; 3] = [
    Caller { name: "fay", plan: "free", api_key: "key-of-fay" },
    Caller { name: "pat", plan: "pro", api_key: "key-of-pat" },
    Caller { name: "eve", plan: "enterprise", api_key: "key-of-eve" },
];

/// Whoever is not known goes no further: only keys that were checked are counted.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let api_key = request.headers().get("x-api-key").ok_or(StatusCode::UNAUTHORIZED)?;
    let caller = CALLERS.iter().find(|caller| api_key == caller.api_key).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(*caller);
    Ok(next.run(request).await)
}

/// Exports are dear, and to ask what is left is free.
fn cost(parts: &Parts) -> u32 {
    match parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str) {
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
    // The policy's own quota is that of the free plan, and of every plan that is not listed.
    let rule = Policy::new("api", Quota::per_day(20))
        .by(extension(|caller: &Caller| caller.name))
        .tiers(
            [("pro", Quota::per_day(200)), ("enterprise", Quota::per_day(2_000))],
            |parts: &Parts, _: &Key| parts.extensions.get::<Caller>().map(|caller| caller.plan),
        )
        .cost(cost);

    // Nobody's business but ours.
    let guesses = Policy::new("guesses", Quota::per_minute(1_000)).by(PeerIp::new());
    let guesses = RateLimitLayer::new([guesses]).fields(Fields::None);

    let app = Router::new()
        .route("/", get(|| async { "hello\n" }))
        .route("/export", get(|| async { "a,b,c\n" }))
        .route("/me", get(me))
        // Inside of what tells who the caller is. `expose_verdict` is what `me` sees the report by.
        .layer(RateLimitLayer::new([rule]).expose_verdict())
        .layer(from_fn(authenticate))
        // Outside of it, or keys could be guessed without end.
        .layer(guesses);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
