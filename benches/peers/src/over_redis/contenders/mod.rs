//! Who is measured: what Redis can do at all, and in a file of its own each limiter that keeps its state there.

mod bare;
mod barnacle;
mod grouped;
mod layered;
mod ours;
#[cfg(feature = "rust-1-96")]
mod tower_rate_limiter;
mod tower_rate_tier;
mod trypema;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::Failure;
use super::measure::Subject;

pub(crate) use bare::{EMPTY_SCRIPT, INCR};
pub(crate) use grouped::GROUPED;
pub(crate) use ours::{OURS, WHOLE_LAYER};

/// Somebody to be measured, in one configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// The name of its package, or what is done without one.
    pub(crate) name: &'static str,
    /// How much of it.
    pub(crate) part: &'static str,
    pub(crate) algorithm: &'static str,
    /// Where it is measured by this: connections, or calls under way on one.
    pub(crate) connections: Option<u32>,
    pub(crate) build: fn(Setup) -> Building,
}

pub(crate) type Building = Pin<Box<dyn Future<Output = Result<Box<dyn Subject>, Failure>>>>;

/// What a contender is set up with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) url: String,
    /// What each key may have in a day, all of it at once.
    pub(crate) per_day: u32,
    pub(crate) connections: Option<u32>,
    pub(crate) tasks: usize,
}

const DAY: Duration = Duration::from_secs(86_400);

/// How long a limiter waits for Redis, where it can be told to.
const TIMEOUT: Duration = Duration::from_secs(1);

/// All, in the order of the report.
pub(crate) fn all() -> Vec<Contender> {
    let mut all = Vec::new();
    all.extend(bare::contenders());
    all.extend(ours::contenders());
    all.extend(tower_rate_tier::contenders());
    all.extend(barnacle::contenders());
    all.extend(trypema::contenders());
    #[cfg(feature = "rust-1-96")]
    all.extend(tower_rate_limiter::contenders());
    all
}

/// tollgate with pools of these sizes, and what one connection makes of as many calls at once.
pub(crate) fn by_connections(sizes: &[u32]) -> Vec<Contender> {
    sizes.iter().flat_map(|&size| [ours::with_connections(size), grouped::with_calls(size)]).collect()
}
