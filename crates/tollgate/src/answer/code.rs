//! What gRPC and Connect say of a denial alike: the code, the text and the wait.

use std::fmt::Write;
use std::time::Duration;

use http::StatusCode;

use crate::denial::Denial;
use crate::problem::Reason;

/// How long to wait, if waiting helps: [`Denial::retry_after`], or `Retry-After` if the store is
/// unavailable.
pub(super) fn wait(denial: &Denial) -> Option<Duration> {
    denial.retry_after().or_else(|| denial.retry_after_seconds().map(Duration::from_secs))
}

/// A status code: its [number](https://grpc.io/docs/guides/status-codes/) in gRPC, its
/// [name and HTTP status](https://connectrpc.com/docs/protocol#error-codes) in Connect.
pub(super) struct Code {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) http_status: StatusCode,
}

pub(super) fn code(reason: Reason) -> Code {
    let (number, name, http_status) = match reason {
        Reason::QuotaExceeded | Reason::NeverPossible => {
            (8, "resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
        }
        Reason::Unavailable => (14, "unavailable", StatusCode::SERVICE_UNAVAILABLE),
        Reason::NoKey => (3, "invalid_argument", StatusCode::BAD_REQUEST),
        Reason::NoPeerAddress => (13, "internal", StatusCode::INTERNAL_SERVER_ERROR),
    };
    Code { number, name, http_status }
}

/// The denial as text.
pub(super) fn message(denial: &Denial) -> String {
    // Most are no longer: it grows once.
    let mut message = String::with_capacity(64);
    let _ = write!(message, "{denial}");
    message
}
