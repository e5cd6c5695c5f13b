//! The reasons why requests are refused, and their problem documents (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;

/// The kinds of [`Denial`](crate::Denial).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A quota is used up. Answered 429 with `Retry-After`, in gRPC 8 (`RESOURCE_EXHAUSTED`).
    QuotaExceeded,
    /// The key is [blocked](crate::Policy::block_after) for a time, after many denials. Answered
    /// 429 with `Retry-After`, in gRPC 8 (`RESOURCE_EXHAUSTED`).
    Blocked,
    /// The cost exceeds what a quota can ever grant, so retrying does not help. Answered 422, in
    /// gRPC 8 with a pushback of -1.
    NeverPossible,
    /// The store did not answer, and the failure policy is to refuse. Answered 503, in gRPC 14
    /// (`UNAVAILABLE`).
    Unavailable,
    /// The limiter was [closed](crate::Limiter::close), since its process stops. Answered 503, in
    /// gRPC 14 (`UNAVAILABLE`).
    Stopping,
    /// The limit of this caller is [nothing at all](crate::Limit::Nothing), so waiting does not
    /// help. Answered 403, in gRPC 7 (`PERMISSION_DENIED`) with a pushback of -1.
    NothingAllowed,
    /// A rule found no key and refuses such requests. Answered 400, in gRPC 3 (`INVALID_ARGUMENT`).
    NoKey,
    /// The [limit of this caller](crate::Rule::quota) cannot be read, or the rule does not allow
    /// it: a mistake in the server's data. Answered 500, in gRPC 13 (`INTERNAL`).
    InvalidLimit,
    /// The server does not provide the peer's address that a rule needs: a mistake in the server's
    /// code, which the log names. Answered 500, in gRPC 13 (`INTERNAL`).
    NoPeerAddress,
}

impl Reason {
    /// Returns the status code of the answer, outside of gRPC.
    pub fn status(self) -> StatusCode {
        match self {
            Reason::QuotaExceeded | Reason::Blocked => StatusCode::TOO_MANY_REQUESTS,
            Reason::NeverPossible => StatusCode::UNPROCESSABLE_ENTITY,
            Reason::Unavailable | Reason::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Reason::NothingAllowed => StatusCode::FORBIDDEN,
            Reason::NoKey => StatusCode::BAD_REQUEST,
            Reason::InvalidLimit | Reason::NoPeerAddress => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Whether a rule refused without asking a store.
    pub(crate) fn is_by_rule(self) -> bool {
        matches!(self, Reason::NothingAllowed | Reason::NoKey | Reason::InvalidLimit | Reason::NoPeerAddress)
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Reason::QuotaExceeded => "quota exceeded",
            Reason::Blocked => "blocked after too many refusals",
            Reason::NeverPossible => "the cost exceeds the whole quota",
            Reason::Unavailable => "the rate limit store is unavailable",
            Reason::Stopping => "this process stops",
            Reason::NothingAllowed => "nothing is allowed",
            Reason::NoKey => "the request carries no key",
            Reason::InvalidLimit => "the limit of this caller is not valid",
            Reason::NoPeerAddress => "the server does not provide the peer's address",
        }
    }
}

/// The problem document of a request that these policies refused.
pub(crate) fn problem<'a>(reason: Reason, mut violated: impl Iterator<Item = &'a str>) -> String {
    let status = reason.status().as_u16();
    // A type has one title, which the draft registers (RFC 9457, section 3.1.3).
    let (kind, title) = match reason {
        Reason::Blocked => ("abnormal-usage-detected", "Abnormal Usage Detected"),
        _ => ("quota-exceeded", "Quota Exceeded"),
    };
    let detail = match reason {
        Reason::QuotaExceeded | Reason::Blocked => "",
        Reason::NeverPossible => ",\"detail\":\"The cost of this request exceeds the whole quota\"",
        Reason::Unavailable | Reason::Stopping => {
            return format!(
                "{{\"type\":\"{TYPES}temporary-reduced-capacity\",\
                 \"title\":\"Temporary Reduced Capacity\",\"status\":{status}}}"
            );
        }
        Reason::NothingAllowed | Reason::NoKey | Reason::InvalidLimit | Reason::NoPeerAddress => {
            let policy = escaped(violated.next().unwrap_or_default());
            let (title, mistake) = match reason {
                Reason::NothingAllowed => ("Forbidden", "allows nothing"),
                Reason::NoKey => ("Bad Request", "found no key in the request"),
                Reason::InvalidLimit => ("Internal Server Error", "has no valid limit for this caller"),
                _ => ("Internal Server Error", "needs the peer's address, which the server does not provide"),
            };
            return format!(
                "{{\"title\":\"{title}\",\"status\":{status},\"detail\":\"The policy \\\"{policy}\\\" {mistake}\"}}"
            );
        }
    };
    let names: Vec<String> = violated.map(|name| format!("\"{}\"", escaped(name))).collect();
    let names = names.join(",");
    format!(
        "{{\"type\":\"{TYPES}{kind}\",\"title\":\"{title}\",\"status\":{status}{detail},\
         \"violated-policies\":[{names}]}}"
    )
}

/// Where the RateLimit draft registers its problem types.
const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// Escapes a policy's name for a structured-field string (RFC 9651, section 3.3.3) or a JSON
/// string. For printable ASCII the rules are the same.
pub(crate) fn escaped(name: &str) -> Cow<'_, str> {
    if name.contains(['"', '\\']) {
        Cow::Owned(name.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        Cow::Borrowed(name)
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds_up(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_one_title() {
        let of = |reason| problem(reason, ["a", "b\""].into_iter());
        let of_type = concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota Exceeded","status":"#
        );
        let violated = r#""violated-policies":["a","b\""]}"#;
        assert_eq!(of(Reason::QuotaExceeded), format!("{of_type}429,{violated}"));
        let detail = r#""detail":"The cost of this request exceeds the whole quota""#;
        assert_eq!(of(Reason::NeverPossible), format!("{of_type}422,{detail},{violated}"));
    }
}
