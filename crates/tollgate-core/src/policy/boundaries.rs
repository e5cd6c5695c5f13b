//! The times at which the windows of a calendar begin.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;

use crate::policy::PolicyError;
use crate::time::Timestamp;

/// When the windows of [`Algorithm::CalendarWindow`](crate::Algorithm::CalendarWindow) begin: a
/// table of times in microseconds since the epoch, for as long as the program may run.
///
/// A window ends where the next begins. The first one begins at the epoch, if the table does not.
/// The last one ends at 2^53 µs, in the year 2255, which no [`Timestamp`] reaches. So a table that
/// ends early blocks keys that have used their quota.
///
/// The table lives as long as the program, so that policies share it and are compared quickly.
/// Leak it once if it is not a constant: see [`Box::leak`].
///
/// ```
/// use tollgate_core::{Algorithm, Boundaries, Policy, Quota};
///
/// const THE_YEARS_2026_AND_2027: Boundaries =
///     Boundaries::new(&[1_767_225_600_000_000, 1_798_761_600_000_000, 1_830_297_600_000_000]);
/// let policy = Policy::new("yearly", Quota::per_day(1_000))
///     .with_algorithm(Algorithm::CalendarWindow { boundaries: THE_YEARS_2026_AND_2027 });
/// ```
#[derive(Clone, Copy)]
pub struct Boundaries(&'static [u64]);

/// The end of the last window: an exact double, for Lua.
const END_US: u64 = 2 * Timestamp::MAX.as_micros();

impl Boundaries {
    /// One window without end.
    pub const NONE: Boundaries = Boundaries(&[]);

    /// Boundaries in microseconds since the epoch.
    ///
    /// # Panics
    /// If [`Boundaries::try_new`] would return an error; in a constant, at compile time.
    #[track_caller]
    pub const fn new(micros: &'static [u64]) -> Boundaries {
        match Boundaries::try_new(micros) {
            Ok(boundaries) => boundaries,
            Err(_) => panic!("the boundaries of windows must ascend, up to 2^52 microseconds"),
        }
    }

    /// [`Boundaries::new`] for times that are known only at run time.
    ///
    /// # Errors
    /// [`PolicyError::InvalidBoundaries`] if the times do not ascend, or if one is later than
    /// [`Timestamp::MAX`].
    pub const fn try_new(micros: &'static [u64]) -> Result<Boundaries, PolicyError> {
        let mut at = 0;
        while at < micros.len() {
            let is_late = micros[at] > Timestamp::MAX.as_micros();
            if is_late || (at > 0 && micros[at - 1] >= micros[at]) {
                return Err(PolicyError::InvalidBoundaries);
            }
            at += 1;
        }
        Ok(Boundaries(micros))
    }

    /// The times, in microseconds since the epoch.
    pub fn as_micros(self) -> &'static [u64] {
        self.0
    }

    /// Returns the boundaries of three windows: the one before that of `now`, that of `now`, and
    /// the next. In microseconds since the epoch. For stores with their own clock.
    ///
    /// The middle one is from the second to the third number, without it. Windows that do not exist
    /// are empty.
    ///
    /// ```
    /// use tollgate_core::{Boundaries, Timestamp};
    ///
    /// let boundaries = Boundaries::new(&[10, 20, 40, 70]);
    /// assert_eq!(boundaries.around(Timestamp::from_micros(20)), [10, 20, 40, 70]);
    /// assert_eq!(boundaries.around(Timestamp::from_micros(9)), [0, 0, 10, 20]);
    /// ```
    pub fn around(self, now: Timestamp) -> [u64; 4] {
        self.around_us(now.as_micros())
    }

    pub(crate) fn around_us(self, now: u64) -> [u64; 4] {
        let next = self.0.partition_point(|boundary| *boundary <= now);
        let before = |steps| next.checked_sub(steps).map_or(0, |at| self.0[at]);
        let after = |at| self.0.get(at).copied().unwrap_or(END_US);
        [before(2), before(1), after(next), after(next + 1)]
    }
}

impl PartialEq for Boundaries {
    fn eq(&self, other: &Boundaries) -> bool {
        // A table may be long, and checks are compared for each call to Redis.
        ptr::eq(self.0, other.0) || self.0 == other.0
    }
}

impl Eq for Boundaries {}

impl Hash for Boundaries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.len(), self.0.first()).hash(state);
    }
}

/// Without the times, which may be many.
impl fmt::Debug for Boundaries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.first(), self.0.last());
        f.debug_struct("Boundaries")
            .field("number", &self.0.len())
            .field("first", &first)
            .field("last", &last)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_must_ascend_and_be_times() {
        let max = Timestamp::MAX.as_micros();
        for valid in [&[][..], &[0], &[0, 1, max]] {
            assert!(Boundaries::try_new(Vec::leak(valid.to_vec())).is_ok(), "{valid:?}");
        }
        for invalid in [&[1, 1][..], &[2, 1], &[0, max + 1]] {
            let error = Boundaries::try_new(Vec::leak(invalid.to_vec()));
            assert_eq!(error, Err(PolicyError::InvalidBoundaries), "{invalid:?}");
        }
    }

    #[test]
    fn each_time_is_in_the_window_that_begins_before_it_or_at_it() {
        let around = |micros: &'static [u64], now| Boundaries::new(micros).around_us(now);
        assert_eq!(around(&[], 5), [0, 0, END_US, END_US]);
        assert_eq!(around(&[5], 4), [0, 0, 5, END_US]);
        assert_eq!(around(&[5], 5), [0, 5, END_US, END_US]);
        assert_eq!(around(&[5, 9], 8), [0, 5, 9, END_US]);
        assert_eq!(around(&[5, 9], 9), [5, 9, END_US, END_US]);
        assert_eq!(around(&[0, 9], 0), [0, 0, 9, END_US]);
        assert_eq!(around(&[5, 9], Timestamp::MAX.as_micros()), [5, 9, END_US, END_US]);
    }

    #[test]
    fn equal_tables_at_two_places_are_equal() {
        let table = || Boundaries::new(Vec::leak(vec![1, 2, 3]));
        assert_eq!(table(), table());
        assert_ne!(table(), Boundaries::new(&[1, 2, 4]));
        assert_ne!(table(), Boundaries::NONE);
    }

    #[test]
    fn a_table_is_shown_as_its_ends() {
        let shown = format!("{:?}", Boundaries::new(&[1, 5, 9]));
        assert_eq!(shown, "Boundaries { number: 3, first: Some(1), last: Some(9) }");
    }
}
