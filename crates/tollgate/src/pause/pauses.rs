//! Which origins are paused, and until when.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::Key;

/// The pauses of a layer and its clones.
#[derive(Debug, Default)]
pub(super) struct Pauses(Mutex<HashMap<Key, Instant>>);

/// A client that follows links meets origins without number.
const MOST: usize = 10_000;

impl Pauses {
    /// How long an origin is still paused.
    pub(super) fn left(&self, origin: &Key, now: Instant) -> Option<Duration> {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = pauses.get(origin)?.saturating_duration_since(now);
        if left.is_zero() {
            pauses.remove(origin);
            return None;
        }
        Some(left)
    }

    /// Pauses an origin, unless it is paused for longer. Of too many origins, the pause that ends
    /// first is forgotten.
    pub(super) fn pause(&self, origin: Key, pause: Duration, now: Instant) {
        let mut pauses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now + pause;
        let known = pauses.entry(origin).or_insert(until);
        *known = until.max(*known);
        if pauses.len() > MOST {
            pauses.retain(|_, until| *until > now);
        }
        if pauses.len() > MOST {
            let first = pauses.iter().min_by_key(|(_, until)| **until).map(|(origin, _)| origin.clone());
            first.and_then(|origin| pauses.remove(&origin));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_shorter_pause_does_not_end_a_longer_one() {
        let (pauses, now, origin) = (Pauses::default(), Instant::now(), Key::from("a"));
        pauses.pause(origin.clone(), 5 * SECOND, now);
        pauses.pause(origin.clone(), SECOND, now);
        assert_eq!(pauses.left(&origin, now + SECOND), Some(4 * SECOND));
        assert_eq!(pauses.left(&Key::from("b"), now), None);
        assert_eq!(pauses.left(&origin, now + 5 * SECOND), None);
        assert!(pauses.0.lock().unwrap().is_empty());
    }

    #[test]
    fn the_number_of_origins_is_bounded() {
        let (pauses, now) = (Pauses::default(), Instant::now());
        pauses.pause(Key::from("longest"), 100 * SECOND, now);
        for n in 0..MOST as u64 + 10 {
            pauses.pause(Key::from(n), SECOND, now);
        }
        assert_eq!(pauses.0.lock().unwrap().len(), MOST);
        assert!(pauses.left(&Key::from("longest"), now).is_some());
        // Pauses that are over make room.
        pauses.pause(Key::from("new"), SECOND, now + 2 * SECOND);
        assert_eq!(pauses.0.lock().unwrap().len(), 2);
    }
}
