//! The last use and the total of each key, for policies that track usage.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tollgate_core::{Check, Clock, Grant, Key, KeyTotal, Stamp, Timestamp};

use crate::table::digest::Digest;
use crate::table::sharded::Sharded;

/// Where a total stops, as in Redis, whose scripts compute with doubles.
const MOST: u64 = 1 << 53;

/// A total that never expired would give its place to no other.
const LAST: Timestamp = Timestamp::from_micros(Timestamp::MAX.as_micros() - 1);

pub(super) struct TotalsTable {
    max_keys: usize,
    tables: Sharded<Total>,
    life: Duration,
    hasher: RandomState,
}

struct Total {
    policy: Box<str>,
    key: Box<str>,
    units: u64,
    last_use: Timestamp,
}

impl TotalsTable {
    pub(super) fn new(max_keys: usize, life: Duration, clock: Clock) -> TotalsTable {
        TotalsTable { max_keys, tables: Sharded::new(max_keys, clock), life, hasher: RandomState::new() }
    }

    pub(super) fn another_as_large(&self) -> TotalsTable {
        TotalsTable::new(self.max_keys, self.life, self.tables.clock().clone())
    }

    /// Records a set that was granted so many times.
    pub(super) fn record(&self, set: &[Check<'_>], times: u32) {
        for check in set.iter().filter(|check| check.cost > 0 && check.policy.numbers().tracks_usage()) {
            let units = check.cost * u64::from(times);
            let digest = self.digest(check.policy.name(), check.key);
            let (mut table, now) = self.tables.enter_at(&digest);
            table.sweep(now);
            let expires = now.saturating_add(self.life).min(LAST);
            if let Some(at) = table.find(&digest) {
                let entry = table.entry(at);
                let before = if self.is_forgotten(&entry.value, now) { 0 } else { entry.value.units };
                entry.value.units = before.saturating_add(units).min(MOST);
                entry.value.last_use = now;
                entry.renew(expires, true);
            } else if table.make_room(1, now, |_| false) {
                let (policy, key) = (check.policy.name().into(), digest.name(check.key).into());
                let total = Total { policy, key, units: units.min(MOST), last_use: now };
                table.reserve(1);
                table.insert(digest, total, expires);
            }
        }
    }

    /// Takes refunded units from the totals.
    pub(super) fn refund(&self, grants: &[Grant<'_>]) {
        // What is credited was used.
        let is_counted =
            |grant: &&Grant<'_>| grant.policy.numbers().tracks_usage() && grant.stamp != Stamp::NEWEST;
        for grant in grants.iter().filter(is_counted) {
            let digest = self.digest(grant.policy.name(), grant.key);
            let (mut table, _) = self.tables.enter_at(&digest);
            if let Some(at) = table.find(&digest) {
                let total = &mut table.entry(at).value;
                total.units = total.units.saturating_sub(grant.units);
            }
        }
    }

    pub(super) fn of(&self, policy: &str, key: &Key) -> Option<KeyTotal> {
        let digest = self.digest(policy, key);
        let (mut table, now) = self.tables.enter_at(&digest);
        let at = table.find(&digest)?;
        let total = &table.entry(at).value;
        (!self.is_forgotten(total, now)).then(|| total.shown())
    }

    /// Locks one shard after the other, and none while `each` runs.
    pub(super) fn scan(&self, policy: &str, mut each: impl FnMut(KeyTotal)) {
        for table in self.tables.iter() {
            let now = self.tables.clock().now();
            let is_wanted = |total: &&Total| *total.policy == *policy && !self.is_forgotten(total, now);
            let totals: Vec<KeyTotal> = table.values().filter(is_wanted).map(Total::shown).collect();
            drop(table);
            totals.into_iter().for_each(&mut each);
        }
    }

    /// By the name of the policy, so that a change of its quota or algorithm starts no new total.
    fn digest(&self, policy: &str, key: &Key) -> Digest {
        self.tables.digest_under(self.hasher.hash_one(policy), key)
    }

    /// Whether it is too old. The table removes it some time later.
    fn is_forgotten(&self, total: &Total, now: Timestamp) -> bool {
        total.last_use.saturating_add(self.life) <= now
    }
}

impl Total {
    fn shown(&self) -> KeyTotal {
        KeyTotal { key: self.key.to_string(), total: self.units, last_use: self.last_use }
    }
}
