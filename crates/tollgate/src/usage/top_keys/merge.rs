//! The counts of keys, added up over pages in bounded memory.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::key_list::KeyList;
use super::key_usage::KeyUsage;
use super::page::Page;

/// The keys that are held, unless more are asked for.
const MOST_KEYS: usize = 100_000;

/// The keys of one outcome.
pub(super) struct Merge {
    is_allowed: bool,
    /// If there are more keys, half of them are dropped.
    most: usize,
    /// By policy and key.
    keys: HashMap<(String, String), Merged>,
    /// The floors of all pages.
    floors: Sampled,
    /// The most that a dropped key has.
    dropped: Sampled,
    /// How many pages were added.
    pages: u64,
}

/// A key in several pages.
#[derive(Default)]
struct Merged {
    counted: Sampled,
    error: u64,
    /// The most that it had before it was dropped.
    missed: Sampled,
    /// The floors of the pages that list it.
    floors: Sampled,
    /// The number of the last of these, from 1.
    last_page: u64,
}

/// A sum of counts. Foreign pages do not make it overflow.
#[derive(Clone, Copy, Default)]
struct Sampled {
    count: u64,
    /// Of the count, if not each decision was counted.
    variance: u64,
    /// For how many more decisions one that was counted stands, at most.
    others: u64,
}

impl Merge {
    /// For the `n` keys with the highest counts.
    pub(super) fn new(n: usize, is_allowed: bool) -> Merge {
        Merge {
            is_allowed,
            most: n.saturating_mul(2).max(MOST_KEYS),
            keys: HashMap::new(),
            floors: Sampled::default(),
            dropped: Sampled::default(),
            pages: 0,
        }
    }

    pub(super) fn add(&mut self, page: Page) {
        let Page { one_in, policies, allowed, denied } = page;
        let KeyList { keys, floor } = if self.is_allowed { allowed } else { denied };
        self.pages += 1;
        self.floors.add(floor, one_in);
        for listed in keys {
            let policy = policies.get(listed.policy).filter(|policy| !policy.name.is_empty());
            let Some(policy) = policy else { continue };
            let new = || Merged { missed: self.dropped, ..Merged::default() };
            let of = self.keys.entry((policy.name.clone(), listed.key)).or_insert_with(new);
            of.counted.add(listed.count, one_in);
            of.error = of.error.saturating_add(listed.error);
            // A foreign page may list a key twice.
            if of.last_page != self.pages {
                of.last_page = self.pages;
                of.floors.add(floor, one_in);
            }
        }
        if self.keys.len() > self.most {
            self.drop_half();
        }
    }

    /// Drops the keys with the least counts.
    fn drop_half(&mut self) {
        let mut counts: Vec<u64> = self.keys.values().map(|of| of.counted.count).collect();
        let half = counts.len() / 2;
        let (less, middle, _) = counts.select_nth_unstable(half);
        let mut of_middle = less.iter().filter(|count| *count == middle).count();
        self.keys.retain(|_, of| {
            let stays = of.counted.count > *middle || (of.counted.count == *middle && of_middle == 0);
            if !stays {
                of_middle -= usize::from(of.counted.count == *middle);
                let had = of.counted.plus(of.missed);
                self.dropped.count = self.dropped.count.max(had.count);
                self.dropped.variance = self.dropped.variance.max(had.variance);
                self.dropped.others = self.dropped.others.max(had.others);
            }
            stays
        });
    }

    /// The `n` keys with the highest counts, with the highest first.
    pub(super) fn top(self, n: usize) -> Vec<KeyUsage> {
        let floors = self.floors;
        let usage = |((policy, key), of): ((String, String), Merged)| {
            // What pages that do not list it may have of it, and what it had when it was dropped.
            let most = of.counted.plus(of.missed).plus(floors.minus(of.floors));
            let least = of.counted.count.saturating_sub(of.error.saturating_add(of.counted.excess()));
            KeyUsage {
                policy,
                key,
                count: of.counted.count,
                at_least: least,
                at_most: most.count.saturating_add(most.shortfall()),
            }
        };
        let mut top: Vec<KeyUsage> = self.keys.into_iter().map(usage).collect();
        top.sort_unstable_by(|a, b| {
            (Reverse(a.count), &a.policy, &a.key).cmp(&(Reverse(b.count), &b.policy, &b.key))
        });
        top.truncate(n);
        top
    }
}

impl Sampled {
    fn add(&mut self, count: u64, one_in: u32) {
        let others = one_in.saturating_sub(1).into();
        *self = self.plus(Sampled { count, variance: count.saturating_mul(others), others });
    }

    fn plus(self, other: Sampled) -> Sampled {
        Sampled {
            count: self.count.saturating_add(other.count),
            variance: self.variance.saturating_add(other.variance),
            others: self.others.max(other.others),
        }
    }

    fn minus(self, other: Sampled) -> Sampled {
        Sampled {
            count: self.count.saturating_sub(other.count),
            variance: self.variance.saturating_sub(other.variance),
            others: self.others,
        }
    }

    /// By how much the count may be too high: five standard deviations.
    fn excess(self) -> u64 {
        5 * self.variance.isqrt()
    }

    /// By how much the count may be too low: as much as keeps it within five standard deviations of
    /// a true count, whose variance is larger. The solution of `true - 5 √(true · others) = count`.
    fn shortfall(self) -> u64 {
        let Sampled { variance, others, .. } = self;
        let of_few = others.saturating_mul(others).saturating_mul(25) / 4;
        (25 * others).div_ceil(2) + 5 * variance.saturating_add(of_few).isqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::top_keys::key_list::Listed;
    use crate::usage::top_keys::page::PolicyCount;

    /// A page that lists these keys with their counts.
    fn page(keys: impl IntoIterator<Item = (String, u64)>) -> Page {
        let listed = |(key, count)| Listed { policy: 0, key, count, error: 0 };
        Page {
            policies: vec![PolicyCount { name: "api".to_owned(), allowed: 0, denied: 0 }],
            allowed: KeyList { keys: keys.into_iter().map(listed).collect(), floor: 0 },
            ..Page::new()
        }
    }

    fn keys(numbers: std::ops::Range<u64>, count: u64) -> impl Iterator<Item = (String, u64)> {
        numbers.map(move |n| (format!("={n}"), count))
    }

    #[test]
    fn keys_with_low_counts_are_dropped_and_high_counts_stay() {
        let mut merge = Merge::new(10, true);
        for minute in 0..30 {
            merge.add(page(keys(0..5, 3)));
            merge.add(page(keys(minute * 10_000 + 1_000..minute * 10_000 + 11_000, 1)));
            assert!(merge.keys.len() <= MOST_KEYS, "{}", merge.keys.len());
        }
        assert!(merge.keys.len() > MOST_KEYS / 4, "half stay, also of equal counts");
        let top = merge.top(10);
        assert_eq!(top.len(), 10);
        for of in &top[..5] {
            assert_eq!((of.count, of.at_least, of.at_most), (90, 90, 90), "{}", of.key);
        }
        assert!(top[5..].iter().all(|of| of.count == 1 && of.at_most <= 2), "{top:?}");
    }

    #[test]
    fn the_upper_bound_of_a_key_contains_what_it_had_when_it_was_dropped() {
        let mut merge = Merge::new(1, true);
        merge.add(page([("=late".to_owned(), 4)]));
        merge.add(page(keys(0..MOST_KEYS as u64, 5)));
        assert!(!merge.keys.contains_key(&("api".to_owned(), "=late".to_owned())));
        merge.add(page([("=late".to_owned(), 70)]));
        let [of] = &merge.top(1)[..] else { panic!("one key") };
        assert_eq!((&*of.key, of.count, of.at_least), ("=late", 70, 70));
        assert!((74..=75).contains(&of.at_most), "{}", of.at_most);
    }

    #[test]
    fn a_key_that_was_counted_once_may_have_come_often() {
        let of = |one_in| {
            let mut merge = Merge::new(1, true);
            merge.add(Page { one_in, ..page([("=ada".to_owned(), one_in.into())]) });
            merge.top(1).remove(0)
        };
        assert_eq!((of(1).at_least, of(1).at_most), (1, 1));
        // Of 1,750 decisions one or none is counted in one of two million cases.
        let of = of(100);
        assert_eq!(of.at_least, 0);
        assert!((1_750..3_000).contains(&of.at_most), "{}", of.at_most);
    }

    #[test]
    fn more_keys_are_held_if_more_are_asked_for() {
        let mut merge = Merge::new(MOST_KEYS, true);
        merge.add(page(keys(0..2 * MOST_KEYS as u64, 1)));
        assert_eq!(merge.top(MOST_KEYS).len(), MOST_KEYS);
    }
}
