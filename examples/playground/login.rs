//! `POST /login`: a form whose wrong passwords are counted.
//!
//! A failure is charged before the check, and given back if the password is right. Log-ins of one
//! name wait for each other, so that right ones do not lack what another has only reserved. They do
//! so after their forms are read: a form that never ends holds up no other. An address that is
//! refused does not wait: it holds up no other either.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::time::sleep;
use tollgate::charge::Charges;
use tollgate::{Head, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Report, SetupError, StoreExt, Wait};

use crate::store::AnyStore;

/// The name of the rule that counts failures.
pub(crate) const RULE: &str = "login";

/// The name of the policy by which log-ins wait.
pub(crate) const TURN: &str = "login-turn";

pub(crate) const PATH: &str = "/login";
const PASSWORD: &str = "open sesame";

/// Stands for a slow hash.
const TIME_OF_CHECK: Duration = Duration::from_millis(100);

/// How long a log-in waits for others of its name.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Whether the rule ignores a request: all but log-ins. `/me` charges nothing, and shows the rule.
pub(crate) fn is_elsewhere(head: &Head<'_>) -> bool {
    let is_log_in = head.method() == Method::POST && head.uri().path() == PATH;
    !is_log_in && head.uri().path() != "/me"
}

/// Returns a limiter with one slot for each name.
pub(crate) fn turns(store: AnyStore) -> Result<Limiter<AnyStore>, SetupError> {
    let turns = Limiter::try_new([Policy::in_flight(TURN, 1)])?;
    match turns.clone().try_store(store) {
        // A share of one slot is none. The names of each server wait by themselves then.
        Err(SetupError::Unsupported(..)) => turns.try_store(MemoryStore::new().boxed()),
        turns => turns,
    }
}

/// Reads the form, and waits until no other log-in of its name runs. Then the rules decide. One
/// that they refuse now takes no turn.
pub(crate) async fn in_turn(
    State((turns, layer)): State<(Limiter<AnyStore>, RateLimitLayer<AnyStore>)>,
    parts: Parts,
    form: Bytes,
    next: Next,
) -> Response {
    let looked = layer.limiter().look(&Head::from(&parts)).await;
    let is_refused = |report: Report| report.statuses().iter().any(|status| status.wait() != Wait::None);
    let turn = match looked.is_ok_and(is_refused) {
        true => None,
        false => match turns.until_ready(&name(&form), 1, LONGEST_WAIT).await {
            Ok(turn) => Some(turn),
            Err(denial) => return denial.into_response(),
        },
    };
    let response = next.run(Request::from_parts(parts, Body::from(form))).await;
    drop(turn);
    response
}

/// Checks the first field `password` of a form. A form with several is still one guess.
pub(crate) async fn log_in(charges: Charges, form: Bytes) -> (StatusCode, &'static str) {
    sleep(TIME_OF_CHECK).await;
    let is_right = field(&form, "password").is_some_and(|password| password == PASSWORD);
    // Before the next turn. If the client leaves, the failure stays.
    if let Some(failure) = charges.of(RULE) {
        failure.settle(u64::from(!is_right)).await;
    }
    if is_right { (StatusCode::OK, "welcome\n") } else { (StatusCode::UNAUTHORIZED, "wrong password\n") }
}

/// One key for all spellings of a name. Forms without one share a key.
fn name(form: &[u8]) -> Key {
    match field(form, "user") {
        Some(name) if !name.is_empty() => Key::from(name.to_lowercase()),
        _ => Key::global(),
    }
}

fn field<'a>(form: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    form_urlencoded::parse(form).find(|(each, _)| each == name).map(|(_, value)| value)
}
