//! The decisions of tollgate, without a runtime, a network or a clock of their own.
//!
//! Applications use the crate `tollgate`, which re-exports what they need from here. This crate is for those who
//! write a store: a [`Store`] is asked a set of [`Check`]s and answers with a [`Verdict`], and the algorithms are in
//! [`algorithm`] as pure functions of (policy, state, now, units).
//!
//! Every decision is made in integers. Microseconds are `u64`, emission intervals are exact fractions, each rounding
//! is toward *not* exceeding the limit, and waits round up: a caller that returns exactly when it was told passes.

pub mod algorithm;
mod beside;
mod boxed;
mod breaker;
mod check;
mod error;
mod exact;
mod key;
mod policy;
mod quota;
mod share;
mod store;
mod time;
mod verdict;

pub use boxed::{BoxStore, StoreExt};
pub use breaker::{Admission, Circuit, CircuitBreaker, CircuitBreakerError, CircuitState, Probed};
pub use check::{Check, Grant, Times};
pub use error::{ErrorKind, StoreError};
pub use key::{Key, counted_address};
pub use policy::{Algorithm, Policy, PolicyError};
pub use quota::{Quota, QuotaError};
pub use share::{Share, ShareError};
pub use store::{Reply, Store};
pub use time::{Clock, ManualClock, Timestamp};
pub use verdict::{Stamp, Status, Verdict, Wait};
