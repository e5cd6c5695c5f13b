//! Why a request is refused, and why rules or a store are.

#[cfg(feature = "tracing")]
mod first_ones;
#[cfg(feature = "axum")]
mod missing_extension;
mod reason;
mod setup_error;

#[cfg(feature = "tracing")]
pub(crate) use first_ones::FirstOnes;
pub use reason::Reason;
pub(crate) use reason::{escaped, problem, seconds_up};
pub use setup_error::SetupError;
pub(crate) use setup_error::or_panic;
