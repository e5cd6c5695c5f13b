//! What gRPC and Connect say of a denial alike: the code, the text and the wait.

use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;

use crate::answer::fields::strictness;
use crate::decision::Denial;
use crate::errors::Reason;

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
        Reason::QuotaExceeded | Reason::Blocked | Reason::NeverPossible => {
            (8, "resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
        }
        Reason::Unavailable | Reason::Stopping => (14, "unavailable", StatusCode::SERVICE_UNAVAILABLE),
        Reason::NothingAllowed => (7, "permission_denied", StatusCode::FORBIDDEN),
        Reason::NoKey => (3, "invalid_argument", StatusCode::BAD_REQUEST),
        Reason::InvalidLimit | Reason::NoPeerAddress => (13, "internal", StatusCode::INTERNAL_SERVER_ERROR),
    };
    Code { number, name, http_status }
}

/// The most bytes that the names of policies take in a message, and in the details: clients accept
/// 8 kB of headers in all.
const MOST_BYTES: usize = 1_024;

/// What a policy takes in the details, without its name.
const OVERHEAD: usize = 40;

/// The policies that refused, and how many more there are. If not all fit, those with the longest
/// wait come first.
pub(super) fn refusing(denial: &Denial) -> (SmallVec<[&str; 4]>, usize) {
    // A percent sign is encoded in a header.
    let length = |name: &str| OVERHEAD + name.len() + 2 * name.matches('%').count();
    let mut names: SmallVec<[&str; 4]> = denial.violated().collect();
    let all = names.len();
    if names.iter().map(|name| length(name)).sum::<usize>() > MOST_BYTES {
        let waits = denial.violated_at().map(|at| denial.report().statuses().get(at).map(strictness));
        let mut by_wait: Vec<_> = waits.zip(names).collect();
        by_wait.sort_by_key(|(strictness, _)| Reverse(*strictness));
        let mut left = MOST_BYTES;
        let fits = |name: &&str| {
            left = left.saturating_sub(length(name));
            left > 0
        };
        names = by_wait.into_iter().map(|(_, name)| name).take_while(fits).collect();
    }
    let more = all - names.len();
    (names, more)
}

/// The denial as text.
pub(super) fn message(denial: &Denial) -> String {
    // Most are no longer: it grows once.
    let mut message = String::with_capacity(64);
    let (names, more) = refusing(denial);
    if more == 0 {
        let _ = write!(message, "{denial}");
    } else {
        let _ = write!(message, "{}: {}, and {more} more", denial.reason().text(), names.join(", "));
    }
    message
}
