//! Counts denials, and says when a key is to be blocked.

use std::fmt;

use tollgate_core::{Clock, Key, Policy, Timestamp};

use crate::table::sharded::Sharded;

/// How many keys the denials are counted of at a time.
const MOST_KEYS: usize = 100_000;

/// The denials of each policy and key. If there are too many keys, those are forgotten whose window
/// ends first.
pub(crate) struct DenialCounts(Sharded<CountedDenials>);

/// Those within one window of the policy.
struct CountedDenials {
    count: u32,
    until: Timestamp,
}

impl DenialCounts {
    pub(crate) fn new() -> DenialCounts {
        DenialCounts(Sharded::new(MOST_KEYS, Clock::system()))
    }

    /// Counts a denial of a policy that blocks. Returns whether the key is to be blocked now.
    pub(crate) fn count(&self, policy: &Policy, key: &Key) -> bool {
        let Some(most) = policy.denials_until_block() else { return false };
        let (mut table, digest, now) = self.0.enter(policy, key);
        table.sweep(now);
        let found = table.find(&digest).filter(|_| most > 1);
        if let Some(at) = found {
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

    use tollgate_core::Quota;

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
        let counts = DenialCounts::new();
        let policy = Policy::new("p", Quota::new(5, Duration::from_millis(1)));
        let policy = policy.block_after(2, Duration::from_secs(1));
        for _ in 0..3 {
            assert!(!counts.count(&policy, &Key::from("ada")));
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    #[test]
    fn a_flood_of_keys_grows_no_table() {
        let counts = DenialCounts::new();
        let policy = Policy::new("p", Quota::per_hour(5)).block_after(2, Duration::from_secs(1));
        for n in 0..300_000_u32 {
            assert!(!counts.count(&policy, &Key::from(n)), "another key was denied once");
        }
        assert!(counts.0.iter().map(|table| table.len()).sum::<usize>() <= MOST_KEYS);
    }
}
