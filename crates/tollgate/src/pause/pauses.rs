//! Which origins are paused, and until when.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Key;

use crate::table::digest::{Digest, Secret};

/// An origin by its digest: it takes the same memory whatever its key is, and no key with a secret
/// is kept.
pub(super) type Origin = Digest;

/// The pauses of a layer and its clones.
pub(super) struct Pauses {
    secret: Secret,
    until: Mutex<BTreeMap<Origin, Instant>>,
}

/// A client that follows links meets origins without number. One takes about 60 bytes.
const MOST: usize = 10_000;

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses { secret: Secret::random(), until: Mutex::default() }
    }

    pub(super) fn origin(&self, key: &Key) -> Origin {
        self.secret.digest(0, key.as_encoded())
    }

    /// How long an origin is still paused.
    pub(super) fn left(&self, origin: Origin, now: Instant) -> Option<Duration> {
        let mut pauses = self.lock();
        let left = pauses.get(&origin)?.saturating_duration_since(now);
        if left.is_zero() {
            pauses.remove(&origin);
            return None;
        }
        Some(left)
    }

    /// Pauses an origin, unless it is paused for longer. Of too many origins, the pause that ends
    /// first is forgotten.
    pub(super) fn pause(&self, origin: Origin, pause: Duration, now: Instant) {
        let mut pauses = self.lock();
        let until = now + pause;
        let known = pauses.entry(origin).or_insert(until);
        *known = until.max(*known);
        if pauses.len() > MOST {
            pauses.retain(|_, until| *until > now);
        }
        if pauses.len() > MOST {
            let first = pauses.iter().min_by_key(|(_, until)| **until).map(|(origin, _)| *origin);
            first.and_then(|origin| pauses.remove(&origin));
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Origin, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timer_now;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_shorter_pause_does_not_end_a_longer_one() {
        let (pauses, now) = (Pauses::new(), timer_now());
        let (origin, other) = (pauses.origin(&Key::from("a")), pauses.origin(&Key::from("b")));
        pauses.pause(origin, 5 * SECOND, now);
        pauses.pause(origin, SECOND, now);
        assert_eq!(pauses.left(origin, now + SECOND), Some(4 * SECOND));
        assert_eq!(pauses.left(other, now), None);
        assert_eq!(pauses.left(origin, now + 5 * SECOND), None);
        assert!(pauses.lock().is_empty());
        pauses.pause(origin, SECOND, now);
        pauses.pause(origin, 2 * SECOND, now);
        assert_eq!(pauses.left(origin, now), Some(2 * SECOND));
    }

    #[test]
    fn the_number_of_origins_is_bounded() {
        let (pauses, now) = (Pauses::new(), timer_now());
        let origin = |n: u64| pauses.origin(&Key::from(n));
        let longest = origin(u64::MAX);
        pauses.pause(longest, 100 * SECOND, now);
        // The pauses of the first origins end first.
        for n in 0..MOST as u64 + 10 {
            pauses.pause(origin(n), SECOND + Duration::from_micros(n), now);
        }
        assert_eq!(pauses.lock().len(), MOST);
        assert!(pauses.left(longest, now).is_some());
        assert!(pauses.left(origin(10), now).is_none() && pauses.left(origin(11), now).is_some());
        // Pauses that are over make room.
        pauses.pause(origin(MOST as u64 + 10), SECOND, now + 2 * SECOND);
        assert_eq!(pauses.lock().len(), 2);
    }
}
