//! An axum server that limits failed log-ins by address and by name. Right ones are free. Copy it.
//!
//! `cargo run --release --example login`, then a few times
//! `curl -i -d '{"name":"ada","password":"1234"}' http://127.0.0.1:3000/log-in`. The password is
//! `secret`.

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use http::{StatusCode, request::Parts};
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::extract::{PeerIp, extension_ref};
use tollgate::{Algorithm, Head, Policy, PolicyExt, Quota, RequestLimiter};

#[derive(Deserialize)]
struct LogIn {
    name: String,
    password: String,
}

/// What the rule by name reads. Extractors do not see bodies, so the handler leaves it for them.
#[derive(Clone)]
struct Name(String);

/// Stands for a slow hash, and a query of a database.
async fn is_right(log_in: &LogIn) -> bool {
    log_in.name.eq_ignore_ascii_case("ada") && log_in.password == "secret"
}

async fn log_in(State(failures): State<RequestLimiter>, mut parts: Parts, body: String) -> Response {
    let Ok(log_in) = serde_json::from_str::<LogIn>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // One key for all spellings that the database takes for one user.
    parts.extensions.insert(Name(log_in.name.to_lowercase()));
    // Charged before the password is checked: concurrent guesses cannot exceed the limit.
    let permit = match failures.check(&Head::from(&parts)).await {
        Ok(permit) => permit,
        Err(denial) => return denial.into_response(),
    };
    if !is_right(&log_in).await {
        return (StatusCode::UNAUTHORIZED, "wrong name or password\n").into_response();
    }
    failures.refund(permit).await;
    format!("welcome, {}\n", log_in.name).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Both are charged, or none. Anyone can use up the quota of a name, so it forgives soon.
    let failures = RequestLimiter::new([
        Policy::new("address", Quota::per_hour(20)).with_algorithm(Algorithm::SLIDING_LOG).by(PeerIp::new()),
        Policy::new("name", Quota::per_minute(5))
            .with_algorithm(Algorithm::SLIDING_LOG)
            .by(extension_ref(|Name(name): &Name| name.as_str())),
    ]);
    let app = Router::new().route("/log-in", post(log_in)).with_state(failures);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
