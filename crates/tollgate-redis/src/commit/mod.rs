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
//! `check_command`, `alike`, `claims`, `returns` and `refund_batch`, `group`, `silence`, `context`,
//! `server_clock`, `acquire_request`, `caller`, `pace`. `group` has the queues, and bounds how many
//! requests a call carries. `pace` bounds how much work it carries. `claims` refunds what is
//! granted to callers that have gone.

mod acquire_request;
mod alike;
mod caller;
mod check_batch;
mod check_command;
mod claims;
mod context;
mod group;
mod lane;
mod pace;
mod refund_batch;
mod return_kind;
mod returns;
mod server_clock;
mod silence;
#[cfg(test)]
mod tests;

use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{SentClaims, Timestamp};

use crate::error::{Cause, Error};
use crate::wire::names::BoundedKey;
use check_batch::CheckBatch;
use group::{Group, Load};
use lane::Lane;
use pace::Pace;
use refund_batch::RefundBatch;
use return_kind::ReturnKind;

pub(crate) use acquire_request::{AcquireRequest, Pair, SetKeys};
pub(crate) use alike::refunds;
pub(crate) use caller::{AnswerReceiver, Answered, Caller, Deadline, ReturnReceiver, Undo, VerdictReceiver};
pub(crate) use claims::Claims;
pub(crate) use context::CallContext;
pub(crate) use refund_batch::RefundEntry;
pub(crate) use returns::Returns;
pub(crate) use server_clock::ServerClocks;

/// A check in shadow that was not sent after this time is dropped.
pub(crate) const SHADOW_SENT_WITHIN: Duration = Duration::from_millis(50);

/// By [`ReturnKind`].
type ReturnGroups = [Arc<Group<RefundBatch>>; 3];

/// The groups of a store, or of its handle in shadow.
pub(crate) struct Commit {
    pub(crate) context: Arc<CallContext>,
    /// Whether its checks are dropped that are not sent soon.
    pub(crate) is_in_shadow: bool,
    checks: Arc<Group<CheckBatch>>,
    returns: Arc<ReturnGroups>,
    pub(crate) claims: Arc<Claims>,
    /// How many requests may be queued, and how many claims may wait for their answers.
    most_waiting: usize,
    hasher: RandomState,
}

impl Commit {
    /// `lanes` is how many calls with checks are in flight at once. A hash slot of a Cluster has
    /// one.
    pub(crate) fn new(context: CallContext, lanes: usize, most_waiting: usize) -> Commit {
        let lanes = if context.link.has_hash_slots() { 1 } else { lanes };
        let context = Arc::new(context);
        let group = |()| Arc::new(Group::new(Arc::clone(&context), 1, most_waiting, Pace::of_refunds()));
        let returns = Arc::new([(); 3].map(group));
        Commit {
            checks: Arc::new(Group::new(Arc::clone(&context), lanes, most_waiting, Pace::new())),
            claims: claims(SentClaims::default(), &context, &returns),
            returns,
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
            claims: claims(self.claims.counts.clone(), &context, &self.returns),
            returns: Arc::clone(&self.returns),
            most_waiting: self.most_waiting,
            context,
            is_in_shadow: true,
            hasher: self.hasher.clone(),
        }
    }

    /// The hash slot of a key; 0 without a Cluster, where all keys can be decided together.
    pub(crate) fn hash_slot(&self, key: &BoundedKey) -> u16 {
        self.context.hash_slot_of_key(key)
    }

    /// Queues a set whose keys are all in this hash slot.
    pub(crate) fn acquire(
        &self,
        hash_slot: u16,
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
        // Those that are merged add no work.
        push(&self.checks, hash_slot, deadline, 0, |checks| checks.push(request, hash, log, caller, claims))?;
        Ok(answer)
    }

    /// Queues a part of [`Returns`].
    pub(crate) fn give_back(
        &self,
        hash_slot: u16,
        entries: Vec<RefundEntry>,
        deadline: Option<Deadline>,
    ) -> Result<ReturnReceiver, Error> {
        give_back(&self.returns, hash_slot, entries, deadline)
    }

    /// Why a set was not charged by a deadline, whose parts in these hash slots were sent after
    /// `began`.
    pub(crate) fn why_late(&self, hash_slots: &[u16], began: Timestamp, deadline: Deadline) -> Error {
        self.checks.why_late(hash_slots, began, deadline)
    }

    /// Notifies callers whose deadline has passed. The store's runtime does so too, unless it is
    /// held up.
    pub(crate) fn notify_overdue(&self) {
        self.checks.notify_overdue();
        self.returns.iter().for_each(|group| group.notify_overdue());
    }
}

/// The claims of checks with this context, which are refunded over these lanes.
fn claims(counts: SentClaims, context: &Arc<CallContext>, returns: &Arc<ReturnGroups>) -> Arc<Claims> {
    let returns = Arc::clone(returns);
    Arc::new(Claims::new(counts, Arc::clone(context), move |hash_slot, entries| {
        give_back(&returns, hash_slot, entries, None)
    }))
}

/// Queues a part of [`Returns`], whose entries are of one hash slot and one kind. They are sent
/// even if the caller leaves, but for renewals that claim slots.
fn give_back(
    returns: &ReturnGroups,
    hash_slot: u16,
    entries: Vec<RefundEntry>,
    deadline: Option<Deadline>,
) -> Result<ReturnReceiver, Error> {
    let (caller, answer) = Caller::new(deadline);
    let kind = entries.first().map_or(ReturnKind::Refund, RefundEntry::kind);
    let work = entries.iter().map(RefundEntry::work).fold(0, u32::saturating_add);
    push(&returns[kind as usize], hash_slot, deadline, work, |batch| batch.push(entries, caller))?;
    Ok(answer)
}

/// Queues a request with one caller, which `add` puts into a load, with at least this `work`.
/// Starts a lane if one is free.
fn push<L: Load>(
    group: &Arc<Group<L>>,
    hash_slot: u16,
    deadline: Option<Deadline>,
    work: u32,
    add: impl FnOnce(&mut L),
) -> Result<(), Error> {
    if group.push(hash_slot, deadline, work, add)? {
        group.context.runtime.spawn(Lane::new(Arc::clone(group), hash_slot).run());
    }
    Ok(())
}
