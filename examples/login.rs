//! An axum server that limits failed log-ins by address and by name. Right ones are free, also many
//! at once, and reset the name. Who goes on guessing is blocked. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example login`, then a few times
//! `curl -i -d '{"name":"ada","password":"1234"}' http://127.0.0.1:3000/log-in`. The password is
//! `secret`.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use http::{StatusCode, request::Parts};
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::extract::PeerIp;
use tollgate::{Algorithm, Denial, Head, Key, Limiter, Policy, PolicyExt, Quota, RequestLimiter};

#[derive(Deserialize)]
struct LogIn {
    name: String,
    password: String,
}

/// Stands for a slow hash, and a query of a database.
async fn is_right(log_in: &LogIn) -> bool {
    tokio::time::sleep(Duration::from_millis(50)).await;
    log_in.name.eq_ignore_ascii_case("ada") && log_in.password == "secret"
}

#[derive(Clone)]
struct Limits {
    /// One log-in of a name is checked at a time.
    turns: Limiter,
    /// Failures of a name.
    names: Limiter,
    /// Failures of an address.
    addresses: RequestLimiter,
}

impl Limits {
    fn new() -> Limits {
        let failures = |name, quota| Policy::new(name, quota).with_algorithm(Algorithm::SLIDING_LOG);
        let name = failures("name", Quota::per_minute(5)).block_after(20, Duration::from_secs(900));
        let address = failures("address", Quota::per_hour(20)).block_after(100, Duration::from_secs(3_600));
        Limits {
            turns: Limiter::new([Policy::in_flight("turn", 1)]),
            names: Limiter::new([name]),
            addresses: RequestLimiter::new(address.by(PeerIp::new())),
        }
    }

    /// Whether the password is right, if it may be checked at all.
    async fn check(&self, head: &Head<'_>, log_in: &LogIn) -> Result<bool, Denial> {
        // Both failures are charged before the check, so concurrent guesses cannot exceed a limit.
        // That of the address also before the wait: one that is refused holds up no name.
        let by_address = self.addresses.check(head).await?;
        let checked = self.check_in_turn(log_in).await;
        if !matches!(checked, Ok(false)) {
            by_address.refund().await;
        }
        checked
    }

    /// Log-ins of a name wait for each other, so that right ones do not lack what another has only
    /// reserved.
    async fn check_in_turn(&self, log_in: &LogIn) -> Result<bool, Denial> {
        // One key for all spellings that the database takes for one user.
        let name = Key::from(log_in.name.to_lowercase());
        let _turn = self.turns.until_ready(&name, 1, Duration::from_secs(10)).await?;
        let failure = self.names.check(&name, 1).await?;
        let is_right = is_right(log_in).await;
        if is_right {
            // Before the next turn, which sees no failure then.
            failure.refund().await;
            self.names.reset(&name).await;
        }
        Ok(is_right)
    }
}

async fn log_in(State(limits): State<Limits>, parts: Parts, body: String) -> Response {
    let Ok(log_in) = serde_json::from_str::<LogIn>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    match limits.check(&Head::from(&parts), &log_in).await {
        Ok(true) => format!("welcome, {}\n", log_in.name).into_response(),
        Ok(false) => (StatusCode::UNAUTHORIZED, "wrong name or password\n").into_response(),
        Err(denial) => denial.into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = Router::new().route("/log-in", post(log_in)).with_state(Limits::new());

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
