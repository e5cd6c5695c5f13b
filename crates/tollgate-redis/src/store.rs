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
    AcquireRequest, Answered, Caller, Commit, Deadline, Pair, RefundEntry, SHADOW_SENT_WITHIN,
    VerdictReceiver,
};
use crate::error::{Cause, Error};
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
    /// The `maxmemory-policy` of the server, if it evicts limits before usage.
    #[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only the log reads it"))]
    eviction: Option<Arc<str>>,
}

impl RedisStore {
    pub(crate) fn new(commit: Commit) -> RedisStore {
        let in_shadow = Some(Arc::new(commit.in_shadow()));
        RedisStore { commit: Arc::new(commit), in_shadow, limit: None, eviction: None }
    }

    /// Warns of this `maxmemory-policy` once a policy tracks usage.
    pub(crate) fn warning_of(self, eviction: Option<Arc<str>>) -> RedisStore {
        RedisStore { eviction, ..self }
    }

    /// Returns how many claims of [slots](tollgate_core::Policy::in_flight) were lost, of all
    /// clones.
    ///
    /// A lost claim was sent and not answered before the connection, or the lease of its slot,
    /// ended. If it was granted, no caller holds the slot until its lease ends.
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

    /// Queues refunds, renewals or resets of one slot.
    fn send(&self, slot: u16, entries: Vec<RefundEntry>) -> Reply<Result<Verdict, Error>, AcquireFuture> {
        let (deadline, end) = self.deadline();
        match self.commit.give_back(slot, entries, deadline) {
            Ok(answer) => Reply::Later(AcquireFuture { answer, end, is_polled: false, order: None }),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    fn give_back(&self, of_slot: Vec<(u16, Vec<RefundEntry>)>) -> Reply<Result<(), Error>, RefundFuture> {
        let mut of_slot = of_slot;
        match of_slot.pop() {
            None => Reply::Now(Ok(())),
            Some((slot, entries)) if of_slot.is_empty() => match self.send(slot, entries) {
                Reply::Now(answer) => Reply::Now(answer.map(drop)),
                Reply::Later(future) => Reply::Later(RefundFuture(future)),
            },
            Some(last) => {
                of_slot.push(last);
                let commit = Arc::clone(&self.commit);
                Reply::Later(RefundFuture(
                    self.in_a_task(async move { Ok(multi_slot::give_back(&commit, of_slot).await?.into()) }),
                ))
            }
        }
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

/// The most renewals in a request. Group commit bounds the work of a call by requests.
const RENEWALS_OF_A_REQUEST: usize = 128;

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
        #[cfg(feature = "tracing")]
        if let Some(eviction) = self.eviction.as_deref().filter(|_| policy.tracks_usage()) {
            tracing::warn!(
                policy = policy.name(),
                "redis evicts limits before tracked usage when its memory is full: set maxmemory-policy to \
                 volatile-lru instead of {eviction}"
            );
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
        let mut of_slot: Vec<(u16, Vec<RefundEntry>)> = Vec::new();
        for grant in grants.iter().filter(|grant| grant.units > 0) {
            let key = names.bounded(grant.key);
            let slot = self.commit.slot(&key);
            let args = ScriptArgs::new(grant.policy, grant.units, names.log);
            let entry = RefundEntry::refund(names, &key, args, grant.stamp);
            match of_slot.iter_mut().find(|(of, _)| *of == slot) {
                Some((_, entries)) => entries.push(entry),
                None => of_slot.push((slot, vec![entry])),
            }
        }
        self.give_back(of_slot)
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Error> {
        // Those of other policies have no lease.
        let mut renewals = vec![Renewal::Held; grants.len()];
        let in_flight = grants.iter().enumerate().filter(|(_, grant)| grant.policy.is_in_flight());
        let names = &self.commit.context.names;
        let mut of_slot: BTreeMap<u16, Vec<(usize, RefundEntry)>> = BTreeMap::new();
        for (at, grant) in in_flight {
            let key = names.bounded(grant.key);
            let entry = RefundEntry::renewal(names, &key, grant.policy, grant.stamp);
            of_slot.entry(self.commit.slot(&key)).or_default().push((at, entry));
        }
        // All are queued before the first is awaited, so that few calls carry them.
        let mut asked = Vec::new();
        for (slot, mut entries) in of_slot {
            while !entries.is_empty() {
                let rest = entries.split_off(entries.len().min(RENEWALS_OF_A_REQUEST));
                let (places, entries): (Vec<usize>, Vec<RefundEntry>) =
                    mem::replace(&mut entries, rest).into_iter().unzip();
                asked.push((places, self.send(slot, entries)));
            }
        }
        let (mut failure, mut is_answered) = (None, asked.is_empty());
        for (places, reply) in asked {
            let answer = reply.wait().await;
            is_answered |= answer.is_ok();
            for (at, place) in places.into_iter().enumerate() {
                renewals[place] = match &answer {
                    Ok(verdict) if verdict.each()[at].remaining() > 0 => Renewal::Held,
                    Ok(_) => Renewal::Lost,
                    Err(_) => Renewal::Unanswered,
                };
            }
            failure = failure.or(answer.err());
        }
        match failure {
            Some(error) if !is_answered => Err(error),
            _ => Ok(renewals),
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Error>, RefundFuture> {
        if policies.is_empty() {
            return Reply::Now(Ok(()));
        }
        let names = &self.commit.context.names;
        let key = names.bounded(key);
        let entries = policies.iter().flat_map(|policy| RefundEntry::resets(names, &key, policy));
        self.give_back(vec![(self.commit.slot(&key), entries.collect())])
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
