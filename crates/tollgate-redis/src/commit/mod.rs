//! Group commit: while a call is in flight, requests gather, and the next call carries them all.
//!
//! There is no timer and no added wait. A request that finds a free [`Lane`] starts a call at once.
//! Under load, calls grow by themselves, and the requests in a call share the price of its round
//! trip.
//!
//! Checks have a [`Group`]. So have the releases of slots, their renewals, and refunds together
//! with resets. Each of these three has one lane, a connection and a queue of its own, and small
//! calls. So refunds hold up neither checks nor slots, and a release never waits for renewals.
//!
//! Rules in shadow have a group of their own. It makes one call at a time over a connection of its
//! own, with at most 1 ms of work, and only while no check of the first group waits. After a call
//! it rests for as long as the call took.
//!
//! From top to bottom, each module imports only those below it: this one, `lane`, `check_batch`,
//! `returns` and `refund_batch`, `group`, `silence`, `context`, `server_clock`, `acquire_request`,
//! `caller`, `pace`. `group` has the queues, and bounds how many requests a call carries. `pace`
//! bounds how much work it carries.

mod acquire_request;
mod caller;
mod check_batch;
mod context;
mod group;
mod lane;
mod pace;
mod refund_batch;
mod returns;
mod server_clock;
mod silence;

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::wire::names::BoundedKey;
use check_batch::CheckBatch;
use group::{Group, Load};
use lane::Lane;
use pace::Pace;
use refund_batch::RefundBatch;
use returns::ReturnKind;

pub(crate) use acquire_request::{AcquireRequest, Pair, SetKeys};
pub(crate) use caller::{Caller, Deadline, VerdictReceiver};
pub(crate) use context::CallContext;
pub(crate) use refund_batch::RefundEntry;
pub(crate) use returns::Returns;
pub(crate) use server_clock::ServerClocks;

/// A check in shadow that was not sent after this time is dropped.
pub(crate) const SHADOW_SENT_WITHIN: Duration = Duration::from_millis(50);

/// The groups of a store, or of its handle in shadow.
pub(crate) struct Commit {
    pub(crate) context: Arc<CallContext>,
    /// Whether its checks are dropped that are not sent soon.
    pub(crate) is_in_shadow: bool,
    checks: Arc<Group<CheckBatch>>,
    /// By [`ReturnKind`].
    returns: [Arc<Group<RefundBatch>>; 3],
    hasher: RandomState,
}

impl Commit {
    /// `lanes` is how many calls with checks are in flight at once. A slot of a Cluster has one.
    pub(crate) fn new(context: CallContext, lanes: usize, most_waiting: usize) -> Commit {
        let lanes = if context.link.has_slots() { 1 } else { lanes };
        let context = Arc::new(context);
        Commit {
            checks: Arc::new(Group::new(Arc::clone(&context), lanes, most_waiting, Pace::new())),
            returns: [(); 3]
                .map(|()| Arc::new(Group::new(Arc::clone(&context), 1, most_waiting, Pace::of_refunds()))),
            context,
            is_in_shadow: false,
            hasher: RandomState::new(),
        }
    }

    /// The checks of rules in shadow, which are sent behind these.
    pub(crate) fn in_shadow(&self) -> Commit {
        let context = Arc::new(self.context.in_shadow());
        Commit {
            checks: Arc::new(Group::behind(&self.checks, Arc::clone(&context))),
            returns: self.returns.clone(),
            context,
            is_in_shadow: true,
            hasher: self.hasher.clone(),
        }
    }

    /// The slot of a key; 0 without a Cluster, where all keys can be decided together.
    pub(crate) fn slot(&self, key: &BoundedKey) -> u16 {
        if self.context.link.has_slots() { self.context.names.slot(key) } else { 0 }
    }

    /// Queues a set whose keys are all in this slot.
    pub(crate) fn acquire(
        &self,
        slot: u16,
        request: AcquireRequest<'_>,
        deadline: Option<Deadline>,
    ) -> Result<VerdictReceiver, Error> {
        // Everything that needs no lock comes before it.
        let hash = request.hash(&self.hasher);
        let log = self.context.names.log;
        let (caller, answer) = Caller::new(deadline);
        // Those that are merged add no work.
        push(&self.checks, slot, deadline, 0, |checks| checks.push(request, hash, log, caller))?;
        Ok(answer)
    }

    /// Queues a part of [`Returns`], whose entries are of one slot and one kind. They are sent even
    /// if the caller leaves, but for renewals that claim slots.
    pub(crate) fn give_back(
        &self,
        slot: u16,
        entries: Vec<RefundEntry>,
        deadline: Option<Deadline>,
    ) -> Result<VerdictReceiver, Error> {
        let (caller, answer) = Caller::new(deadline);
        let kind = entries.first().map_or(ReturnKind::Refund, RefundEntry::kind);
        let work = entries.iter().map(RefundEntry::work).fold(0, u32::saturating_add);
        let group = &self.returns[kind as usize];
        push(group, slot, deadline, work, |batch| batch.push(entries, caller))?;
        Ok(answer)
    }

    /// Notifies callers whose deadline has passed. The store's runtime does so too, unless it is
    /// held up.
    pub(crate) fn notify_overdue(&self) {
        self.checks.notify_overdue();
        self.returns.iter().for_each(|group| group.notify_overdue());
    }
}

/// Queues a request with one caller, which `add` puts into a load, with at least this `work`.
/// Starts a lane if one is free.
fn push<L: Load>(
    group: &Arc<Group<L>>,
    slot: u16,
    deadline: Option<Deadline>,
    work: u32,
    add: impl FnOnce(&mut L),
) -> Result<(), Error> {
    if group.push(slot, deadline, work, add)? {
        group.context.runtime.spawn(Lane::new(Arc::clone(group), slot).run());
    }
    Ok(())
}
