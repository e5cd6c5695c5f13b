//! `POST /transfer/{amount}`: a request that costs what it moves, as a bank limits what a new user moves a day.

use http::request::Parts;
use http::{Method, StatusCode, Uri};

/// What a request costs by each rule: a transfer its amount, anything else 1.
///
/// An amount that is a number, but too large a one, costs more than any quota has. One that is no number moves
/// nothing, since the handler refuses it, and costs what any request does: what costs nothing is never limited.
pub(crate) fn cost(parts: &Parts) -> u32 {
    if parts.method != Method::POST {
        return 1;
    }
    match amount(&parts.uri) {
        None => 1,
        Some(text) if is_number(text) => text.parse().unwrap_or(u32::MAX),
        Some(_) => 1,
    }
}

/// Only requests that were charged come here.
pub(crate) async fn transfer(uri: Uri) -> (StatusCode, String) {
    // The same text that was charged. A decoded path parameter could differ from it: `%31` is a 1.
    match amount(&uri).filter(|text| is_number(text)).and_then(|text| text.parse::<u32>().ok()) {
        Some(amount) => (StatusCode::OK, format!("transferred {amount}\n")),
        None => (StatusCode::BAD_REQUEST, "the amount must be a whole number\n".to_owned()),
    }
}

/// The text of the amount, where the path is that of a transfer.
fn amount(uri: &Uri) -> Option<&str> {
    uri.path().strip_prefix("/transfer/").filter(|rest| !rest.is_empty() && !rest.contains('/'))
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}
