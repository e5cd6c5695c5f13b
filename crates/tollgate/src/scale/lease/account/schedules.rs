//! Every order in which threads reach an account: no unit is spent twice.

use std::sync::atomic::AtomicU64 as Counter;
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use tollgate_core::{Key, Policy, Quota, Stamp, Timestamp};

use super::super::settings::Lease;
use super::{Account, Fetch, Granted};

const LIFE: Duration = Duration::from_millis(1);

/// Just before the first lease ends, and just after it.
const BEFORE: u64 = 1_000_999;
const AFTER: u64 = 1_001_000;

/// An account behind its lock, a clock, and what the store and the callers count.
struct SharedAccount {
    account: Mutex<(Account, Timestamp)>,
    clock: AtomicU64,
    policy: Policy,
    key: Key,
    lease: Lease,
    fetched: Counter,
    spent: Counter,
    refunded: Counter,
}

fn add(counter: &Counter, units: u32) {
    counter.fetch_add(units.into(), Ordering::Relaxed);
}

impl SharedAccount {
    /// With a lease of three units.
    fn start(lease: Lease) -> Arc<SharedAccount> {
        let start = Timestamp::from_micros(1_000_000);
        let process = SharedAccount {
            account: Mutex::new((Account::new(3, start), start)),
            clock: AtomicU64::new(start.as_micros()),
            policy: Policy::new("leased", Quota::per_day(1_000)),
            key: Key::from("ada"),
            lease,
            fetched: Counter::new(0),
            spent: Counter::new(0),
            refunded: Counter::new(0),
        };
        let fetch = process.send(Some(1_000)).expect("a key in demand is leased");
        process.receive(&fetch);
        process.clock.store(BEFORE, Ordering::Release);
        Arc::new(process)
    }

    /// As [`Sharded::enter`](crate::table::sharded::Sharded::enter): the clock is read before the
    /// lock, and the time of an account never goes back.
    fn at<T>(&self, act: impl FnOnce(&mut Account, Timestamp) -> T) -> T {
        let early = Timestamp::from_micros(self.clock.load(Ordering::Acquire));
        let mut locked = self.account.lock().expect("no thread panics");
        let (account, latest) = &mut *locked;
        *latest = early.max(*latest);
        act(account, *latest)
    }

    /// A request of one unit. `true` if a lease granted it.
    fn spend(&self) -> bool {
        self.at(|account, now| {
            let spent = account.spend(&self.policy, 1, now);
            if let Some(spent) = &spent {
                assert!(now < spent.ends, "spent after its end");
                add(&self.spent, 1);
            }
            spent.is_some()
        })
    }

    /// A request of one unit in a set that another check refuses.
    fn spend_in_a_refused_set(&self) {
        if let Some(spent) = self.at(|account, now| account.spend(&self.policy, 1, now)) {
            self.at(|account, _| account.unspend(&spent, 1));
        }
    }

    /// The store charges a fetch.
    fn send(&self, left: Option<u64>) -> Option<Fetch> {
        let fetch = self.at(|account, now| account.fetch(&self.policy, &self.key, left, now, &self.lease))?;
        add(&self.fetched, fetch.units);
        Some(fetch)
    }

    /// The answer to a fetch arrives.
    fn receive(&self, fetch: &Fetch) {
        let granted = Granted {
            units: fetch.units,
            stamp: Stamp::default(),
            ends: fetch.sent.saturating_add(LIFE),
            left: 1_000,
            full_at: fetch.sent,
        };
        self.at(|account, _| account.granted(fetch.sent, &granted, LIFE));
    }

    /// Ends leases, and refunds what they did not spend.
    fn end(&self) {
        let mut unspent = Vec::new();
        self.at(|account, now| account.end(now, now, &mut unspent));
        unspent.iter().for_each(|unspent| add(&self.refunded, unspent.units));
    }

    fn tick(&self) {
        self.clock.store(AFTER, Ordering::Release);
    }

    /// Ends the last lease. Returns the units that were fetched, and those that were spent or
    /// refunded.
    fn close(&self) -> (u64, u64) {
        self.clock.store(2 * AFTER, Ordering::Release);
        self.end();
        assert!(self.at(|account, now| account.held(now)).is_none(), "held after its end");
        let of = |counter: &Counter| counter.load(Ordering::Relaxed);
        (of(&self.fetched), of(&self.spent) + of(&self.refunded))
    }
}

/// Explores the orders of what some threads do to a process, and checks it at the end.
fn explore(threads: &'static [fn(&SharedAccount)], check: fn(u64, u64)) {
    let schedules = std::sync::Arc::new(Counter::new(0));
    let counted = std::sync::Arc::clone(&schedules);
    // A new one would ask the processor for its clocks each time.
    let lease = Lease::at_most(3).lasting(LIFE);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        add(&counted, 1);
        let process = SharedAccount::start(lease.clone());
        let running = threads.iter().map(|act| {
            let process = Arc::clone(&process);
            thread::spawn(move || act(&process))
        });
        for thread in running.collect::<Vec<_>>() {
            thread.join().expect("no thread panics");
        }
        let (fetched, used) = process.close();
        check(fetched, used);
    });
    let schedules = schedules.load(Ordering::Relaxed);
    println!("{schedules} schedules");
    assert!(schedules > 500, "{schedules} schedules show little");
}

fn spends_two(process: &SharedAccount) {
    process.spend();
    process.spend();
}

fn refetches(process: &SharedAccount) {
    process.spend();
    if let Some(fetch) = process.send(None) {
        process.receive(&fetch);
    }
    process.spend();
}

fn ends(process: &SharedAccount) {
    process.tick();
    process.end();
}

fn resets(process: &SharedAccount) {
    process.at(|account, _| account.forget());
    process.spend();
}

fn each_unit_once(fetched: u64, used: u64) {
    assert_eq!(used, fetched, "each unit is spent or refunded, once");
}

/// Units may be lost, but none appears.
fn no_unit_twice(fetched: u64, used: u64) {
    assert!(used <= fetched, "{fetched} fetched, {used} spent or refunded");
}

#[test]
fn requests_refetches_and_ends_use_each_unit_once() {
    explore(&[spends_two, refetches, ends], each_unit_once);
}

#[test]
fn refused_sets_take_back_no_unit_twice() {
    explore(&[SharedAccount::spend_in_a_refused_set, refetches, ends], no_unit_twice);
}

#[test]
fn a_reset_while_a_fetch_is_on_its_way_leaves_no_unit_twice() {
    explore(&[resets, refetches, ends], no_unit_twice);
}
