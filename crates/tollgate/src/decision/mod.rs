//! What was decided: denials, reports, and those who see it.

mod denial;
mod in_force;
pub(crate) mod observe;
mod report;

pub use denial::Denial;
pub(crate) use in_force::InForce;
pub use report::Report;
