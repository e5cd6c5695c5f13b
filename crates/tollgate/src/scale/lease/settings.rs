//! The settings of leases.

use std::time::Duration;

use tollgate_core::Clock;

use crate::errors::{SetupError, or_panic};

/// Settings of leases: how many units a process fetches ahead of demand, and for how long.
///
/// | setting | default |
/// |---|---|
/// | [`at_most`](Lease::at_most) | 1,000 units of a key |
/// | [`lasting`](Lease::lasting) | 250 ms |
/// | [`max_keys`](Lease::max_keys) | 100,000 keys |
///
/// ```
/// use std::time::Duration;
/// use tollgate::Lease;
///
/// let lease = Lease::at_most(64).lasting(Duration::from_millis(250));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Lease {
    pub(super) most_units: u64,
    pub(super) life: Duration,
    pub(super) max_keys: usize,
    pub(super) clock: Clock,
}

impl Default for Lease {
    fn default() -> Lease {
        Lease {
            most_units: 1_000,
            life: Duration::from_millis(250),
            max_keys: 100_000,
            clock: Clock::system(),
        }
    }
}

impl Lease {
    /// The longest life of a lease.
    pub const LONGEST: Duration = Duration::from_secs(60);

    /// A process holds at most so many units of a key, at least 1, and never more than `u32::MAX`.
    /// The other settings are those of the default.
    ///
    /// # Panics
    /// If `units` is 0.
    #[track_caller]
    pub fn at_most(units: u64) -> Lease {
        or_panic(Lease::try_at_most(units))
    }

    /// [`Lease::at_most`] for a number that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::LeaseOfNothing`].
    pub fn try_at_most(units: u64) -> Result<Lease, SetupError> {
        match units {
            0 => Err(SetupError::LeaseOfNothing),
            most_units => Ok(Lease { most_units, ..Lease::default() }),
        }
    }

    /// Sets the life of a lease, counted from before it is requested: 1 ms to [`Lease::LONGEST`].
    ///
    /// # Panics
    /// If `life` is outside of that range.
    #[track_caller]
    pub fn lasting(self, life: Duration) -> Lease {
        or_panic(self.try_lasting(life))
    }

    /// [`Lease::lasting`] for a life that is known only at run time.
    ///
    /// # Errors
    /// [`SetupError::LeaseLife`].
    pub fn try_lasting(self, life: Duration) -> Result<Lease, SetupError> {
        if (Duration::from_millis(1)..=Lease::LONGEST).contains(&life) {
            Ok(Lease { life, ..self })
        } else {
            Err(SetupError::LeaseLife(life))
        }
    }

    /// Sets for how many keys the process remembers the demand, at least 1. A key takes about 60
    /// bytes, and about 400 more while it is leased. A key without a place is decided by the store.
    pub fn max_keys(self, max_keys: usize) -> Lease {
        Lease { max_keys: max_keys.max(1), ..self }
    }

    /// Sets the clock that ends leases. A [`ManualClock`](crate::ManualClock) is for tests.
    pub fn clock(self, clock: impl Into<Clock>) -> Lease {
        Lease { clock: clock.into(), ..self }
    }
}
