//! The contract of a tollgate store as a test suite that any store can be put through, for tollgate's own stores and
//! for yours.
//!
//! A [`Store`] holds the state of every policy and key and decides atomically. What that means at
//! the microsecond at which a window ends, for a cost of 0, for a set of which one policy refuses, or for a refund that
//! comes too late, is written here as cases that a store passes or does not. [`run`] holds a store to all of them;
//! [`Suite`] has a whole store as a running example, and the one thing that a store may be excused from.
//!
//! Each case is given a store of its own, in which nothing has been used yet and which goes by the clock that it is
//! given: the suite does not wait, it moves a manual clock. A store in a shared place (a database, say) takes another
//! prefix for each. A store that breaks the contract panics with the name of the case, with what it answered, and with
//! what was due.
//!
//! Besides the suite there is what it measures with:
//!
//! | module | it is |
//! |---|---|
//! | [`oracle`] | the algorithms once more, naively: a recount of all that was allowed, in integers that cannot overflow, and waits that are found by searching. They share no arithmetic with `tollgate-core` |
//! | [`vectors`] | golden vectors: what was asked of one key and what the oracle answered, as text, for whoever writes an algorithm in another language |
//! | [`history`] | random histories of one key, aimed at the microseconds around which mistakes live |
//! | [`random`] | numbers, costs, quotas and policies that lean towards the edges, the same in every run |
//! | `servers` | behind the feature of that name: Redis and Valkey servers that fetch themselves, for a store that keeps its state there; single, as a cluster, and under sentinels; to be killed, paused, restarted and failed over |
//!
//! The crate's own tests hold `tollgate-core` to the oracles over more than a million random histories, and the suite to
//! a row of stores with one mistake each, every one of which it has to find.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod history;
pub mod oracle;
pub mod random;
#[cfg(all(feature = "servers", unix))]
pub mod servers;
mod suite;
pub mod vectors;

pub use suite::Suite;

use std::fmt::Debug;

use tollgate_core::{Clock, Store};

/// Holds stores to the whole contract: short for [`Suite::new`] and [`Suite::run`].
///
/// # Panics
/// If a store breaks it: with the name of the case, and with what it answered and what was due.
pub async fn run<S>(make: impl AsyncFn(Clock) -> S)
where
    S: Store,
    S::Error: Debug,
{
    Suite::new().run(make).await;
}
