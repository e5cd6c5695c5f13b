//! Group commit: while a call is in flight, requests gather, and the next call carries them all.
//!
//! There is no timer and no added wait. A request that finds a free [`Lane`] starts a call at once.
//! Under load, calls grow by themselves, and the requests in a call share the price of its round
//! trip.
//!
//! Checks have a [`Group`], and refunds have another one together with resets, so that refunds
//! never hold up a check: they have one lane of their own, and a connection that checks do not use.
//!
//! Rules in shadow have a third group. It makes one call at a time over a connection of its own,
//! with at most 1 ms of work, and only while no check of the first group waits. After a call it
//! rests for as long as the call took.
//!
//! From top to bottom, each module imports only those below it: this one, `lane`, `check_batch`,
//! `claims`, `refund_batch`, `group`, `silence`, `context`, `server_clock`, `acquire_request`,
//! `caller`, `pace`. `group` has the queues, and bounds how many requests a call carries. `pace`
//! bounds how much work it carries. `claims` refunds what is granted to callers that have gone.

mod acquire_request;
mod caller;
mod check_batch;
mod claims;
mod context;
mod group;
mod lane;
mod pace;
mod refund_batch;
mod server_clock;
mod silence;

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::SentClaims;

use crate::error::{Cause, Error};
use crate::wire::names::BoundedKey;
use check_batch::CheckBatch;
use group::{Group, Load};
use lane::Lane;
use refund_batch::RefundBatch;

pub(crate) use acquire_request::{AcquireRequest, Pair, SetKeys};
pub(crate) use caller::{Answered, Caller, Deadline, Undo, VerdictReceiver};
pub(crate) use check_batch::refunds;
pub(crate) use claims::Claims;
pub(crate) use context::CallContext;
pub(crate) use refund_batch::RefundEntry;
pub(crate) use server_clock::ServerClocks;

/// How many calls with refunds are in flight at once, for each slot.
const REFUND_LANES: usize = 1;

/// A check in shadow that was not sent after this time is dropped.
pub(crate) const SHADOW_SENT_WITHIN: Duration = Duration::from_millis(50);

/// Both groups of a store, or of its handle in shadow.
pub(crate) struct Commit {
    pub(crate) context: Arc<CallContext>,
    /// Whether its checks are dropped that are not sent soon.
    pub(crate) is_in_shadow: bool,
    checks: Arc<Group<CheckBatch>>,
    refunds: Arc<Group<RefundBatch>>,
    pub(crate) claims: Arc<Claims>,
    /// How many requests may be queued, and how many claims may wait for their answers.
    most_waiting: usize,
    hasher: RandomState,
}

impl Commit {
    /// `lanes` is how many calls with checks are in flight at once. A slot of a Cluster has one.
    pub(crate) fn new(context: CallContext, lanes: usize, most_waiting: usize) -> Commit {
        let lanes = if context.link.has_slots() { 1 } else { lanes };
        let context = Arc::new(context);
        let refunds = Arc::new(Group::new(Arc::clone(&context), REFUND_LANES, most_waiting));
        Commit {
            checks: Arc::new(Group::new(Arc::clone(&context), lanes, most_waiting)),
            claims: claims(SentClaims::default(), &context, &refunds),
            refunds,
            most_waiting,
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
            claims: claims(self.claims.counts.clone(), &context, &self.refunds),
            refunds: Arc::clone(&self.refunds),
            most_waiting: self.most_waiting,
            context,
            is_in_shadow: true,
            hasher: self.hasher.clone(),
        }
    }

    /// The slot of a key; 0 without a Cluster, where all keys can be decided together.
    pub(crate) fn slot(&self, key: &BoundedKey) -> u16 {
        self.context.slot_of_key(key)
    }

    /// Queues a set whose keys are all in this slot.
    pub(crate) fn acquire(
        &self,
        slot: u16,
        request: AcquireRequest<'_>,
        deadline: Option<Deadline>,
    ) -> Result<VerdictReceiver, Error> {
        let claims = request.is_claim.then_some(&self.claims);
        if claims.is_some_and(|claims| claims.counts.unanswered() >= self.most_waiting as u64) {
            return Err(Cause::Overloaded.into());
        }
        // Everything that needs no lock comes before it.
        let hash = request.hash(&self.hasher);
        let log = self.context.names.log;
        let (caller, answer) = Caller::new(deadline);
        let caller = caller.claiming(request.is_claim);
        push(&self.checks, slot, deadline, |checks| checks.push(request, hash, log, caller, claims))?;
        Ok(answer)
    }

    /// Queues refunds and resets: see [`give_back`].
    pub(crate) fn give_back(
        &self,
        slot: u16,
        entries: Vec<RefundEntry>,
        deadline: Option<Deadline>,
    ) -> Result<VerdictReceiver, Error> {
        give_back(&self.refunds, slot, entries, deadline)
    }

    /// Notifies callers whose deadline has passed. The store's runtime does so too, unless it is
    /// held up.
    pub(crate) fn notify_overdue(&self) {
        self.checks.notify_overdue();
        self.refunds.notify_overdue();
    }
}

/// The claims of checks with this context, which are refunded over these lanes.
fn claims(counts: SentClaims, context: &Arc<CallContext>, refunds: &Arc<Group<RefundBatch>>) -> Arc<Claims> {
    let refunds = Arc::clone(refunds);
    Arc::new(Claims::new(counts, Arc::clone(context), move |slot, entries| {
        give_back(&refunds, slot, entries, None)
    }))
}

/// Queues refunds and resets whose keys are all in this slot. They are sent even if the caller
/// leaves.
fn give_back(
    refunds: &Arc<Group<RefundBatch>>,
    slot: u16,
    entries: Vec<RefundEntry>,
    deadline: Option<Deadline>,
) -> Result<VerdictReceiver, Error> {
    let (caller, answer) = Caller::new(deadline);
    push(refunds, slot, deadline, |refunds| refunds.push(entries, caller))?;
    Ok(answer)
}

/// Queues a request with one caller, which `add` puts into a load. Starts a lane if one is free.
fn push<L: Load>(
    group: &Arc<Group<L>>,
    slot: u16,
    deadline: Option<Deadline>,
    add: impl FnOnce(&mut L),
) -> Result<(), Error> {
    if group.push(slot, deadline, add)? {
        group.context.runtime.spawn(Lane::new(Arc::clone(group), slot).run());
    }
    Ok(())
}
