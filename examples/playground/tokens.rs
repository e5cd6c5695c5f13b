//! `POST /chat/{estimate}/{used}` and `POST /stream/{estimate}/{chunks}`: requests whose cost is
//! known only at their end, like the tokens of a language model.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode, Uri};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::interval;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::charge::Charges;
use tollgate::store::Settled;
use tollgate::{Charge, Head, Quota};

use crate::transfer::{self, is_number};

/// The name of the rule that these routes reserve and settle.
pub(crate) const RULE: &str = "tokens";

/// The time between two chunks of a stream.
const PACE: Duration = Duration::from_millis(10);

const BAD_NUMBERS: (StatusCode, &str) =
    (StatusCode::BAD_REQUEST, "use whole numbers up to 1099511627776, and an estimate of at least 1\n");

const NO_RULE: (StatusCode, &str) =
    (StatusCode::NOT_FOUND, "this route needs a rule named tokens, such as --rule tokens=1000/m\n");

#[derive(Serialize)]
struct Answer {
    reserved: u64,
    charged: u64,
    debt: u64,
    forgiven: u64,
}

/// Returns what the rule charges before the work: the estimate, and on other routes what any rule
/// charges. A malformed request costs 1, as one to `/transfer` does.
pub(crate) fn estimate(head: &Head<'_>) -> u64 {
    match numbers(head.uri()) {
        Some((estimate, _)) if head.method() == Method::POST => estimate,
        _ => transfer::cost(head),
    }
}

/// Settles the estimate to what the path says.
pub(crate) async fn chat(uri: Uri, charges: Charges) -> Response {
    let Some((_, used)) = numbers(&uri) else { return BAD_NUMBERS.into_response() };
    let Some(charge) = charges.of(RULE) else { return NO_RULE.into_response() };
    let reserved = charge.reserved();
    let Settled { charged, debt, forgiven, .. } = charge.settle(used).await;
    match serde_json::to_string_pretty(&Answer { reserved, charged, debt, forgiven }) {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Streams chunks of one unit each.
pub(crate) async fn stream(uri: Uri, charges: Charges) -> Response {
    let Some((estimate, chunks)) = numbers(&uri) else { return BAD_NUMBERS.into_response() };
    let Some(charge) = charges.of(RULE) else { return NO_RULE.into_response() };
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(produce(charge.clone(), estimate, chunks, sender));
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response()
}

/// Produces chunks, and reserves more whenever the reservation is used up. If the client leaves,
/// the drop of the charge settles it.
async fn produce(charge: Charge, estimate: u64, chunks: u64, sender: mpsc::Sender<String>) {
    // From here on, the charge is what is used: a client that leaves now pays nothing.
    charge.used(0);
    let mut pace = interval(PACE);
    for number in 1..=chunks {
        pace.tick().await;
        if charge.used_so_far() >= charge.reserved()
            && let Err(denial) = charge.extend(estimate).await
        {
            let mut end = format!("stopped: {estimate} more units are refused: {denial}");
            if let Some(seconds) = denial.retry_after_seconds() {
                end += &format!("; retry in {seconds} s");
            }
            let _ = sender.send(end + "\n").await;
            break;
        }
        charge.used(1);
        if sender.send(format!("chunk {number}\n")).await.is_err() {
            return;
        }
    }
    // Before the body ends, so that the client's next request sees it.
    charge.settle(charge.used_so_far()).await;
}

/// Returns the numbers in the path of one of these routes, if they are valid. They are not decoded,
/// so that the handler sees the numbers that were charged.
fn numbers(uri: &Uri) -> Option<(u64, u64)> {
    let path = uri.path();
    let numbers = path.strip_prefix("/chat/").or_else(|| path.strip_prefix("/stream/"))?;
    let (estimate, amount) = numbers.split_once('/')?;
    let number = |text: &str| {
        let number = text.parse().ok().filter(|_| is_number(text));
        number.filter(|number| *number <= Quota::MAX_UNITS)
    };
    Some((number(estimate).filter(|estimate| *estimate > 0)?, number(amount)?))
}
