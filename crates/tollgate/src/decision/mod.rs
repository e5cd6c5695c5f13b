//! What was decided: denials, reports, and those who see it.

mod call_error;
mod denial;
mod grant_stamp;
mod in_force;
mod name_counts;
pub(crate) mod observe;
mod report;

pub use call_error::CallError;
pub use denial::Denial;
pub(crate) use denial::is_refusing_block;
pub(crate) use grant_stamp::GrantStamp;
pub(crate) use in_force::InForce;
pub(crate) use name_counts::NameCounts;
pub use report::Report;
