//! The contract of a tollgate store as a test suite, for tollgate's own stores and for yours.
//!
//! A [`Store`] holds the state of every policy and key and decides atomically. The cases say what
//! that means at the microsecond at which a window ends, for a cost of 0, for a set that one policy
//! refuses, and for a late refund. [`run`] runs all of them. [`Suite`] has a complete store as a
//! running example, and the guarantees that a store may be excused from.
//!
//! Each case gets an unused store that follows a manual clock: the suite moves the clock instead of
//! waiting. A store in a shared place, such as a database, uses another prefix for each case. If a
//! store breaks the contract, the suite panics with the case, the answer and the expected one.
//!
//! The crate also contains what the suite is built on:
//!
//! | module | contents |
//! |---|---|
//! | [`oracle`] | a second, naive implementation of the algorithms: it recounts all grants in integers that cannot overflow, and searches for the waits. It shares no arithmetic with `tollgate-core` |
//! | [`vectors`] | golden vectors as text: requests for one key and the oracle's answers, for implementations in other languages |
//! | [`history`] | random histories of one key, aimed at the microseconds where mistakes occur |
//! | [`random`] | numbers, costs, quotas and policies with many edge cases, the same in every run |
//!
//! The tests of this crate compare `tollgate-core` with the oracles over more than a million random
//! histories. The suite must also find the mistake in each of many wrong stores.

mod calendar;
pub mod history;
pub mod oracle;
pub mod random;
mod suite;
pub mod vectors;

pub use calendar::CALENDAR_WINDOW;
pub use suite::Suite;

use std::fmt::Debug;

use tollgate_core::{Clock, Store};

/// Runs the whole suite: short for [`Suite::new`] and [`Suite::run`].
///
/// # Panics
/// If a store breaks the contract, with the name of the case, the answer and the expected answer.
pub async fn run<S>(make: impl AsyncFn(Clock) -> S)
where
    S: Store,
    S::Error: Debug,
{
    Suite::new().run(make).await;
}
