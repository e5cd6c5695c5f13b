//! What a file of rules can name, in addition to what every file can.

use std::error::Error;

use http::StatusCode;
use tollgate::charge::ResponseHead;
use tollgate::config::Registry;
use tollgate::extract::ClientIp;
use tollgate::{Head, Key, Limit};

use crate::login;
use crate::tokens;
use crate::transfer;

/// The names of costs.
pub(crate) const TRANSFER: &str = "transfer";
pub(crate) const ESTIMATE: &str = "estimate";
pub(crate) const ONE: &str = "one";

/// The name of the exemption of all requests but log-ins.
pub(crate) const NOT_LOGIN: &str = "not-login";

/// The header that names the class of a request.
pub(crate) const CLASS_HEADER: &str = "x-class";

/// The name of the limit that requests bring, and its header.
const OF_HEADER: &str = "of-header";
const LIMIT_HEADER: &str = "x-limit";

/// The class of requests that `--leaving` is for.
pub(crate) const BATCH: &str = "batch";

/// Returns the closures of this server, by their names.
pub(crate) fn registry(client_ip: Option<ClientIp>) -> Registry {
    let registry = Registry::new()
        .cost(TRANSFER, transfer::cost)
        .cost(ESTIMATE, tokens::estimate)
        .cost(ONE, |_: &Head<'_>| 1)
        .class(CLASS_HEADER, class)
        .quota(OF_HEADER, limit)
        .count_if("failed", |response: &ResponseHead<'_>| response.status() == StatusCode::UNAUTHORIZED)
        .exempt(NOT_LOGIN, login::is_elsewhere);
    match client_ip {
        Some(client_ip) => registry.client_ip(client_ip),
        None => registry,
    }
}

/// The class of a request. A server would choose it by what it knows of the caller.
fn class(head: &Head<'_>, _: &Key) -> Option<String> {
    Some(head.headers().get(CLASS_HEADER)?.to_str().ok()?.to_owned())
}

/// The limit of a request. A server would read it from a row of the caller.
fn limit(head: &Head<'_>, _: &Key) -> Result<Option<Limit>, Box<dyn Error>> {
    let Some(row) = head.headers().get(LIMIT_HEADER) else { return Ok(None) };
    Ok(Some(row.to_str()?.parse()?))
}
