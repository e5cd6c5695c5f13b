//! The way from what is asked to a decision, for keys and for requests alike.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Algorithm, Check, Key, Policy, Reply, Settled, Source, Store, Times, Timestamp, Verdict,
};

use super::asking::{Asking, Claimed};
use super::permit::Permit;
use super::refusal::Refusal;
use super::wait_queue::WaitQueues;
use crate::blocks::DenialCounts;
use crate::denial::Denial;
use crate::in_flight::{Slot, SlotBook};
use crate::memory::MemoryStore;
use crate::never_fails::NeverFails;
#[cfg(feature = "metrics")]
use crate::observe::metrics::{LayerLimits, Metrics};
use crate::observe::{Decision, Observe, Observers};
use crate::plan::{Ask, Asks, Plan, PolicyRef, RuleNumber};
use crate::reason::Reason;
use crate::report::Report;

/// A plan, the store that decides by it, and who sees the decisions.
#[derive(Clone, Debug)]
pub(crate) struct Decider<S> {
    pub(crate) plan: Arc<Plan>,
    pub(crate) store: S,
    pub(crate) observers: Observers,
    pub(super) queues: WaitQueues<Refusal>,
    pub(super) waits_for_store: bool,
    /// `None` unless a policy is for requests in flight.
    pub(super) slots: Option<Arc<SlotBook<S>>>,
    /// `None` unless a policy blocks keys.
    pub(super) denials: Option<Arc<DenialCounts>>,
}

impl Decider<MemoryStore> {
    pub(super) fn new(plan: Plan, store: MemoryStore) -> Decider<MemoryStore> {
        let plan = Arc::new(plan);
        Decider {
            slots: SlotBook::new(&plan, &store),
            denials: plan.needs().blocks.then(|| Arc::new(DenialCounts::new())),
            plan,
            store,
            observers: Observers::default(),
            queues: WaitQueues::new(),
            waits_for_store: true,
        }
    }
}

impl<S> Decider<S> {
    pub(super) fn with_store<T: Store<Error: NeverFails>>(self, store: T) -> Decider<T> {
        let Decider { plan, observers, waits_for_store, denials, .. } = self;
        let plan = plan.for_other_store();
        let slots = SlotBook::new(&plan, &store);
        Decider { plan, store, observers, queues: WaitQueues::new(), waits_for_store, slots, denials }
    }

    pub(super) fn observe(self, observe: impl Fn(&Decision<'_>) + Send + Sync + 'static) -> Decider<S> {
        let observe: Arc<Observe> = Arc::new(observe);
        Decider { observers: self.observers.and(&self.plan, move |_| Arc::clone(&observe)), ..self }
    }

    #[cfg(feature = "metrics")]
    pub(super) fn metrics(self) -> Decider<S> {
        let limits = LayerLimits::default();
        let observers = self.observers.and(&self.plan, move |plan| {
            let metrics = Metrics::new(plan, &limits);
            Arc::new(move |decision: &Decision<'_>| metrics.record(decision))
        });
        Decider { observers, ..self }
    }

    pub(super) fn wait_for_store(self, wait: bool) -> Decider<S> {
        Decider { queues: WaitQueues::new(), waits_for_store: wait, ..self }
    }

    /// The same plan with the settings of a decider whose plan it replaces.
    pub(super) fn with_settings_of(self, other: &Decider<S>) -> Decider<S> {
        let observers = other.observers.of(&self.plan);
        Decider { observers, waits_for_store: other.waits_for_store, queues: other.queues.clone(), ..self }
    }

    /// Shows observers what was decided about a request that waited `since` then.
    #[inline]
    pub(crate) fn show(&self, asks: &[Ask], verdict: &Verdict, slot: &Slot, since: Option<Timestamp>) {
        self.observers.verdict(&self.plan, asks, verdict, since);
        slot.seen_by(&self.observers);
    }

    /// Shows observers how a charge of this policy has ended.
    pub(super) fn show_settled(&self, policy: &PolicyRef, settled: Settled) {
        self.observers.settled(&self.plan, policy, settled);
    }

    /// The time now, if there are observers, for a request that begins to wait.
    pub(crate) fn waits_since(&self) -> Option<Timestamp> {
        self.observers.now()
    }

    /// The denial of a request without a key that this policy needs, for that reason.
    pub(super) fn no_key(&self, rule: RuleNumber, reason: Reason) -> Denial {
        Denial::new(reason, Report::new(&self.plan, [rule.into()], Verdict::without_statuses(0)))
    }

    /// Shows observers that a policy found no key, if it did not.
    pub(crate) fn shown(&self, asks: Result<Asks, Denial>) -> Result<Asks, Denial> {
        asks.inspect_err(|denial| {
            if let Some(policy) = denial.report().first() {
                self.observers.no_key(&self.plan, self.plan.rule_of(policy));
            }
        })
    }

    pub(crate) fn report(&self, asks: &[Ask], verdict: &Verdict) -> Report {
        Report::new(&self.plan, asks.iter().map(|ask| ask.policy.clone()), verdict.clone())
    }
}

impl<S: Store<Error: NeverFails>> Decider<S> {
    /// Decides by another plan, on the same state.
    pub(super) fn replaced(&self, plan: Plan) -> Decider<S> {
        let plan = Arc::new(plan.after(&self.plan));
        let slots = match &self.slots {
            // Also if no policy needs it any more: it releases what requests hold.
            Some(slots) => Some(slots.replaced(&plan)),
            None => SlotBook::new(&plan, &self.store),
        };
        let new_counts = || plan.needs().blocks.then(|| Arc::new(DenialCounts::new()));
        Decider {
            slots,
            denials: self.denials.clone().or_else(new_counts),
            observers: self.observers.of(&plan),
            // Those who wait keep their places, and ask by the new rules.
            queues: self.queues.clone(),
            store: self.store.clone(),
            waits_for_store: self.waits_for_store,
            plan,
        }
    }

    /// Asks the store once, for a caller that waits until `deadline` at the longest.
    #[inline]
    pub(crate) fn acquire(
        &self,
        asks: &[Ask],
        times: Times,
        deadline: Option<Duration>,
    ) -> Reply<Result<Verdict, S::Error>, S::Acquire> {
        match (asks, deadline) {
            ([], _) => Reply::Now(Ok(Verdict::without_statuses(times.max()).from_source(Source::Rule))),
            ([ask], None) => {
                self.store.acquire(&[Check::new(self.plan.policy(&ask.policy), &ask.key, ask.cost)], times)
            }
            _ => self.acquire_set(asks, times, deadline),
        }
    }

    fn acquire_set(
        &self,
        asks: &[Ask],
        times: Times,
        deadline: Option<Duration>,
    ) -> Reply<Result<Verdict, S::Error>, S::Acquire> {
        let policies: SmallVec<[Cow<'_, Policy>; 4]> = asks
            .iter()
            .map(|ask| {
                let policy = self.plan.policy(&ask.policy);
                deadline.map_or(Cow::Borrowed(policy), |deadline| waiting_until(policy, deadline))
            })
            .collect();
        let set: SmallVec<[Check<'_>; 4]> =
            asks.iter().zip(&policies).map(|(ask, policy)| Check::new(policy, &ask.key, ask.cost)).collect();
        self.store.acquire(&set, times)
    }

    /// Charges what is asked, for a caller that waits until `deadline` at the longest.
    pub(super) async fn charge(&self, asks: Asks, deadline: Option<Duration>) -> Result<Permit, Denial> {
        let reply = self.ask(&asks, deadline);
        let to_count = self.to_count(&asks);
        let decided = self.decided(asks, reply).await;
        decided.inspect_err(|denial| self.count(denial, &to_count))
    }

    /// Whether denials are counted, for blocks.
    pub(super) fn counts_denials(&self) -> bool {
        self.denials.is_some()
    }

    /// What was asked, if its denial may have to be counted.
    pub(super) fn to_count(&self, asks: &Asks) -> Asks {
        if self.counts_denials() { asks.clone() } else { Asks::new() }
    }

    /// Charges more units of one policy. Other rules have decided about the request before.
    pub(super) async fn charge_more(&self, ask: Ask) -> Result<Permit, Denial> {
        let asks: Asks = smallvec![ask];
        // Nothing waits for a place in the queue of a leaky bucket.
        let reply = self.ask(&asks, Some(Duration::ZERO));
        self.decided(asks, reply).await
    }

    /// The decision on what was asked, when the store has answered.
    pub(super) async fn decided(
        &self,
        asks: Asks,
        reply: Reply<Claimed, Asking<S>>,
    ) -> Result<Permit, Denial> {
        let since = if let Reply::Later(_) = reply { self.waits_since() } else { None };
        let (verdict, slot) = reply.wait().await;
        self.show(&asks, &verdict, &slot, since);
        self.permit(asks, &verdict, slot)
    }

    /// The permit or the denial that a verdict means.
    pub(super) fn permit(&self, asks: Asks, verdict: &Verdict, slot: Slot) -> Result<Permit, Denial> {
        let report = self.report(&asks, verdict);
        if verdict.is_granted() { Ok(Permit::new(report, asks, slot)) } else { Err(Denial::of(report)) }
    }

    pub(super) async fn look(&self, asks: &[Ask]) -> Report {
        let verdict = self.acquire(asks, Times::LOOK, None).wait().await.unwrap_or_else(NeverFails::never);
        self.report(asks, &verdict)
    }

    /// Refunds all that a permit was charged.
    pub(super) async fn refund(&self, permit: &Permit) {
        permit.refund(&self.store).await.unwrap_or_else(NeverFails::never);
    }

    /// Forgets what a key has used of the rules in shadow, or of the others.
    pub(super) async fn reset(&self, key: &Key, in_shadow: bool) {
        if key.is_empty() {
            return;
        }
        let policies: SmallVec<[&Policy; 4]> = self.plan.with_states(in_shadow).collect();
        self.store.reset(key, &policies).await.unwrap_or_else(NeverFails::never);
    }
}

/// The same policy for a caller that waits until `deadline` at the longest.
fn waiting_until(policy: &Policy, deadline: Duration) -> Cow<'_, Policy> {
    if policy.longest_wait() <= deadline {
        return Cow::Borrowed(policy);
    }
    // Valid, since a longer wait is.
    let shorter = policy.clone().try_with_algorithm(Algorithm::LeakyBucket { max_wait: deadline });
    shorter.map_or(Cow::Borrowed(policy), Cow::Owned)
}
