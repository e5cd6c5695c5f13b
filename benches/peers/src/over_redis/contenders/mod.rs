//! The contenders: plain commands, and a file for each limiter with its state in Redis.

mod bare;
mod barnacle;
mod grouped;
mod layered;
mod leased;
#[cfg(feature = "limitador-redis")]
mod limitador;
mod ours;
#[cfg(feature = "rust-1-96")]
mod tower_rate_limiter;
mod tower_rate_tier;
mod trypema;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::host::Failure;
use super::measure::Subject;

pub(crate) use grouped::GROUPED;
pub(crate) use leased::contenders as leased;
pub(crate) use ours::{OURS, WHOLE_LAYER};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// The package name, or the commands if there is no package.
    pub(crate) name: &'static str,
    /// The part of it that is measured.
    pub(crate) part: &'static str,
    pub(crate) algorithm: &'static str,
    /// The number of connections, or of calls in flight on one, if the table is by that.
    pub(crate) connections: Option<u32>,
    pub(crate) build: fn(Setup) -> Building,
}

pub(crate) type Building = Pin<Box<dyn Future<Output = Result<Box<dyn Subject>, Failure>>>>;

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) url: String,
    /// The daily quota of each key, all of it available at once.
    pub(crate) per_day: u32,
    pub(crate) connections: Option<u32>,
    pub(crate) tasks: usize,
}

const DAY: Duration = Duration::from_secs(86_400);

/// How long a limiter waits for Redis, if that is configurable.
const TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn all() -> Vec<Contender> {
    let mut all = Vec::new();
    all.extend(bare::contenders());
    all.extend(ours::contenders());
    all.extend(tower_rate_tier::contenders());
    all.extend(barnacle::contenders());
    all.extend(trypema::contenders());
    #[cfg(feature = "limitador-redis")]
    all.extend(limitador::contenders());
    #[cfg(feature = "rust-1-96")]
    all.extend(tower_rate_limiter::contenders());
    all
}

/// tollgate with pools of these sizes, and as many calls in flight on one connection.
pub(crate) fn by_connections(sizes: &[u32]) -> Vec<Contender> {
    sizes.iter().flat_map(|&size| [ours::with_connections(size), grouped::with_calls(size)]).collect()
}
