//! The accounts of all keys, and the order in which their leases end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Status, Timestamp};

use super::account::{Account, Fetch, Granted, Spent, Unspent};
use super::settings::Lease;
use super::stats::{HeldLease, LeaseStats};
use crate::table::Table;
use crate::table::digest::Digest;
use crate::table::sharded::{Sharded, lock};

/// The demand for a key is remembered for so many lives of a lease after the last request.
const REMEMBERED_LIVES: u32 = 8;

/// Ends within this part of a life are handled together.
const END_TOGETHER: u32 = 16;

/// Units are refunded again after this time, if the store was not asked.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// For how long units are refunded again. Then they stay charged.
const RETRY_FOR: Duration = Duration::from_secs(60);

pub(super) struct Books {
    lease: Lease,
    accounts: Sharded<Account>,
    /// The ends of leases, the next one first.
    ends: Mutex<BinaryHeap<Reverse<(Timestamp, Digest)>>>,
    /// Unspent units for which the store was not asked yet.
    unasked: Mutex<Vec<Unspent>>,
    is_returning: AtomicBool,
    asked: AtomicU64,
    fetches: AtomicU64,
    fetched_units: AtomicU64,
    refunds: AtomicU64,
    refunded_units: AtomicU64,
}

impl Books {
    pub(super) fn new(lease: Lease) -> Books {
        Books {
            accounts: Sharded::new(lease.max_keys, lease.clock.clone()),
            lease,
            ends: Mutex::default(),
            unasked: Mutex::default(),
            is_returning: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            fetches: AtomicU64::new(0),
            fetched_units: AtomicU64::new(0),
            refunds: AtomicU64::new(0),
            refunded_units: AtomicU64::new(0),
        }
    }

    /// Spends what a check costs, if enough is held.
    #[inline]
    pub(super) fn spend(&self, check: &Check<'_>) -> Option<Spent> {
        let (mut table, digest, now) = self.accounts.enter(check.policy, check.key);
        table.sweep(now);
        let at = table.find(&digest)?;
        table.slot(at).value.spend(check.policy, check.cost, now)
    }

    pub(super) fn unspend(&self, check: &Check<'_>, spent: &Spent) {
        let (mut table, digest, _) = self.accounts.enter(check.policy, check.key);
        if let Some(at) = table.find(&digest) {
            table.slot(at).value.unspend(spent, check.cost);
        }
    }

    /// Counts a check that the store decides. Returns whether a lease is worth its fetch.
    pub(super) fn ask(&self, check: &Check<'_>) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (mut table, digest, now) = self.accounts.enter(check.policy, check.key);
        let expires = now.saturating_add(self.lease.life * REMEMBERED_LIVES);
        if let Some(at) = table.find(&digest) {
            let slot = table.slot(at);
            slot.renew(expires, false);
            return slot.value.ask(check.cost, now, self.lease.life);
        }
        // Keys that hold units are pinned: those would be lost.
        if table.make_room(1, now, |_| false) {
            table.reserve(1);
            table.insert(digest, Account::new(check.cost, now), expires);
        }
        false
    }

    pub(super) fn fetch(&self, policy: &Policy, key: &Key, left: Option<u32>) -> Option<Fetch> {
        let (mut table, digest, now) = self.accounts.enter(policy, key);
        let at = table.find(&digest)?;
        let slot = table.slot(at);
        let fetch = slot.value.fetch(policy, key, left, now, &self.lease)?;
        slot.renew(now.saturating_add(self.lease.life * REMEMBERED_LIVES), false);
        slot.pin();
        self.fetches.fetch_add(1, Ordering::Relaxed);
        Some(fetch)
    }

    pub(super) fn granted(&self, fetch: &Fetch, granted: &Granted) {
        let (mut table, digest, _) = self.accounts.enter(&fetch.policy, &fetch.key);
        let Some(at) = table.find(&digest) else { return };
        if table.slot(at).value.granted(fetch.sent, granted, self.lease.life) {
            drop(table);
            self.fetched_units.fetch_add(u64::from(granted.units), Ordering::Relaxed);
            lock(&self.ends).push(Reverse((granted.ends, digest)));
        }
    }

    pub(super) fn not_granted(&self, fetch: &Fetch, left: u32) {
        let (mut table, digest, now) = self.accounts.enter(&fetch.policy, &fetch.key);
        if let Some(at) = table.find(&digest) {
            table.slot(at).value.not_granted(fetch.sent, left, now, self.lease.life);
        }
    }

    /// How long a lease lasts, from before its fetch was sent. It ends with its window: what is
    /// spent later would be charged to a window that is over.
    pub(super) fn life_of(&self, policy: &Policy, status: &Status) -> Duration {
        match policy.algorithm() {
            Algorithm::FixedWindow { .. } => self.lease.life.min(status.reset_after()),
            _ => self.lease.life,
        }
    }

    pub(super) fn forget(&self, policy: &Policy, key: &Key) {
        let (mut table, digest, _) = self.accounts.enter(policy, key);
        if let Some(at) = table.find(&digest) {
            table.slot(at).value.forget();
        }
        drop(table);
        let is_of = |unspent: &Unspent| unspent.key == *key && unspent.policy.scope() == policy.scope();
        lock(&self.unasked).retain(|unspent| !is_of(unspent));
    }

    /// How long until the next lease ends, or units are refunded again. `None` if there are none.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let next = lock(&self.ends).peek().map(|Reverse((ends, _))| *ends);
        let Some(ends) = next else {
            return (!lock(&self.unasked).is_empty()).then_some(RETRY_AFTER);
        };
        let now = self.accounts.clock().now();
        let left = Duration::from_micros(ends.as_micros().saturating_sub(now.as_micros()));
        Some(left.max(self.lease.life / END_TOGETHER))
    }

    /// Takes what leases that have ended did not spend, with what was [kept](Books::keep).
    pub(super) fn end(&self) -> Vec<Unspent> {
        let now = self.accounts.clock().now();
        let mut unspent = Vec::new();
        while let Some(digest) = self.next_ended(now) {
            let mut table = self.accounts.lock(self.accounts.shard_of(&digest));
            if let Some(at) = table.find(&digest) {
                table.slot(at).value.end(now, &mut unspent);
            }
        }
        let units = unspent.iter().map(|unspent| u64::from(unspent.units)).sum();
        self.refunds.fetch_add(unspent.len() as u64, Ordering::Relaxed);
        self.refunded_units.fetch_add(units, Ordering::Relaxed);
        unspent.append(&mut lock(&self.unasked));
        unspent
    }

    /// Keeps units for which the store was not asked, unless that was tried for too long.
    pub(super) fn keep(&self, unspent: Unspent) {
        if self.accounts.clock().now() < unspent.since.saturating_add(RETRY_FOR) {
            lock(&self.unasked).push(unspent);
        }
    }

    fn next_ended(&self, now: Timestamp) -> Option<Digest> {
        let mut ends = lock(&self.ends);
        ends.peek().filter(|Reverse((ends, _))| *ends <= now)?;
        ends.pop().map(|Reverse((_, digest))| digest)
    }

    /// Whether the caller is to return leases: no other task does.
    pub(super) fn start_returning(&self) -> bool {
        !self.is_returning.swap(true, Ordering::AcqRel)
    }

    pub(super) fn stop_returning(&self) {
        self.is_returning.store(false, Ordering::Release);
    }

    pub(super) fn held(&self, policy: &Policy, key: &Key) -> Option<HeldLease> {
        let (mut table, digest, now) = self.accounts.enter(policy, key);
        let at = table.find(&digest)?;
        let (units, ends) = table.slot(at).value.held(now)?;
        Some(HeldLease { units, ends_in: Duration::from_micros(ends.as_micros() - now.as_micros()) })
    }

    /// Whether units are held for a check, or on their way.
    pub(super) fn is_leased(&self, check: &Check<'_>) -> bool {
        let (mut table, digest, _) = self.accounts.enter(check.policy, check.key);
        table.find(&digest).is_some_and(|at| table.slot(at).value.is_leased())
    }

    /// Units that a check of this policy and key could spend now.
    pub(super) fn spendable(&self, policy: &Policy, key: &Key) -> u32 {
        let (mut table, digest, now) = self.accounts.enter(policy, key);
        table.find(&digest).map_or(0, |at| table.slot(at).value.spendable(policy, now))
    }

    pub(super) fn stats(&self) -> LeaseStats {
        let held = |table: &Table<Account>| table.values().map(Account::units).sum::<u64>();
        LeaseStats {
            asked: self.asked.load(Ordering::Relaxed),
            fetches: self.fetches.load(Ordering::Relaxed),
            fetched_units: self.fetched_units.load(Ordering::Relaxed),
            refunds: self.refunds.load(Ordering::Relaxed),
            refunded_units: self.refunded_units.load(Ordering::Relaxed),
            held_units: self.accounts.iter().map(|table| held(&table)).sum(),
        }
    }
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books").field("lease", &self.lease).finish_non_exhaustive()
    }
}
