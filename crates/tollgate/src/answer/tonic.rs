//! A denial as a status of tonic, with the details of the
//! [richer error model](https://grpc.io/docs/guides/error/#richer-error-model).

use ::tonic::metadata::MetadataMap;
use ::tonic::{Code, Status};

use super::code::{code, message};
use super::details::{self, Message};
use super::grpc::{GRPC_RETRY_PUSHBACK_MS, pushback};
use crate::decision::Denial;

/// The status that a layer would answer with: for handlers that ask a [`Limiter`](crate::Limiter).
///
/// ```
/// # #[cfg(feature = "tonic")] {
/// use tollgate::{Key, Limiter};
///
/// async fn charge(limiter: &Limiter, user: u64) -> Result<(), tonic::Status> {
///     let permit = limiter.check(&Key::from(user), 1).await?;
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
        let details = details::status(denial, &message).map(Message::into_bytes).unwrap_or_default();
        let code = Code::from_i32(i32::try_from(code(denial.reason()).number).unwrap_or_default());
        Status::with_details_and_metadata(code, message, details, metadata)
    }
}

impl From<Denial> for Status {
    fn from(denial: Denial) -> Status {
        Status::from(&denial)
    }
}
