//! Group commit: while a call is in flight, requests gather, and the next call carries them all.
//!
//! There is no timer and no added wait. A request that finds a free [`Lane`] starts a call at once.
//! Under load, calls grow by themselves, and the requests in a call share the price of its round
//! trip.
//!
//! Checks and returns (refunds and resets) have a [`Group`] each, so that returns never hold up a
//! check: they have one lane of their own, and a connection that checks do not use.
//!
//! From top to bottom, each module imports only those below it: this one, `lane`, `checks` and
//! `returns`, `group`, `silence`, `target`, `server_clock`, `ask`, `caller`, `pace`. `group` has
//! the queues, and bounds how many requests a call carries. `pace` bounds how much work it carries.

mod ask;
mod caller;
mod checks;
mod group;
mod lane;
mod pace;
mod returns;
mod server_clock;
mod silence;
mod target;

use std::hash::RandomState;
use std::sync::Arc;

use crate::error::Error;
use crate::wire::names::BoundedKey;
use checks::Checks;
use group::{Group, Load};
use lane::Lane;
use returns::Returns;

pub(crate) use ask::{Ask, Pair, SetKeys};
pub(crate) use caller::{Answer, Caller, Deadline};
pub(crate) use returns::Return;
pub(crate) use server_clock::ServerClocks;
pub(crate) use target::Target;

/// How many calls with returns are in flight at once, for each slot.
const RETURN_LANES: usize = 1;

/// Both groups of a store.
pub(crate) struct Commit {
    pub(crate) target: Arc<Target>,
    checks: Arc<Group<Checks>>,
    returns: Arc<Group<Returns>>,
    hasher: RandomState,
}

impl Commit {
    /// `lanes` is how many calls with checks are in flight at once. A slot of a Cluster has one.
    pub(crate) fn new(target: Target, lanes: usize, most_waiting: usize) -> Commit {
        let lanes = if target.link.has_slots() { 1 } else { lanes };
        let target = Arc::new(target);
        Commit {
            checks: Arc::new(Group::new(Arc::clone(&target), lanes, most_waiting)),
            returns: Arc::new(Group::new(Arc::clone(&target), RETURN_LANES, most_waiting)),
            target,
            hasher: RandomState::new(),
        }
    }

    /// The slot of a key; 0 without a Cluster, where all keys can be decided together.
    pub(crate) fn slot(&self, key: &BoundedKey) -> u16 {
        if self.target.link.has_slots() { self.target.names.slot(key) } else { 0 }
    }

    /// Queues a set whose keys are all in this slot.
    pub(crate) fn acquire(
        &self,
        slot: u16,
        ask: Ask<'_>,
        deadline: Option<Deadline>,
    ) -> Result<Answer, Error> {
        // Everything that needs no lock comes before it.
        let hash = ask.hash(&self.hasher);
        let log = self.target.names.log;
        let (caller, answer) = Caller::new(deadline);
        push(&self.checks, slot, deadline, |checks| checks.push(ask, hash, log, caller))?;
        Ok(answer)
    }

    /// Queues refunds and resets whose keys are all in this slot. They are sent even if the caller
    /// leaves.
    pub(crate) fn give_back(
        &self,
        slot: u16,
        entries: Vec<Return>,
        deadline: Option<Deadline>,
    ) -> Result<Answer, Error> {
        let (caller, answer) = Caller::new(deadline);
        push(&self.returns, slot, deadline, |returns| returns.push(entries, caller))?;
        Ok(answer)
    }

    /// Notifies callers whose deadline has passed. The store's runtime does so too, unless it is
    /// held up.
    pub(crate) fn notify_overdue(&self) {
        self.checks.notify_overdue();
        self.returns.notify_overdue();
    }
}

/// Queues a request with one caller, which `add` puts into a load. Starts a lane if one is free.
fn push<L: Load>(
    group: &Arc<Group<L>>,
    slot: u16,
    deadline: Option<Deadline>,
    add: impl FnOnce(&mut L),
) -> Result<(), Error> {
    if group.push(slot, deadline, add)? {
        group.target.runtime.spawn(Lane::new(Arc::clone(group), slot).run());
    }
    Ok(())
}
