//! An axum server of long exports. Each API key has two at a time, and others wait for up to 5
//! seconds. An export that loses its slot stops. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example exports`, then in three terminals
//! `curl -iN -H 'x-api-key: ada' http://127.0.0.1:3000/export/100`. The third waits until one of
//! the others ends, or is refused with `Retry-After: 1`.

use std::error::Error;
use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::{Router, routing::get};
use bytes::Bytes;
use http_body_util::channel::{Channel, SendError, Sender};
use tokio::net::TcpListener;
use tollgate::extract::header;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer, Slot};

/// Stands for a query of a database.
async fn read_row(row: u64) -> Bytes {
    tokio::time::sleep(Duration::from_millis(100)).await;
    Bytes::from(format!("{row},ada\n"))
}

async fn send_rows(rows: u64, to_client: &mut Sender<Bytes, io::Error>) -> Result<(), SendError> {
    for row in 1..=rows {
        to_client.send_data(read_row(row).await).await?;
    }
    Ok(())
}

async fn export(slot: Slot, Path(rows): Path<u64>) -> Body {
    let (mut to_client, body) = Channel::new(1);
    tokio::spawn(async move {
        tokio::select! {
            // An error means that the client has left.
            _ = send_rows(rows, &mut to_client) => {}
            // The error tells the client that rows are missing.
            () = slot.lost() => to_client.abort(io::Error::other("the slot was lost")),
        }
    });
    Body::new(body)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = RateLimitLayer::new([
        // Both are charged, or none. Anyone can invent a key: authenticate outside of this layer.
        Policy::new("requests", Quota::per_minute(60)).by(header("x-api-key")),
        Policy::in_flight("exports", 2)
            .by(header("x-api-key"))
            .wait_at_most(Duration::from_secs(5))
            // A slow reader holds its slot no longer than this.
            .held_at_most(Duration::from_secs(600)),
    ]);
    let app = Router::new().route("/export/{rows}", get(export)).layer(limit);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
