//! What the servers decided, checked against the rules of each edit.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use crate::rules::walk::Limits;

const DAY_US: u64 = 86_400_000_000;

/// A decision, and when the server asked and knew it, in microseconds since the epoch.
#[derive(Debug)]
struct Decided {
    sent: u64,
    received: u64,
    cost: u64,
    is_granted: bool,
    rules: BTreeMap<String, Shown>,
}

/// What a decision shows of a rule. Waits are in microseconds.
#[derive(Debug)]
struct Shown {
    limit: u64,
    remaining: u64,
    wait: u64,
    stamp: u64,
}

pub(crate) struct Journal(Vec<Decided>);

/// How much was checked.
pub(crate) struct Checked {
    edits: usize,
    grants: usize,
    denials: usize,
}

impl Journal {
    pub(crate) fn read(paths: impl Iterator<Item = PathBuf>) -> Journal {
        let mut all = Vec::new();
        for path in paths {
            all.extend(fs::read_to_string(path).unwrap().lines().map(Decided::parse));
        }
        Journal(all)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks each decision by the limits of its edit, and all of them together by what was used.
    pub(crate) fn check(&self, edits: &BTreeMap<u64, Limits>) -> Checked {
        let mut seen = std::collections::BTreeSet::new();
        for decided in &self.0 {
            let edit = decided.rules["edit"].limit;
            let limits: Limits =
                decided.rules.iter().map(|(name, shown)| (name.clone(), shown.limit)).collect();
            assert_eq!(edits.get(&edit), Some(&limits), "a request is decided by one set: {decided:?}");
            let mut refused = decided.rules.values().filter(|shown| shown.wait > 0);
            assert_ne!(decided.is_granted, refused.next().is_some(), "{decided:?}");
            seen.insert(edit);
        }
        for name in ["fixed", "log", "ring"] {
            self.check_units(name);
        }
        self.check_bucket();
        let grants = self.0.iter().filter(|decided| decided.is_granted).count();
        Checked { edits: seen.len(), grants, denials: self.0.len() - grants }
    }

    /// The decisions that a rule took part in.
    fn of(&self, name: &'static str) -> impl Iterator<Item = (&Decided, &Shown)> {
        self.0.iter().filter_map(move |decided| Some((decided, decided.rules.get(name)?)))
    }

    /// Nothing comes back within a day, so each grant begins with what all earlier ones have used.
    fn check_units(&self, name: &'static str) {
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        for (decided, shown) in self.of(name).filter(|(decided, _)| decided.is_granted) {
            let earlier = used.insert(shown.limit - shown.remaining, decided.cost);
            assert_eq!(earlier, None, "{name}: two grants have used as much: {decided:?}");
        }
        let mut total = 0;
        for (after, cost) in &used {
            assert_eq!(*after, total + cost, "{name}: units were lost, or came back");
            total = *after;
        }
        for (decided, shown) in self.of(name).filter(|(_, shown)| shown.wait > 0) {
            assert!(shown.remaining < decided.cost, "{name} refused though there was room: {decided:?}");
            assert!(shown.limit.saturating_sub(total) <= shown.remaining, "{name}: {decided:?}");
        }
    }

    /// The time until a bucket is full grows by the cost of each grant, and shrinks by time only.
    fn check_bucket(&self) {
        // By the end of the debt after each grant.
        let mut grants: Vec<(u64, &Decided, u64)> = Vec::new();
        for (decided, shown) in self.of("bucket").filter(|(decided, _)| decided.is_granted) {
            grants.push((shown.stamp, decided, DAY_US / shown.limit));
        }
        grants.sort_by_key(|(stamp, ..)| *stamp);
        let mut before = 0;
        for (stamp, decided, emission) in &grants {
            let begins = stamp - decided.cost * emission;
            let in_debt = begins == before;
            let was_full = begins >= before && (decided.sent..=decided.received).contains(&begins);
            assert!(in_debt || was_full, "bucket: {begins} after {before}: {decided:?}");
            assert!(*stamp <= decided.received + DAY_US, "bucket: more than its capacity: {decided:?}");
            before = *stamp;
        }
        for (decided, shown) in self.of("bucket").filter(|(_, shown)| shown.wait > 0) {
            // It waits for the time at which what is owed and its cost fit into the capacity.
            let owed = shown.wait + DAY_US - decided.cost * (DAY_US / shown.limit);
            let (first, last) = (decided.sent + owed, decided.received + owed);
            let is_one = grants.iter().any(|(stamp, ..)| (first..=last).contains(stamp));
            assert!(is_one, "bucket refused for a debt that no grant left: {decided:?}");
        }
    }
}

impl Decided {
    fn parse(line: &str) -> Decided {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let rules = (4..words.len()).step_by(5).map(|at| {
            let [limit, remaining, wait, stamp] = [1, 2, 3, 4].map(|offset| number(at + offset));
            (words[at].to_owned(), Shown { limit, remaining, wait, stamp })
        });
        Decided {
            sent: number(0),
            received: number(1),
            cost: number(2),
            is_granted: number(3) == 1,
            rules: rules.collect(),
        }
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { edits, grants, denials } = self;
        write!(f, "{grants} grants and {denials} denials by {edits} of them")
    }
}
