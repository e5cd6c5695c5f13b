//! The accounts of all keys, and when their leases end.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Algorithm, Check, Key, Policy, Status, Timestamp};

use super::account::{Account, Fetch, Granted, Spent, Unspent};
use super::agenda::Agenda;
use super::settings::Lease;
use super::stats::{HeldLease, LeaseStats};
use crate::table::Table;
use crate::table::digest::Digest;
use crate::table::sharded::Sharded;
use crate::time::under_way::UnderWay;

/// The demand for a key is remembered for so many lives of a lease after the last request.
const REMEMBERED_LIVES: u32 = 8;

pub(super) struct Books {
    lease: Lease,
    accounts: Sharded<Account>,
    pub(super) agenda: Agenda,
    pub(super) under_way: UnderWay,
    /// Whether nothing is fetched any more.
    is_closed: AtomicBool,
    asked: AtomicU64,
    fetches: AtomicU64,
    fetched_units: AtomicU64,
    refunds: AtomicU64,
    refunded_units: AtomicU64,
    /// Units whose refund is on its way.
    returning_units: AtomicU64,
}

impl Books {
    pub(super) fn settings(&self) -> &Lease {
        &self.lease
    }

    pub(super) fn new(lease: Lease) -> Books {
        Books {
            accounts: Sharded::new(lease.max_keys, lease.clock.clone()),
            agenda: Agenda::new(lease.life),
            lease,
            under_way: UnderWay::default(),
            is_closed: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            fetches: AtomicU64::new(0),
            fetched_units: AtomicU64::new(0),
            refunds: AtomicU64::new(0),
            refunded_units: AtomicU64::new(0),
            returning_units: AtomicU64::new(0),
        }
    }

    /// Spends what a check costs, if enough is held.
    #[inline]
    pub(super) fn spend(&self, check: &Check<'_>) -> Option<Spent> {
        let (mut table, digest, now) = self.accounts.enter(check.policy, check.key);
        table.sweep(now);
        let at = table.find(&digest)?;
        table.entry(at).value.spend(check.policy, check.cost, now)
    }

    pub(super) fn unspend(&self, check: &Check<'_>, spent: &Spent) {
        let (mut table, digest, _) = self.accounts.enter(check.policy, check.key);
        if let Some(at) = table.find(&digest) {
            table.entry(at).value.unspend(spent, check.cost);
        }
    }

    /// Counts a check that the store decides. Returns whether a lease is worth its fetch.
    pub(super) fn ask(&self, check: &Check<'_>) -> bool {
        let (mut table, digest, now) = self.accounts.enter(check.policy, check.key);
        self.ask_in(&mut table, digest, now, check.cost)
    }

    /// [`Books::spend`], or [`Books::ask`] if too little is held.
    #[inline]
    pub(super) fn spend_or_ask(&self, check: &Check<'_>) -> Result<Spent, bool> {
        let (mut table, digest, now) = self.accounts.enter(check.policy, check.key);
        table.sweep(now);
        let at = table.find(&digest);
        let spent = at.and_then(|at| table.entry(at).value.spend(check.policy, check.cost, now));
        spent.ok_or_else(|| self.ask_in(&mut table, digest, now, check.cost))
    }

    fn ask_in(&self, table: &mut Table<Account>, digest: Digest, now: Timestamp, cost: u64) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let expires = now.saturating_add(self.lease.life * REMEMBERED_LIVES);
        if let Some(at) = table.find(&digest) {
            let entry = table.entry(at);
            entry.renew(expires, false);
            return entry.value.ask(cost, now, self.lease.life);
        }
        // Keys that hold units are pinned: those would be lost.
        if table.make_room(1, now, |_| false) {
            table.reserve(1);
            table.insert(digest, Account::new(cost, now), expires);
        }
        false
    }

    pub(super) fn fetch(&self, policy: &Policy, key: &Key, left: Option<u64>) -> Option<Fetch> {
        let (mut table, digest, now) = self.accounts.enter(policy, key);
        let at = table.find(&digest)?;
        let entry = table.entry(at);
        let fetch = entry.value.fetch(policy, key, left, now, &self.lease)?;
        entry.renew(now.saturating_add(self.lease.life * REMEMBERED_LIVES), false);
        entry.pin();
        self.fetches.fetch_add(1, Ordering::Relaxed);
        Some(fetch)
    }

    pub(super) fn granted(&self, fetch: &Fetch, granted: &Granted) {
        let (mut table, digest, _) = self.accounts.enter(&fetch.policy, &fetch.key);
        let Some(at) = table.find(&digest) else { return };
        if table.entry(at).value.granted(fetch.sent, granted, self.lease.life) {
            drop(table);
            let units = if fetch.policy.numbers().charges_nothing() { 0 } else { granted.units };
            self.fetched_units.fetch_add(u64::from(units), Ordering::Relaxed);
            self.agenda.add(granted.ends, digest);
        }
    }

    pub(super) fn not_granted(&self, fetch: &Fetch, left: u64) {
        let (mut table, digest, now) = self.accounts.enter(&fetch.policy, &fetch.key);
        if let Some(at) = table.find(&digest) {
            table.entry(at).value.not_granted(fetch.sent, left, now, self.lease.life);
        }
    }

    /// How long a lease lasts, from before its fetch was sent. It ends with its window: what is
    /// spent later would be charged to a window that is over.
    pub(super) fn life_of(&self, policy: &Policy, status: &Status) -> Duration {
        match policy.algorithm() {
            _ if self.is_closed() => Duration::ZERO,
            Algorithm::FixedWindow { .. } | Algorithm::CalendarWindow { .. } => {
                self.lease.life.min(status.reset_after())
            }
            _ => self.lease.life,
        }
    }

    pub(super) fn forget(&self, policy: &Policy, key: &Key) {
        let (mut table, digest, _) = self.accounts.enter(policy, key);
        if let Some(at) = table.find(&digest) {
            table.entry(at).value.forget();
        }
        drop(table);
        self.agenda.forget(&digest);
    }

    /// Takes what leases that have ended did not spend, and what was [kept](Books::keep). All
    /// leases end now if the books are [closed](Books::close).
    pub(super) fn end(&self) -> Vec<Unspent> {
        let now = self.now();
        let by = if self.is_closed() { Timestamp::MAX } else { now };
        let mut unspent = Vec::new();
        while let Some(digest) = self.agenda.next_ended(by) {
            let mut table = self.accounts.lock(self.accounts.shard_of(&digest));
            if let Some(at) = table.find(&digest) {
                table.entry(at).value.end(by, now, &mut unspent);
            }
        }
        let units = unspent.iter().map(|unspent| u64::from(unspent.units)).sum();
        self.refunds.fetch_add(unspent.len() as u64, Ordering::Relaxed);
        self.refunded_units.fetch_add(units, Ordering::Relaxed);
        unspent.extend(self.agenda.take_kept(by).into_iter().map(|(_, unspent)| unspent));
        let units = unspent.iter().map(|unspent| u64::from(unspent.units)).sum();
        self.returning_units.fetch_add(units, Ordering::Relaxed);
        unspent
    }

    /// The refund of these units was answered.
    pub(super) fn answered(&self, unspent: &Unspent) {
        self.returning_units.fetch_sub(unspent.units.into(), Ordering::Relaxed);
    }

    /// Units that the store has not got back, as far as this process knows.
    pub(super) fn not_returned(&self) -> u64 {
        let returning = self.returning_units.load(Ordering::Relaxed);
        self.stats().held_units + self.agenda.kept_units() + returning
    }

    /// Keeps units for another refund, because nothing of the first was executed.
    pub(super) fn keep(&self, unspent: Unspent) {
        let digest = self.accounts.digest(&unspent.policy, &unspent.key);
        self.agenda.keep(digest, unspent, self.now());
    }

    /// From now on nothing is fetched, and [`Books::end`] ends all leases.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Count what is [under way](UnderWay::begin) before: a stop closes the books first, and then
    /// waits for that.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.accounts.clock().now()
    }

    pub(super) fn held(&self, policy: &Policy, key: &Key) -> Option<HeldLease> {
        let (mut table, digest, now) = self.accounts.enter(policy, key);
        let at = table.find(&digest)?;
        let (units, ends) = table.entry(at).value.held(now)?;
        Some(HeldLease { units: units.into(), ends_in: ends.saturating_since(now) })
    }

    /// Whether units are held for a check, or on their way.
    pub(super) fn is_leased(&self, check: &Check<'_>) -> bool {
        let (mut table, digest, _) = self.accounts.enter(check.policy, check.key);
        table.find(&digest).is_some_and(|at| table.entry(at).value.is_leased())
    }

    /// Units that a check of this policy and key could spend now.
    pub(super) fn spendable(&self, policy: &Policy, key: &Key) -> u32 {
        let (mut table, digest, now) = self.accounts.enter(policy, key);
        table.find(&digest).map_or(0, |at| table.entry(at).value.spendable(policy, now))
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
