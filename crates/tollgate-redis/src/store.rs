//! The store itself.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;
use tollgate_core::{
    Check, End, Grant, Key, Policy, PolicyError, RecentUsage, RenewalReport, Reply, SentClaims, Store, Times,
    UsageError, Verdict,
};

use crate::answer_in_time::{AnswerInTime, Timer};
use crate::commit::{
    AcquireRequest, Answered, Caller, Commit, Deadline, Pair, RefundEntry, Returns, SHADOW_SENT_WITHIN,
};
use crate::error::{Cause, Error};
use crate::eviction::Eviction;
use crate::renewals::{self, RenewalAnswer};
use crate::set;
use crate::set::several_hash_slots::{self, HashSlotPart};
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
        hash_slot: u16,
        request: AcquireRequest<'_>,
        order: Option<Box<[usize]>>,
    ) -> Reply<Result<Verdict, Error>, AcquireFuture> {
        // First: it panics where there are no timers, and then nothing has been asked.
        let (deadline, end) =
            if self.commit.is_in_shadow { self.deadline_in_shadow() } else { self.deadline() };
        match self.commit.acquire(hash_slot, request, deadline) {
            Ok(answer) => Reply::Later(AcquireFuture { answer: AnswerInTime::new(answer, end), order }),
            Err(error) => Reply::Now(Err(error)),
        }
    }

    /// Queues a part of [`Returns`].
    pub(crate) fn send(&self, hash_slot: u16, entries: Vec<RefundEntry>) -> Result<RenewalAnswer, Error> {
        let (deadline, end) = self.deadline();
        Ok(AnswerInTime::new(self.commit.give_back(hash_slot, entries, deadline)?, end))
    }

    fn give_back(&self, mut returns: Returns) -> impl End<(), Error> + use<> {
        let commit = Arc::clone(&self.commit);
        let (mut sent, mut steps) = (None, None);
        if returns.len() > 1 {
            steps =
                Some(self.in_a_task(async move { several_hash_slots::give_back(&commit, returns).await }));
        } else {
            sent = returns
                .send_next(|hash_slot, part| self.send(hash_slot, part))
                .and_then(|mut sent| sent.pop());
        }
        async move {
            match (sent, steps) {
                (Some(sent), _) => sent?.await.map(drop),
                (None, Some(steps)) => steps.await,
                (None, None) => Ok(()),
            }
        }
    }

    /// Runs several steps to their end in the store's runtime, so that a caller that leaves does
    /// not leave them half done.
    fn in_a_task<A: Send + 'static>(
        &self,
        steps: impl Future<Output = Result<A, Error>> + Send + 'static,
    ) -> AnswerInTime<A> {
        let (deadline, end) = self.deadline();
        let (caller, answer) = Caller::new(deadline);
        let context = Arc::clone(&self.commit.context);
        self.commit.context.runtime.spawn(async move {
            caller.notify_in_time(&context.waits, steps, |_| Cause::Late.into()).await;
        });
        AnswerInTime::new(answer, end)
    }

    /// Acquires a set of several hash slots in the store's runtime. It is charged to its end, also
    /// if the caller leaves.
    fn acquire_parts(&self, parts: Vec<HashSlotPart>, times: Times) -> AnswerInTime<Answered> {
        let is_in_shadow = self.commit.is_in_shadow;
        let (deadline, end) = if is_in_shadow { self.deadline_in_shadow() } else { self.deadline() };
        let (caller, answer) = Caller::new(deadline.filter(|_| !is_in_shadow));
        let commit = Arc::clone(&self.commit);
        self.commit.context.runtime.spawn(async move {
            // The look ends by itself at the deadline.
            match several_hash_slots::looked(&commit, &parts, times, deadline).await {
                Some(answer) => caller.notify(answer),
                None => {
                    let began = commit.context.waits.now();
                    let hash_slots = several_hash_slots::hash_slots(&parts);
                    let steps = several_hash_slots::charge(&commit, &parts, times);
                    let why = |deadline| commit.why_late(&hash_slots, began, deadline);
                    caller.notify_in_time(&commit.context.waits, steps, why).await;
                }
            }
        });
        AnswerInTime::new(answer, end)
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

impl Store for RedisStore {
    type Error = Error;
    type Acquire = AcquireFuture;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Error>, AcquireFuture> {
        let (pairs, keys, order) = set::pairs(set, &self.commit.context.names);
        let is_slot = |pair: &Pair<'_>| pair.policy.is_in_flight() && pair.cost > 0;
        let is_claim = times.max() > 0 && pairs.iter().any(is_slot);
        let hash_slot = |key| self.commit.hash_slot(key);
        let Some(first) = keys.first().map(hash_slot) else {
            return Reply::Now(Ok(Verdict::without_statuses(times.max())));
        };
        if keys[1..].iter().all(|key| hash_slot(key) == first) {
            let order = (order.len() != pairs.len()).then(|| order.into_boxed_slice());
            return self.ask(first, AcquireRequest { pairs: &pairs, keys, times, is_claim }, order);
        }
        let hash_slots: Vec<u16> = keys.iter().map(hash_slot).collect();
        let log = self.commit.context.names.log;
        let parts = several_hash_slots::parts(&pairs, &keys, &hash_slots, log, is_claim);
        let (answer, order) = (self.acquire_parts(parts, times), Some(order.into_boxed_slice()));
        Reply::Later(AcquireFuture { answer, order })
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        if let Some(eviction) = &self.eviction {
            eviction.warn_of(policy);
        }
        let part = Part::find(policy, self.commit.context.names.log);
        part.map(drop).ok_or(PolicyError::Unsupported)
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> RedisStore {
        RedisStore { limit: deadline, ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.limit
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        Some(&self.commit.claims.counts)
    }

    /// Its keys have names of their own, which end with `~shadow`. Its checks are sent behind those
    /// of other handles, in calls of at most 1 ms. One that was not sent within 50 ms fails, and
    /// one that was sent is answered however late. Of a set over several hash slots, that is its
    /// look.
    fn in_shadow(&self) -> RedisStore {
        match &self.in_shadow {
            Some(commit) => RedisStore { commit: Arc::clone(commit), in_shadow: None, ..self.clone() },
            None => self.clone(),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Error> + use<> {
        let names = &self.commit.context.names;
        let entry = |grant: &Grant<'_>| {
            let key = names.bounded(grant.key);
            let args = ScriptArgs::new(grant.policy, grant.units, names.log);
            (self.commit.hash_slot(&key), RefundEntry::refund(names, &key, args, grant.stamp))
        };
        self.give_back(grants.iter().filter(|grant| grant.units > 0).map(entry).collect())
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Error> + use<> {
        let store = self.clone();
        renewals::renew(&self.commit, grants, &report, move |hash_slot, entries| {
            store.send(hash_slot, entries)
        })
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Error> + use<> {
        let names = &self.commit.context.names;
        let key = names.bounded(key);
        let entries = policies.iter().flat_map(|policy| RefundEntry::resets(names, &key, policy));
        let hash_slot = self.commit.hash_slot(&key);
        self.give_back(entries.map(|entry| (hash_slot, entry)).collect())
    }
}

impl RecentUsage for RedisStore {
    async fn recent_usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        let key = self.commit.context.names.bounded(key);
        usage::of_interval(&self.commit.context, self.commit.hash_slot(&key), (policy, &key), interval).await
    }
}

/// A verdict of a [`RedisStore`], on its way.
///
/// A caller that drops it before it was sent is charged nothing. Once it was sent, it is decided
/// and may be charged. A set over several hash slots of a Cluster is started at once, and brought
/// to its end once all of them have room. What a set with a
/// [slot](tollgate_core::Policy::in_flight) is granted then is refunded as soon as the answer
/// comes.
pub struct AcquireFuture {
    answer: AnswerInTime<Answered>,
    /// Which status belongs to which check, if the set names a pair twice or is spread over hash
    /// slots.
    order: Option<Box<[usize]>>,
}

impl Future for AcquireFuture {
    type Output = Result<Verdict, Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let verdict = ready!(Pin::new(&mut self.answer).poll(cx))?.accept();
        Poll::Ready(Ok(match &self.order {
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

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisStore(..)")
    }
}
