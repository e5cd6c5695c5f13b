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
mod exact;
mod jobs;
mod key;
mod log_code;
mod policy;
mod quota;
mod store;
mod text_error;
mod time;
mod usage;

pub use jobs::{JobHolder, JobId, JobPolicy, JobStore, JobTake, KeyJobs};
pub use key::{Key, counted_address};
pub use log_code::LogCode;
pub use policy::share::Share;
pub use policy::{Algorithm, Boundaries, Policy, PolicyError, PolicyNumbers};
pub use quota::{Quota, QuotaError};
pub use store::block_start::BlockStart;
pub use store::boxed::BoxStore;
pub use store::check::{Check, Grant, OwnedCheck, Times};
pub use store::end::End;
pub use store::error::{ErrorKind, StoreError};
pub use store::renewal::{Renewal, RenewalReport};
pub use store::reply::{After, Reply, Then};
pub use store::sent_claims::{SentClaims, UnansweredClaims};
pub use store::settled::Settled;
pub use store::source::Source;
pub use store::unsent::Unsent;
pub use store::verdict::{Stamp, Status, Verdict, Wait};
pub use store::{Store, credit, renewals, settle, unused_units};
pub use text_error::TextError;
pub use time::span::TimeSpan;
pub use time::{Clock, ManualClock, Timestamp};
pub use usage::UsageError;
pub use usage::log::UsageLog;
pub use usage::recent::RecentUsage;
pub use usage::totals::{KeyTotal, UsageTotals};
