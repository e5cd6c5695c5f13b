//! An axum server that hands out jobs: each customer runs two at a time, in any worker. A worker
//! that dies loses its job after a minute. Copy it.
//!
//! `cargo run --release -p tollgate-examples --example job_queue`, then
//! `curl -i -X POST http://127.0.0.1:3000/jobs/acme/a` three times, with the ids a, b and c. The
//! third is refused with `Retry-After`. `curl http://127.0.0.1:3000/jobs/acme` lists who holds what,
//! and `curl -X DELETE http://127.0.0.1:3000/jobs/acme/a` ends one, from anywhere.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tollgate::Key;
use tollgate::jobs::{JobId, JobPolicy, JobStore, JobTake, Jobs, MemoryJobs};

/// As long as a worker may be silent. It renews its job before that.
const SILENCE: Duration = Duration::from_secs(60);

/// After this time a worker asks again at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// No job is held for longer, however often it is renewed.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);

/// A worker asks for a job: 201 with the attempt, or 429.
async fn take<S: JobStore>(
    State(jobs): State<Jobs<S>>,
    Path((customer, id)): Path<(String, String)>,
) -> Response {
    let id = match JobId::try_new(&id) {
        Ok(id) => id,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match jobs.take(&Key::from(customer), id, SILENCE).await {
        Ok(JobTake::Held { attempt, .. }) => {
            (StatusCode::CREATED, as_json(&json!({ "attempt": attempt }))).into_response()
        }
        // By then one has ended by its time. One that is released ends before, so look earlier.
        Ok(JobTake::Full { retry_after }) => {
            let seconds = retry_after.as_secs().clamp(1, LOOK_AGAIN.as_secs());
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds)]).into_response()
        }
        // The worker asks again, with the same id.
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// A worker says that it is still at work, or that it has ended.
type Attempt = Path<(String, String, u64)>;

async fn renew<S: JobStore>(
    State(jobs): State<Jobs<S>>,
    Path((customer, id, attempt)): Attempt,
) -> StatusCode {
    let Ok(id) = JobId::try_new(&id) else { return StatusCode::BAD_REQUEST };
    let end = jobs.renew(&Key::from(customer), id, attempt, SILENCE).await;
    status(end.map(|end| end.is_some()))
}

async fn end<S: JobStore>(State(jobs): State<Jobs<S>>, Path((customer, id, attempt)): Attempt) -> StatusCode {
    let Ok(id) = JobId::try_new(&id) else { return StatusCode::BAD_REQUEST };
    status(jobs.release_attempt(&Key::from(customer), id, attempt).await)
}

/// An operator ends a job of any worker.
async fn stop<S: JobStore>(
    State(jobs): State<Jobs<S>>,
    Path((customer, id)): Path<(String, String)>,
) -> StatusCode {
    let Ok(id) = JobId::try_new(&id) else { return StatusCode::BAD_REQUEST };
    status(jobs.release(&Key::from(customer), id).await)
}

/// 404 if the job is not held, or if it has another attempt.
fn status<E>(was_held: Result<bool, E>) -> StatusCode {
    match was_held {
        Ok(true) => StatusCode::NO_CONTENT,
        Ok(false) => StatusCode::NOT_FOUND,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Who holds what.
async fn list<S: JobStore>(State(jobs): State<Jobs<S>>, Path(customer): Path<String>) -> Response {
    let Ok(holders) = jobs.holders(&Key::from(customer)).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let holders = holders.iter().map(
        |holder| json!({ "id": holder.id, "attempt": holder.attempt, "age-seconds": holder.age.as_secs() }),
    );
    as_json(&holders.collect()).into_response()
}

/// For workers only. Any caller can invent customers here, and end their jobs: authenticate outside
/// of these routes.
fn app<S: JobStore>(jobs: Jobs<S>) -> Router {
    Router::new()
        .route("/jobs/{customer}", get(list::<S>))
        .route("/jobs/{customer}/{id}", post(take::<S>).delete(stop::<S>))
        .route("/jobs/{customer}/{id}/{attempt}", put(renew::<S>).delete(end::<S>))
        .with_state(jobs)
}

fn as_json(value: &Value) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, "application/json")], value.to_string())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // For a fleet: `RedisStore::connect(url).await?` in the place of `MemoryJobs::new()`.
    let app = app(Jobs::new(JobPolicy::new("jobs", 2, LONGEST), MemoryJobs::new()));

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
