//! The store itself.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate_core::{
    Check, Grant, Key, Policy, PolicyError, RecentUsage, Renewal, Reply, SentClaims, Store, Times,
    UsageError, Verdict,
};

use crate::commit::{
    AcquireRequest, Answered, Caller, Commit, Deadline, Pair, RefundEntry, Returns, SHADOW_SENT_WITHIN,
    VerdictReceiver,
};
use crate::error::{Cause, Error};
use crate::eviction::Eviction;
use crate::set::{self, PairOrder, multi_slot};
use crate::usage;
use crate::wire::args::ScriptArgs;
use crate::wire::script::Part;

/// A store in Redis or Valkey, shared by all processes that connect to it. See the [crate's
/// documentation](crate).
///
/// It is a handle: clones share connections.
#[derive(Clone)]
pub struct RedisStore {
    commit: Arc<Commit>,
    /// `None` if this handle is in shadow.
    in_shadow: Option<Arc<Commit>>,
    /// How long callers of this handle wait for an answer.
    limit: Option<Duration>,
    /// How the server evicts limits in use, if it does.
    eviction: Option<Arc<Eviction>>,
}

impl RedisStore {
    pub(crate) fn new(commit: Commit) -> RedisStore {
        let in_shadow = Some(Arc::new(commit.in_shadow()));
        RedisStore { commit: Arc::new(commit), in_shadow, limit: None, eviction: None }
    }

    /// Warns of this once a policy relies on what is evicted.
    pub(crate) fn warning_of(self, eviction: Option<Eviction>) -> RedisStore {
        RedisStore { eviction: eviction.map(Arc::new), ..self }
    }

    /// Returns how many claims of [slots](tollgate_core::Policy::in_flight) were lost, of all
    /// clones.
    ///
    /// A lost claim was sent and not answered before the connection, or the time to live of its
    /// slot, ended. If it was granted, no caller holds the slot until its time to live ends.
    pub fn claims_lost(&self) -> u64 {
        self.commit.claims.counts.lost()
    }

    pub(crate) fn commit(&self) -> &Commit {
        &self.commit
    }

    fn ask(
        &self,
        slot: u16,
        request: AcquireRequest<'_>,
        order: Option<PairOrder>,
    ) -> Reply<Result<Verdict, Error>, AcquireFuture> {
        // First: it panics where there are no timers, and then nothing has been asked.
        let (deadline, end) =
            if self.commit.is_in_shadow { self.deadline_in_shadow() } else { self.deadline() };
        match self.commit.acquire(slot, request, deadline) {
            Ok(answer) => Reply::Later(AcquireFuture { answer, end, is_polled: false, order }),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    /// Queues a part of [`Returns`].
    fn send(&self, slot: u16, entries: Vec<RefundEntry>) -> Reply<Result<Verdict, Error>, AcquireFuture> {
        let (deadline, end) = self.deadline();
        match self.commit.give_back(slot, entries, deadline) {
            Ok(answer) => Reply::Later(AcquireFuture { answer, end, is_polled: false, order: None }),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    fn give_back(&self, returns: Returns) -> Reply<Result<(), Error>, RefundFuture> {
        let mut returns = returns;
        if returns.len() > 1 {
            let commit = Arc::clone(&self.commit);
            return Reply::Later(RefundFuture(
                self.in_a_task(async move { Ok(multi_slot::give_back(&commit, returns).await?.into()) }),
            ));
        }
        match returns.send_next(|slot, part| self.send(slot, part)).and_then(|mut sent| sent.pop()) {
            None => Reply::Now(Ok(())),
            Some(Reply::Now(answer)) => Reply::Now(answer.map(drop)),
            Some(Reply::Later(future)) => Reply::Later(RefundFuture(future)),
        }
    }

    /// Renews the slots of the grants at these places, and notes what became of each. Returns
    /// whether any call was answered, and the first failure.
    async fn renew_at(
        &self,
        grants: &[Grant<'_>],
        places: impl Iterator<Item = usize>,
        claims: bool,
        renewals: &mut [Renewal],
    ) -> (bool, Option<Error>) {
        let names = &self.commit.context.names;
        let mut of_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for at in places {
            of_slot.entry(self.commit.slot(&names.bounded(grants[at].key))).or_default().push(at);
        }
        // All are queued before the first is awaited, so that few calls carry them.
        let mut asked = Vec::new();
        for (slot, places) in &of_slot {
            for places in places.chunks(RENEWALS_OF_A_CALL) {
                let entry = |at: &usize| {
                    let Grant { policy, key, stamp, .. } = &grants[*at];
                    RefundEntry::renewal(names, &names.bounded(key), policy, *stamp, claims)
                };
                asked.push((places, self.send(*slot, places.iter().map(entry).collect())));
            }
        }
        let (mut is_answered, mut failure) = (asked.is_empty(), None);
        for (places, reply) in asked {
            let answer = reply.wait().await;
            is_answered |= answer.is_ok();
            for (at, place) in places.iter().enumerate() {
                renewals[*place] = match &answer {
                    Ok(verdict) if verdict.each()[at].remaining() > 0 => Renewal::Held,
                    Ok(_) => Renewal::Lost,
                    Err(_) => Renewal::Unanswered,
                };
            }
            failure = failure.or(answer.err());
        }
        (is_answered, failure)
    }

    /// Runs several steps to their end in the store's runtime, so that a caller that leaves does
    /// not leave them half done.
    fn in_a_task(
        &self,
        steps: impl Future<Output = Result<Answered, Error>> + Send + 'static,
    ) -> AcquireFuture {
        let (deadline, end) = self.deadline();
        let (caller, answer) = Caller::new(deadline);
        let context = Arc::clone(&self.commit.context);
        self.commit.context.runtime.spawn(async move { caller.notify_in_time(&context.waits, steps).await });
        AcquireFuture { answer, end, is_polled: false, order: None }
    }

    /// The deadline of a caller, and its own timer if it is in another runtime. There it always has
    /// one, since the store's runtime may not be driven any more.
    fn deadline(&self) -> (Option<Deadline>, Option<Timer>) {
        let context = &self.commit.context;
        let is_elsewhere = || Handle::try_current().is_ok_and(|here| here.id() != context.runtime.id());
        let limit = self.limit.or_else(|| is_elsewhere().then_some(context.longest_wait_elsewhere));
        let Some(limit) = limit else { return (None, None) };
        // Rounded up: neither the time nor the limit need be whole microseconds.
        let limit = limit.saturating_add(Duration::from_micros(2));
        let asked = self.commit.context.waits.now();
        let deadline = Deadline { asked, until: asked.saturating_add(limit) };
        (Some(deadline), self.end_elsewhere(limit))
    }

    /// The deadline by which a check in shadow is sent. Then it is answered, however late.
    fn deadline_in_shadow(&self) -> (Option<Deadline>, Option<Timer>) {
        let context = &self.commit.context;
        let asked = context.waits.now();
        let deadline = Deadline { asked, until: asked.saturating_add(SHADOW_SENT_WITHIN) };
        (Some(deadline), self.end_elsewhere(context.longest_wait_elsewhere))
    }

    /// The timer of a caller in another runtime, since the store's runtime may be held up while the
    /// caller's is not. Notifies callers like the task that watches deadlines.
    fn end_elsewhere(&self, limit: Duration) -> Option<Timer> {
        let runtime = &self.commit.context.runtime;
        let here = Handle::try_current().ok()?;
        if here.id() == runtime.id() {
            return None;
        }
        let (sleep, commit) = (sleep(limit), Arc::clone(&self.commit));
        Some(Box::pin(async move {
            sleep.await;
            commit.notify_overdue();
        }))
    }
}

/// The most renewals in a call. As many are a request, so that they share a place in the queue.
const RENEWALS_OF_A_CALL: usize = 100;

impl Store for RedisStore {
    type Error = Error;
    type Acquire = AcquireFuture;
    type Done = RefundFuture;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Error>, AcquireFuture> {
        let (pairs, keys, order) = set::pairs(set, &self.commit.context.names);
        let is_slot = |pair: &Pair<'_>| pair.policy.is_in_flight() && pair.cost > 0;
        let is_claim = times.max() > 0 && pairs.iter().any(is_slot);
        let slots: SmallVec<[u16; 4]> = keys.iter().map(|key| self.commit.slot(key)).collect();
        match slots[..] {
            [] => Reply::Now(Ok(Verdict::without_statuses(times.max()))),
            [slot, ref others @ ..] if others.iter().all(|other| *other == slot) => {
                let order = (order.len() != pairs.len()).then_some(order);
                self.ask(slot, AcquireRequest { pairs, keys, times, is_claim }, order)
            }
            _ => {
                let log = self.commit.context.names.log;
                let parts = multi_slot::parts(&pairs, &keys, &slots, log, is_claim);
                let commit = Arc::clone(&self.commit);
                let steps = async move { multi_slot::acquire(&commit, &parts, times).await };
                Reply::Later(AcquireFuture { order: Some(order), ..self.in_a_task(steps) })
            }
        }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        if let Some(eviction) = &self.eviction {
            eviction.warn_of(policy);
        }
        let part = Part::find(policy, self.commit.context.names.log);
        part.map(drop).ok_or(PolicyError::Unsupported)
    }

    fn end_waits_after(&mut self, limit: Duration) -> bool {
        self.limit = Some(self.limit.map_or(limit, |shorter| shorter.min(limit)));
        true
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        Some(&self.commit.claims.counts)
    }

    fn patient(&self) -> RedisStore {
        RedisStore { limit: None, ..self.clone() }
    }

    /// Its keys have names of their own, which end with `~shadow`. Its checks are sent behind those
    /// of other handles, in calls of at most 1 ms. One that was not sent within 50 ms fails, and
    /// one that was sent is answered however late.
    fn in_shadow(&self) -> RedisStore {
        match &self.in_shadow {
            Some(commit) => RedisStore { commit: Arc::clone(commit), in_shadow: None, ..self.clone() },
            None => self.clone(),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Error>, RefundFuture> {
        let names = &self.commit.context.names;
        let entry = |grant: &Grant<'_>| {
            let key = names.bounded(grant.key);
            let args = ScriptArgs::new(grant.policy, grant.units, names.log);
            (self.commit.slot(&key), RefundEntry::refund(names, &key, args, grant.stamp))
        };
        self.give_back(grants.iter().filter(|grant| grant.units > 0).map(entry).collect())
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Error> {
        // Those of other policies have no time to live.
        let mut renewals = vec![Renewal::Held; grants.len()];
        let slots = (0..grants.len()).filter(|at| grants[*at].policy.is_in_flight());
        let (is_answered, failure) = self.renew_at(grants, slots, false, &mut renewals).await;
        // A renewal that is executed late, after its slot was released, must not claim it again. So
        // only a holder that still waits does, once it knows that the slot is not held.
        let lost: Vec<usize> = (0..grants.len()).filter(|at| renewals[*at] == Renewal::Lost).collect();
        self.renew_at(grants, lost.into_iter(), true, &mut renewals).await;
        match failure {
            Some(error) if !is_answered => Err(error),
            _ => Ok(renewals),
        }
    }

    fn node_of(&self, key: &Key) -> u64 {
        let context = &self.commit.context;
        match context.link.has_slots() {
            true => context.link.node(self.commit.slot(&context.names.bounded(key))),
            false => 0,
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Error>, RefundFuture> {
        if policies.is_empty() {
            return Reply::Now(Ok(()));
        }
        let names = &self.commit.context.names;
        let key = names.bounded(key);
        let entries = policies.iter().flat_map(|policy| RefundEntry::resets(names, &key, policy));
        let slot = self.commit.slot(&key);
        self.give_back(entries.map(|entry| (slot, entry)).collect())
    }
}

impl RecentUsage for RedisStore {
    async fn recent_usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        let key = self.commit.context.names.bounded(key);
        usage::of_interval(&self.commit.context, self.commit.slot(&key), (policy, &key), interval).await
    }
}

/// The end of the wait of a caller in another runtime.
type Timer = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A verdict of a [`RedisStore`], on its way.
///
/// A caller that drops it before it was sent is charged nothing. Once it was sent, it is decided
/// and may be charged. A set over several slots of a Cluster is started at once and brought to its
/// end. What a set with a [slot](tollgate_core::Policy::in_flight) is granted then is refunded as
/// soon as the answer comes.
pub struct AcquireFuture {
    answer: VerdictReceiver,
    /// `None` in the store's runtime, where a task watches deadlines.
    end: Option<Timer>,
    is_polled: bool,
    /// Which status belongs to which check, if the set names a pair twice or is spread over slots.
    order: Option<PairOrder>,
}

impl Future for AcquireFuture {
    type Output = Result<Verdict, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let answer = match Pin::new(&mut this.answer).poll(cx) {
            Poll::Ready(answer) => answer.unwrap_or_else(|_| Err(Cause::Stopped.into())),
            Poll::Pending => {
                let Some(end) = &mut this.end else { return Poll::Pending };
                if !mem::replace(&mut this.is_polled, true) {
                    // A correction of a charge is polled once where its runtime may have stopped,
                    // which has no timer then.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                ready!(end.as_mut().poll(cx));
                // By now the answer is there, unless the set is over several slots.
                this.answer.try_recv().unwrap_or_else(|_| Err(Cause::Late.into()))
            }
        };
        let verdict = answer?.accept();
        Poll::Ready(Ok(match &this.order {
            Some(order) => set::in_order(&verdict, order),
            None => verdict,
        }))
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcquireFuture(..)")
    }
}

/// A refund or a reset of a [`RedisStore`], on its way, whether or not it is awaited.
pub struct RefundFuture(AcquireFuture);

impl Future for RefundFuture {
    type Output = Result<(), Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map_ok(drop)
    }
}

impl fmt::Debug for RefundFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefundFuture(..)")
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisStore(..)")
    }
}
