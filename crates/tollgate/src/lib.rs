//! Rate limiting for every Tower stack.

pub mod extract;
pub mod memory;

mod body;
mod denial;
mod fields;
mod future;
mod layer;
mod limiter;
mod rule;
mod service;

pub use body::ResponseBody;
pub use denial::{Denial, Reason};
pub use fields::Fields;
pub use future::ResponseFuture;
pub use layer::RateLimitLayer;
pub use limiter::{Limiter, NeverFails, Permit, Report};
pub use memory::MemoryStore;
pub use rule::{MissingKey, PolicyExt, Rule, RulesError};
pub use service::RateLimit;
pub use tollgate_core::{
    Algorithm, BoxStore, Check, Clock, Grant, Key, ManualClock, Policy, PolicyError, Quota, QuotaError,
    Reply, Stamp, Status, Store, StoreExt, Times, Timestamp, Verdict, Wait, algorithm,
};
