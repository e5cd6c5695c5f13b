//! A denial as a status of tonic, with the details of the
//! [richer error model](https://grpc.io/docs/guides/error/#richer-error-model).

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::{Binary, MetadataMap, MetadataValue};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, QuotaViolation, StatusExt};

use super::{GRPC_RETRY_PUSHBACK_MS, code, message, pushback, wait};
use crate::denial::Denial;
use crate::problem::Reason;

const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// The status that a layer would answer with: for handlers that ask a [`Limiter`](crate::Limiter).
///
/// ```
/// # #[cfg(feature = "tonic")] {
/// use tollgate::{Key, Limiter};
///
/// async fn charge(limiter: &Limiter, user: u64) -> Result<(), tonic::Status> {
///     let permit = limiter.check_key(&Key::from(user), 1).await?;
///     // Zero, but for a leaky bucket.
///     tokio::time::sleep(permit.delay()).await;
///     Ok(())
/// }
/// # }
/// ```
impl From<&Denial> for Status {
    fn from(denial: &Denial) -> Status {
        let mut metadata = MetadataMap::new();
        metadata.as_mut().insert(GRPC_RETRY_PUSHBACK_MS, pushback(denial));
        let message = message(denial);
        match details(denial) {
            Some(details) => {
                Status::with_error_details_and_metadata(tonic_code(denial), message, details, metadata)
            }
            None => Status::with_metadata(tonic_code(denial), message, metadata),
        }
    }
}

impl From<Denial> for Status {
    fn from(denial: Denial) -> Status {
        Status::from(&denial)
    }
}

/// Adds what tells a program of the waits and of the policies, where there is something to tell.
pub(super) fn add_details(denial: &Denial, message: &str, headers: &mut HeaderMap) {
    let Some(details) = details(denial) else { return };
    let status = Status::with_error_details(tonic_code(denial), message, details);
    let encoded = MetadataValue::<Binary>::from_bytes(status.details());
    if let Ok(value) = HeaderValue::from_bytes(encoded.as_encoded_bytes()) {
        headers.insert(GRPC_STATUS_DETAILS, value);
    }
}

fn tonic_code(denial: &Denial) -> Code {
    Code::from_bytes(code(denial.reason()).as_bytes())
}

fn details(denial: &Denial) -> Option<ErrorDetails> {
    let wait = wait(denial);
    let exceeded = matches!(denial.reason(), Reason::QuotaExceeded | Reason::NeverPossible);
    if wait.is_none() && !exceeded {
        return None;
    }
    let mut details = ErrorDetails::new();
    if wait.is_some() {
        details.set_retry_info(wait);
    }
    if exceeded {
        // The subject is the policy: whose quota it is would tell a key.
        let violation = |name| QuotaViolation::new(name, denial.why());
        details.set_quota_failure(denial.violated().map(violation).collect::<Vec<_>>());
    }
    Some(details)
}
