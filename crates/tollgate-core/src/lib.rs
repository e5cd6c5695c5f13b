//! The decisions of tollgate, without a runtime, a network or a clock of their own.
//!
//! Applications use the crate `tollgate`, which re-exports what they need from here. This crate is
//! for authors of stores. A [`Store`] receives a set of [`Check`]s and answers with a [`Verdict`].
//! The algorithms in [`algorithm`] are pure functions of (policy, state, now, units).
//!
//! Integers decide. Microseconds are `u64` and emission intervals are exact fractions. Each
//! rounding is toward *not* exceeding the limit. Waits round up: a request that is repeated after
//! its wait passes.

pub mod algorithm;
mod block;
mod boundaries;
mod boxed;
mod check;
mod debt;
mod error;
mod exact;
mod headroom;
mod in_flight;
mod key;
mod policy;
mod quota;
mod recent_usage;
mod renewal;
mod reply;
mod scope;
mod sent_claims;
mod share;
mod source;
mod store;
mod text_error;
mod time;
mod time_span;
mod usage;
mod usage_log;
mod usage_totals;
mod verdict;
mod versions;

pub use boundaries::Boundaries;
pub use boxed::BoxStore;
pub use check::{Check, Grant, OwnedCheck, Times};
pub use debt::Settled;
pub use error::{ErrorKind, StoreError};
pub use key::{Key, counted_address};
pub use policy::{Algorithm, Policy, PolicyError};
pub use quota::{Quota, QuotaError};
pub use recent_usage::RecentUsage;
pub use renewal::Renewal;
pub use reply::{After, Reply, Then};
pub use sent_claims::{SentClaims, UnansweredClaims};
pub use share::{Share, ShareError};
pub use source::Source;
pub use store::{Store, settle};
pub use text_error::TextError;
pub use time::{Clock, ManualClock, Timestamp};
pub use time_span::TimeSpan;
pub use usage::UsageError;
pub use usage_log::UsageLog;
pub use usage_totals::{KeyTotal, UsageTotals};
pub use verdict::{Stamp, Status, Verdict, Wait};
