//! An axum server whose customers have limits in a table that changes while it runs. The table is a
//! file here: `{"acme": 100, "bob": 0, "eve": -1}`, in requests a minute. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example polled_limits -- limits.json`, then
//! `curl -i -H 'x-api-key: key-of-acme' http://127.0.0.1:3000/`. Change the file, and ask again
//! after a second.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Router, routing::get};
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tollgate::extract::extension;
use tollgate::{Head, Key, Limit, Policy, PolicyExt, Quota, RateLimitLayer};

/// The customers and their keys. Usually in a database, by a digest of the key.
const CUSTOMERS: [(&str, &str); 4] =
    [("key-of-acme", "acme"), ("key-of-bob", "bob"), ("key-of-eve", "eve"), ("key-of-fay", "fay")];

const PAUSE: Duration = Duration::from_secs(1);

/// A customer whose key was checked.
#[derive(Clone, Copy)]
struct Customer(&'static str);

/// The limits of customers.
type Table = HashMap<String, Limit>;

/// What a row says: `-1` is unlimited, `0` nothing at all, and `null` the usual quota.
fn limit(per_minute: Option<i64>) -> Result<Limit, Box<dyn Error + Send + Sync>> {
    Ok(match per_minute {
        None => Limit::Own,
        Some(-1) => Limit::Unlimited,
        Some(0) => Limit::Nothing,
        Some(number) => Limit::Of(Quota::try_per_minute(number.try_into()?)?),
    })
}

/// Reads the table, or nothing of it: no row is unlimited because it could not be read.
fn read(file: &str) -> Result<Table, Box<dyn Error + Send + Sync>> {
    let rows: HashMap<String, Option<i64>> = serde_json::from_str(&fs::read_to_string(file)?)?;
    let row = |(customer, per_minute): (String, _)| match limit(per_minute) {
        Ok(limit) => Ok((customer, limit)),
        Err(error) => Err(format!("the row of {customer:?}: {error}").into()),
    };
    rows.into_iter().map(row).collect()
}

/// Reads the table again and again. A table that cannot be read changes nothing.
async fn poll(file: String, table: watch::Sender<Arc<Table>>) {
    loop {
        sleep(PAUSE).await;
        let file = file.clone();
        match spawn_blocking(move || read(&file)).await {
            Ok(Ok(read)) => _ = table.send_replace(Arc::new(read)),
            Ok(Err(error)) => eprintln!("the limits stay as they are: {error}"),
            Err(error) => eprintln!("the limits stay as they are: {error}"),
        }
    }
}

/// Refuses unknown callers, so that each key that is counted belongs to a customer.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let key = request.headers().get("x-api-key").ok_or(StatusCode::UNAUTHORIZED)?;
    let known = CUSTOMERS.iter().find(|(api_key, _)| key == api_key).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(Customer(known.1));
    Ok(next.run(request).await)
}

fn layer(table: watch::Receiver<Arc<Table>>) -> RateLimitLayer {
    // A customer without a row has the quota of the policy.
    let limit = move |head: &Head<'_>, _: &Key| {
        let Customer(name) = head.extensions().get()?;
        table.borrow().get(*name).copied()
    };
    let by_customer = extension(|customer: &Customer| customer.0);
    RateLimitLayer::new(Policy::new("requests", Quota::per_minute(10)).by(by_customer).quota(limit))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("the file of the limits is missing")?;
    let (table, limits) = watch::channel(Arc::new(read(&file)?));
    tokio::spawn(poll(file, table));
    // For a fleet: `.store(..)` with a store in Redis, as in the example `redis`.
    let app =
        Router::new().route("/", get(async || "hello\n")).layer(layer(limits)).layer(from_fn(authenticate));

    let listener = TcpListener::bind(arguments.next().unwrap_or("127.0.0.1:3000".to_owned())).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
