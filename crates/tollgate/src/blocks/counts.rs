//! Counts denials, and says when a key is to be blocked.

#[cfg(feature = "config")]
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tollgate_core::{Clock, Key, Policy, Timestamp};

use crate::decision::NameCounts;
use crate::table::sharded::Sharded;

/// How many keys the denials are counted of at a time.
const MOST_KEYS: usize = 100_000;

/// The denials of each policy and key. If there are too many keys, those are forgotten whose window
/// ends first.
pub(crate) struct DenialCounts {
    denials: Sharded<CountedDenials>,
    /// The blocks that they started.
    pub(super) started: Arc<NameCounts>,
}

/// Those within one window of the policy.
struct CountedDenials {
    count: u32,
    until: Timestamp,
}

impl DenialCounts {
    pub(crate) fn new() -> DenialCounts {
        DenialCounts::by(Clock::system())
    }

    fn by(clock: Clock) -> DenialCounts {
        DenialCounts { denials: Sharded::new(MOST_KEYS, clock), started: Arc::default() }
    }

    /// How many blocks of each policy denials have started.
    #[cfg(feature = "config")]
    pub(crate) fn blocks(&self) -> BTreeMap<Box<str>, u64> {
        self.started.all()
    }

    /// Counts a denial of a policy that blocks. Returns whether the key is to be blocked now.
    pub(crate) fn count(&self, policy: &Policy, key: &Key) -> bool {
        let Some(most) = policy.numbers().denials_until_block() else { return false };
        let (mut table, digest, now) = self.denials.enter(policy, key);
        table.sweep(now);
        if let Some(at) = table.find(&digest) {
            let denials = &mut table.entry(at).value;
            if now < denials.until {
                denials.count += 1;
                let blocks = denials.count >= most;
                if blocks {
                    table.remove(at);
                }
                return blocks;
            }
            table.remove(at);
        }
        if most > 1 && table.make_room(1, now, |_| false) {
            table.reserve(1);
            let until = now.saturating_add(policy.quota().window());
            table.insert(digest, CountedDenials { count: 1, until }, until);
        }
        most == 1
    }
}

impl fmt::Debug for DenialCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DenialCounts(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{ManualClock, Quota};

    use super::*;

    #[test]
    fn the_count_starts_again_with_each_block() {
        let counts = DenialCounts::new();
        let policy = Policy::new("p", Quota::per_hour(5)).block_after(3, Duration::from_secs(1));
        let (ada, bob) = (Key::from("ada"), Key::from("bob"));
        let blocked: Vec<bool> = (0..7).map(|_| counts.count(&policy, &ada)).collect();
        assert_eq!(blocked, [false, false, true, false, false, true, false]);
        assert!(!counts.count(&policy, &bob));
        let at_once = Policy::new("q", Quota::per_hour(5)).block_after(1, Duration::from_secs(1));
        assert!(counts.count(&at_once, &ada) && counts.count(&at_once, &ada));
        assert!(!counts.count(&Policy::new("r", Quota::per_hour(5)), &ada));
    }

    #[test]
    fn denials_of_another_window_do_not_count() {
        let clock = ManualClock::new(Timestamp::from_micros(1));
        let (counts, key) = (DenialCounts::by(Clock::from(&clock)), Key::from("ada"));
        let policy = Policy::new("p", Quota::per_second(5)).block_after(2, Duration::from_secs(1));
        for _ in 0..3 {
            assert!(!counts.count(&policy, &key));
            clock.advance(Duration::from_secs(1));
        }
        assert!(!counts.count(&policy, &key));
        clock.advance(Duration::from_micros(999_999));
        assert!(counts.count(&policy, &key), "both are within one window");
    }

    #[test]
    fn denials_that_another_version_counted_do_not_delay_a_block() {
        let (counts, key) = (DenialCounts::new(), Key::from("ada"));
        let policy = Policy::new("p", Quota::per_hour(5));
        let after = |denials| policy.clone().block_after(denials, Duration::from_secs(1));
        assert!(!counts.count(&after(3), &key));
        assert!(counts.count(&after(1), &key));
        let blocked = [(); 3].map(|()| counts.count(&after(3), &key));
        assert_eq!(blocked, [false, false, true], "the count starts again with the block");
    }

    #[test]
    fn a_flood_of_keys_fills_the_table_and_does_not_grow_it() {
        let counts = DenialCounts::new();
        let policy = Policy::new("p", Quota::per_hour(5)).block_after(2, Duration::from_secs(1));
        for n in 0..300_000_u32 {
            assert!(!counts.count(&policy, &Key::from(n)), "another key was denied once");
        }
        assert_eq!(counts.denials.iter().map(|table| table.len()).sum::<usize>(), MOST_KEYS);
    }
}
