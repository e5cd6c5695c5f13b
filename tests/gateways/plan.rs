//! What clients ask of a gateway, and what all gateways allow.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tollgate::{Algorithm, Policy, Quota};

/// A minute, scaled down.
pub(crate) const WINDOW: Duration = Duration::from_secs(2);

/// Less than the clients use.
const LIMIT: u64 = 100;

pub(crate) const POLICIES: usize = 4;

/// A policy of each algorithm, in the order in which clients number them.
pub(crate) fn policies() -> [Policy; POLICIES] {
    [Algorithm::FIXED_WINDOW_ALIGNED, Algorithm::SLIDING_LOG, Algorithm::SLIDING_BUCKETS, Algorithm::Gcra]
        .map(|algorithm| {
            let policy = Policy::new(algorithm.name(), Quota::new(LIMIT, WINDOW));
            policy.with_algorithm(algorithm).track_usage()
        })
}

/// Slots of the streams of a key: more than there are streams.
pub(crate) fn slots(ttl: Duration) -> Policy {
    Policy::in_flight("streams", 10_000).with_ttl(ttl)
}

/// One stream, as the header `x-plan` describes it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) id: usize,
    /// The units that are reserved first.
    pub(crate) estimate: u64,
    /// The units that each extension asks for.
    pub(crate) extension: u64,
    /// The units that the upstream produces, if nothing ends it before.
    pub(crate) units: u64,
    /// Milliseconds between two units.
    pub(crate) pace: u64,
    /// The units after which the upstream fails.
    pub(crate) fails_after: u64,
    pub(crate) settles_twice: bool,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { id, estimate, extension, units, pace, fails_after, settles_twice } = self;
        write!(f, "{id} {estimate} {extension} {units} {pace} {fails_after} {}", u8::from(*settles_twice))
    }
}

impl FromStr for Plan {
    type Err = Box<dyn std::error::Error>;

    fn from_str(text: &str) -> Result<Plan, Self::Err> {
        let numbers = text.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [id, estimate, extension, units, pace, fails_after, twice] = *numbers else {
            return Err(format!("a plan has seven numbers, got {text:?}").into());
        };
        let (id, settles_twice) = (usize::try_from(id)?, twice == 1);
        Ok(Plan { id, estimate, extension, units, pace, fails_after, settles_twice })
    }
}
