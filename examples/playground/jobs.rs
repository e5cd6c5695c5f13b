//! `--jobs`: who holds a job of a key, on the store of the server. `POST /jobs/KEY/ID` takes one,
//! `DELETE /jobs/KEY/ID` ends it, and `GET /jobs/KEY` lists those that count.

use std::fmt::Display;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use http::header::RETRY_AFTER;
use serde::Serialize;
use tollgate::Key;
use tollgate::jobs::{JobId, JobPolicy, JobStore, JobTake, Jobs};
use tollgate::time::TimeSpan;

use crate::me::{json, seconds_up};

/// Reads `NAME=N[,key=path][,ttl=D][,linger=D]`.
pub(crate) fn parse(text: &str) -> Result<JobPolicy, String> {
    read(text).map_err(|error| format!("--jobs {text:?}: {error}"))
}

fn read(text: &str) -> Result<JobPolicy, String> {
    let mut options = text.split(',');
    let limit = options.next().and_then(|first| first.split_once('='));
    let (name, limit) = limit.ok_or("expected NAME=N")?;
    let limit = limit.parse().map_err(|_| format!("{limit:?} is not a number"))?;
    let (mut ttl, mut linger) = (None, None);
    for option in options {
        let twice = match option.split_once('=') {
            Some(("key", "path")) => None,
            Some(("ttl", time)) => ttl.replace(read_time(time)?),
            Some(("linger", time)) => linger.replace(read_time(time)?),
            _ => return Err(format!("expected key=path, ttl=D or linger=D, got {option:?}")),
        };
        if twice.is_some() {
            return Err(format!("{option:?} is the second of its kind"));
        }
    }
    let policy = JobPolicy::try_new(name, limit, ttl.unwrap_or(Duration::from_secs(3_600)));
    policy.map(|policy| policy.linger(linger.unwrap_or_default())).map_err(|error| error.to_string())
}

fn read_time(text: &str) -> Result<Duration, String> {
    text.parse::<TimeSpan>().map(|time| time.0).map_err(|error| error.to_string())
}

pub(crate) fn routes<S: JobStore>(jobs: Jobs<S>) -> Router {
    Router::new()
        .route("/jobs/{key}", get(list::<S>))
        .route("/jobs/{key}/{id}", post(take::<S>).delete(end::<S>))
        .with_state(jobs)
}

#[derive(Serialize)]
struct Taken {
    attempt: u64,
}

async fn take<S: JobStore>(State(jobs): State<Jobs<S>>, Path((key, id)): Path<(String, String)>) -> Response {
    let id = match JobId::try_new(&id) {
        Ok(id) => id,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    // For as long as `ttl` allows.
    match jobs.take(&Key::from(key), id, Duration::MAX).await {
        Ok(JobTake::Held { attempt, .. }) => (StatusCode::CREATED, json(&Taken { attempt })).into_response(),
        Ok(JobTake::Full { retry_after }) => {
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, seconds_up(retry_after))]).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

async fn end<S: JobStore>(State(jobs): State<Jobs<S>>, Path((key, id)): Path<(String, String)>) -> Response {
    let Ok(id) = JobId::try_new(&id) else { return StatusCode::BAD_REQUEST.into_response() };
    match jobs.release(&Key::from(key), id).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => unavailable(&error),
    }
}

/// A job that counts. Times are in seconds.
#[derive(Serialize)]
struct Holder {
    id: String,
    attempt: u64,
    age: u64,
    ends_after: u64,
    lingers: bool,
}

async fn list<S: JobStore>(State(jobs): State<Jobs<S>>, Path(key): Path<String>) -> Response {
    let holders = match jobs.holders(&Key::from(key)).await {
        Ok(holders) => holders,
        Err(error) => return unavailable(&error),
    };
    let holders = holders.into_iter().map(|holder| Holder {
        age: holder.age.as_secs(),
        ends_after: seconds_up(holder.ends_after),
        id: holder.id,
        attempt: holder.attempt,
        lingers: holder.lingers,
    });
    json(&holders.collect::<Vec<_>>())
}

/// A take that was not answered may be repeated: the id has one slot.
fn unavailable(error: &impl Display) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response()
}
