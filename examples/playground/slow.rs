//! `GET /slow/{ms}` and `GET /drip/{ms}`: requests that are in flight for a while, and end early if
//! they lose their slots.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::Slot;

const LONGEST: Duration = Duration::from_secs(60);

/// The time between two pieces of a body.
const PACE: Duration = Duration::from_millis(100);

const BAD_TIME: (StatusCode, &str) =
    (StatusCode::BAD_REQUEST, "use a whole number of milliseconds, up to 60000\n");

const LOST: &str = "stopped: the slot was lost\n";

/// Answers after a time.
pub(crate) async fn slow(slot: Slot, Path(ms): Path<String>) -> Response {
    let Some(time) = parse(&ms) else { return BAD_TIME.into_response() };
    tokio::select! {
        () = sleep(time) => format!("took {ms} ms\n").into_response(),
        () = slot.lost() => (StatusCode::SERVICE_UNAVAILABLE, LOST).into_response(),
    }
}

/// Answers at once, with a body that takes a time.
pub(crate) async fn drip(slot: Slot, Path(ms): Path<String>) -> Response {
    let Some(time) = parse(&ms) else { return BAD_TIME.into_response() };
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(produce(slot, time, sender));
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Produces a piece at each pace, until the time is over. The client may leave, which is an error
/// of the sender.
async fn produce(slot: Slot, mut left: Duration, sender: mpsc::Sender<String>) {
    let mut number = 0;
    while !left.is_zero() {
        let pace = left.min(PACE);
        tokio::select! {
            () = sleep(pace) => {}
            () = slot.lost() => {
                let _ = sender.send(LOST.to_owned()).await;
                return;
            }
        }
        left -= pace;
        number += 1;
        if sender.send(format!("piece {number}\n")).await.is_err() {
            return;
        }
    }
}

fn parse(ms: &str) -> Option<Duration> {
    let is_number = ms.bytes().all(|byte| byte.is_ascii_digit());
    let time = ms.parse().ok().filter(|_| is_number).map(Duration::from_millis);
    time.filter(|time| *time <= LONGEST)
}
