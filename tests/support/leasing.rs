//! A store in memory whose slots have times to live, as those of Redis have.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::store::{Check, End, Grant, Renewal, RenewalReport, Reply, Status, Store, Times, Verdict};
use tollgate::{Key, MemoryStore, Policy, Wait};

/// What a test says to renewals, and what it hears of them.
#[derive(Debug)]
pub struct Renewals {
    /// The answer.
    pub answer: Renewal,
    /// How many grants each call had.
    pub calls: Vec<usize>,
    /// How many slots were released so far.
    pub released: usize,
    /// Whether calls wait until [`Leasing::let_pass`].
    pub wait: bool,
}

/// A [`MemoryStore`] that says of each slot that its time to live ends, and answers renewals as a
/// test says. It ends no slot itself.
#[derive(Clone, Debug)]
pub struct Leasing {
    store: MemoryStore,
    renewals: Arc<Mutex<Renewals>>,
    passing: Arc<Notify>,
}

impl Leasing {
    /// Renews all that it is asked for.
    pub fn new(store: MemoryStore) -> Leasing {
        let renewals = Renewals { answer: Renewal::Held, calls: Vec::new(), released: 0, wait: false };
        Leasing { store, renewals: Arc::new(Mutex::new(renewals)), passing: Arc::default() }
    }

    /// Changes or reads what is known of renewals.
    pub fn renewals<T>(&self, see: impl FnOnce(&mut Renewals) -> T) -> T {
        see(&mut self.renewals.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets the calls pass that wait.
    pub fn let_pass(&self) {
        self.renewals(|renewals| renewals.wait = false);
        self.passing.notify_waiters();
    }
}

impl Store for Leasing {
    type Error = Infallible;
    type Acquire = <MemoryStore as Store>::Acquire;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let Reply::Now(Ok(verdict)) = self.store.acquire(set, times) else { unreachable!() };
        let timed = set.iter().zip(verdict.each()).map(|(check, status)| match check.policy.ttl() {
            Some(ttl) if status.wait() == Wait::None => {
                Status::new(status.remaining(), Wait::None, ttl, status.stamp())
            }
            _ => *status,
        });
        Reply::Now(Ok(Verdict::new(verdict.times(), Duration::ZERO, timed)))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<> {
        self.renewals(|renewals| renewals.released += grants.len());
        self.store.refund(grants)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<> {
        let passing = Arc::clone(&self.passing).notified_owned();
        let (store, count) = (self.clone(), grants.len());
        let wait = self.renewals(|renewals| {
            renewals.calls.push(count);
            renewals.wait
        });
        async move {
            if wait {
                passing.await;
            }
            let answer = store.renewals(|renewals| renewals.answer);
            (0..count).for_each(|at| report(at, answer));
            Ok(())
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<> {
        self.store.reset(key, policies)
    }
}
