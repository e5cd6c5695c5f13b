//! `POST /transfer/{amount}`: a request whose cost is the amount, like a bank's daily limit for a
//! new user.

use http::{Method, StatusCode, Uri};
use tollgate::Head;

/// Returns the cost of a request under each rule: the amount of a transfer, otherwise 1.
///
/// A number that is too large costs more than any quota has. For an amount that is no number, the
/// handler refuses the transfer. Such a request costs 1, because a request that costs nothing is
/// never limited.
pub(crate) fn cost(head: &Head<'_>) -> u64 {
    if head.method() != Method::POST {
        return 1;
    }
    match amount(head.uri()) {
        None => 1,
        Some(text) if is_number(text) => text.parse().unwrap_or(u64::MAX),
        Some(_) => 1,
    }
}

/// Handles a transfer after the layer has charged it.
pub(crate) async fn transfer(uri: Uri) -> (StatusCode, String) {
    // The text that was charged. A decoded path parameter could differ: `%31` is a 1.
    match amount(&uri).filter(|text| is_number(text)).and_then(|text| text.parse::<u64>().ok()) {
        Some(amount) => (StatusCode::OK, format!("transferred {amount}\n")),
        None => (StatusCode::BAD_REQUEST, "the amount must be a whole number\n".to_owned()),
    }
}

/// Returns the text of the amount, if the path is that of a transfer.
fn amount(uri: &Uri) -> Option<&str> {
    uri.path().strip_prefix("/transfer/").filter(|rest| !rest.is_empty() && !rest.contains('/'))
}

pub(crate) fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}
