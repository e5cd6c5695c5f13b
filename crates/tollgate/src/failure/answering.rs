//! A store that always answers: while the inner store fails, a substitute decides.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::timeout_at;
use tollgate_core::{
    BlockStart, Check, End, Grant, Key, Policy, PolicyError, RenewalReport, Reply, SentClaims, Settled,
    Share, Source, Store, StoreError, Times, Unsent, Verdict,
};

use super::by_share::ByShare;
use super::event::Event;
use super::fixed::Fixed;
use super::kept::{self, CorrectionCounts, KeptCorrections, ToKeep};
use super::outage::Outage;
use super::substitute::{GrantSet, Substitute};
use crate::time::timer_after;

/// A [`Store`] that always answers. While the inner store fails, `F` decides: [`Fixed`] under
/// [`fail_open`](crate::StoreExt::fail_open) and [`fail_closed`](crate::StoreExt::fail_closed),
/// [`ByShare`] under [`fall_back_to`](crate::StoreExt::fall_back_to).
#[derive(Clone, Debug)]
pub struct Answering<S, F> {
    store: S,
    substitute: F,
    outage: Outage,
    /// What the store has not executed, if that is kept.
    kept: Option<Arc<KeptCorrections<S>>>,
    /// How many corrections failed, and were not kept.
    lost: Arc<AtomicU64>,
}

impl<S: Store> Answering<S, Fixed> {
    pub(crate) fn open(store: S) -> Answering<S, Fixed> {
        let outage = Outage::new("requests pass without limit", Source::FailurePolicy);
        Answering { store, substitute: Fixed::OPEN, outage, kept: None, lost: Arc::default() }
    }

    pub(crate) fn closed(store: S) -> Answering<S, Fixed> {
        let outage = Outage::new("requests are refused", Source::FailurePolicy);
        Answering { store, substitute: Fixed::CLOSED, outage, kept: None, lost: Arc::default() }
    }
}

impl<S: Store, F: Store<Error = Infallible>> Answering<S, ByShare<F>> {
    pub(crate) fn by_share(store: S, fallback: F, share: Share) -> Answering<S, ByShare<F>> {
        let outage = Outage::new("a share of each quota is granted here", Source::Fallback);
        Answering {
            store,
            substitute: ByShare::new(fallback, share),
            outage,
            kept: None,
            lost: Arc::default(),
        }
    }

    /// Grants at least one unit to each key while the store fails. Without this, a policy of which
    /// the share is less than one unit refuses all requests then.
    ///
    /// With more nodes than units of a quota, the nodes together exceed it: each grants a key one
    /// unit in each window.
    ///
    /// ```
    /// use tollgate::store::BoxStore;
    /// use tollgate::{MemoryStore, Share, StoreExt};
    /// # let redis = MemoryStore::new();
    ///
    /// // Each of ten nodes grants a tenth of every quota, but of two a day at least one.
    /// let store = redis.fall_back_to(MemoryStore::new(), Share::new(1, 10)).at_least_one();
    /// # let _: BoxStore<_> = store.boxed();
    /// ```
    #[must_use]
    pub fn at_least_one(self) -> Answering<S, ByShare<F>> {
        Answering { substitute: self.substitute.at_least_one(), ..self }
    }
}

impl<S: Store, F: Substitute> Answering<S, F> {
    /// Calls `observe` for every [`Event::Decided`] and [`Event::Failed`], within the request: it
    /// must not block. Several observers may be added. Call this before cloning: existing clones
    /// keep their observers.
    #[must_use]
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> Answering<S, F> {
        Answering { outage: self.outage.observe(observe), ..self }
    }

    /// Keeps corrections that the store has not executed, at most that many, and sends them once it
    /// answers again: refunds, releases of [slots](crate::Slot), and units that were used beyond
    /// their estimate. Without this, an outage forgives what it was not asked to charge, refunds
    /// stay charged, and slots are held until their time to live ends.
    ///
    /// Only corrections of what the store itself has granted are kept, and none that it may have
    /// executed. Charges of a policy and key that are near in time merge, and so do refunds of one
    /// grant. Each is dropped about when it changes nothing any more: once its window is over by
    /// the clock of this process, or its units are refilled. Beyond `most`, new ones are refused,
    /// as if they were not kept. A [reset](crate::Limiter::reset) forgets those of its key, unless
    /// the store does not execute it.
    ///
    /// They are kept in memory: a process that ends loses them. A correction takes about 200 bytes.
    /// The store is asked again after 100 ms, and every two seconds at the latest, in a task of the
    /// tokio runtime, which needs a timer. Call this before cloning.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{CircuitBreaker, MemoryStore, RateLimitLayer, Share, StoreExt};
    /// # use tollgate::Quota;
    ///
    /// # let redis = MemoryStore::new();
    /// let store = redis
    ///     .timeout(Duration::from_millis(250))
    ///     .circuit_breaker(CircuitBreaker::default())
    ///     .fall_back_to(MemoryStore::new(), Share::new(1, 3))
    ///     .keep_corrections(10_000);
    /// let kept = store.clone();
    /// # let _ =
    /// RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
    /// // Later, for a gauge:
    /// assert_eq!(kept.kept_corrections().waiting, 0);
    /// ```
    #[must_use]
    pub fn keep_corrections(self, most: usize) -> Answering<S, F> {
        Answering { kept: Some(KeptCorrections::new(self.store.clone(), most)), ..self }
    }

    /// Returns what became of the corrections that are [kept](Answering::keep_corrections): all
    /// zero if none are. Clones share them.
    pub fn kept_corrections(&self) -> CorrectionCounts {
        self.kept.as_ref().map(|kept| kept.counts()).unwrap_or_default()
    }

    /// Splits grants into those of the substitute and those of the store.
    fn by_maker<'a>(&self, grants: &[Grant<'a>]) -> (GrantSet<'a>, GrantSet<'a>) {
        grants.iter().copied().partition(|grant| self.substitute.made(grant.share))
    }

    /// Corrects grants of the store. If it fails, what became of them may be unknown.
    fn settle_in_store(
        &self,
        grants: &[Grant<'_>],
        total: u64,
    ) -> impl Future<Output = Settled> + Send + use<S, F> {
        let (settled, outage) = (self.store.settle(grants, total), self.outage.clone());
        let lost = Arc::clone(&self.lost);
        let (unchanged, unanswered) = (Settled::unchanged(grants, total), Settled::unanswered(grants, total));
        let may_be_kept = Settled::kept(grants, total);
        let to_keep = ToKeep::new(self.kept.as_ref(), || kept::corrections(grants, total));
        async move {
            let answer = settled.await;
            outage.record(&answer);
            match answer {
                Ok(settled) => settled,
                Err(error) if error.executed_nothing() && to_keep.keep() => may_be_kept,
                Err(error) => {
                    lost.fetch_add(1, Ordering::Relaxed);
                    if error.executed_nothing() { unchanged } else { unanswered }
                }
            }
        }
    }

    /// Refunds grants of the store.
    fn refund_in_store(&self, grants: &[Grant<'_>]) -> impl Future<Output = ()> + Send + use<S, F> {
        let (refunded, outage) = (self.store.refund(grants), self.outage.clone());
        let lost = Arc::clone(&self.lost);
        let to_keep = ToKeep::new(self.kept.as_ref(), || kept::refunds(grants));
        async move {
            let answer = refunded.await;
            outage.record(&answer);
            if let Err(error) = answer
                && !(error.executed_nothing() && to_keep.keep())
            {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl<S: Store, F: Substitute> Store for Answering<S, F> {
    type Error = Infallible;
    type Acquire = PendingAnswer<S::Acquire, F>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let stage = match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                self.outage.record_decision(&answer);
                match answer.map_or_else(|_| self.substitute.decide(set, times), Reply::Now) {
                    Reply::Now(verdict) => return Reply::Now(Ok(verdict)),
                    Reply::Later(future) => AnswerStage::Substitute(future),
                }
            }
            Reply::Later(asked) => AnswerStage::Store { asked, kept: self.substitute.keep(set, times) },
        };
        Reply::Later(PendingAnswer {
            stage,
            substitute: self.substitute.clone(),
            outage: self.outage.clone(),
        })
    }

    /// Refunds each grant where it was made.
    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Infallible> + use<S, F> {
        let (of_substitute, of_store) = self.by_maker(grants);
        let first = (!of_substitute.is_empty()).then(|| self.substitute.refund(&of_substitute));
        let second = (!of_store.is_empty()).then(|| self.refund_in_store(&of_store));
        async move {
            if let Some(first) = first {
                first.await?;
            }
            if let Some(second) = second {
                second.await;
            }
            Ok(())
        }
    }

    /// Corrects each grant where it was made. An outage between two grants of one request spreads
    /// them: then the older ones are corrected only if the newer ones do not suffice.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, Infallible> + use<S, F> {
        let (of_substitute, of_store) = self.by_maker(grants);
        let is_of_substitute = grants.last().is_some_and(|newest| self.substitute.made(newest.share));
        let older = if is_of_substitute { &of_store } else { &of_substitute };
        let of_older = Settled::unchanged(older, 0).charged.min(total);
        let of_newer = total - of_older;
        let (by_substitute, by_store) =
            if is_of_substitute { (of_newer, of_older) } else { (of_older, of_newer) };
        let by_substitute =
            (!of_substitute.is_empty()).then(|| self.substitute.settle(&of_substitute, by_substitute));
        let asks_store = !of_store.is_empty() || !is_of_substitute;
        let by_store = asks_store.then(|| self.settle_in_store(&of_store, by_store));
        async move {
            let first = match by_substitute {
                Some(settled) => settled.await?,
                None => Settled::default(),
            };
            let second = match by_store {
                Some(settled) => settled.await,
                None => Settled::default(),
            };
            let newest = if is_of_substitute { first } else { second };
            let (charged, unknown) = (first.charged + second.charged, first.unknown + second.unknown);
            Ok(Settled { charged, unknown, kept: second.kept, ..newest })
        }
    }

    /// Renews each slot where it was granted.
    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), Infallible> + use<S, F> {
        let (of_substitute, of_store) = self.by_maker(grants);
        let (first, second): (Vec<usize>, Vec<usize>) =
            (0..grants.len()).partition(|at| self.substitute.made(grants[*at].share));
        let first = self.substitute.renew(&of_substitute, reported_at(first, Arc::clone(&report)));
        let renew = || self.store.renew(&of_store, reported_at(second, report));
        let second = recorded(self.outage.clone(), (!of_store.is_empty()).then(renew));
        async move {
            first.await?;
            second.await;
            Ok(())
        }
    }

    /// Blocks a key where it was denied.
    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, Infallible> + use<S, F> {
        let is_of_substitute = self.substitute.made(share);
        let first = is_of_substitute.then(|| self.substitute.block(policy, key));
        let second = (!is_of_substitute).then(|| self.store.block(policy, key, share));
        let outage = self.outage.clone();
        async move {
            if let Some(first) = first {
                return first.await;
            }
            let Some(second) = second else { return Ok(BlockStart::Dropped) };
            let answer = second.await;
            outage.record(&answer);
            Ok(answer.unwrap_or(BlockStart::Dropped))
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Infallible> + use<S, F> {
        let forgotten = self.kept.clone().map(|kept| (kept.forget(key, policies), kept));
        let first = self.substitute.reset(key, policies);
        let (second, outage) = (self.store.reset(key, policies), self.outage.clone());
        async move {
            first.await?;
            let answer = second.await;
            outage.record(&answer);
            if let Some((forgotten, kept)) = forgotten
                && answer.is_err_and(|error| error.executed_nothing())
            {
                kept.wait_again(forgotten);
            }
            Ok(())
        }
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> Answering<S, F> {
        Answering { store: self.store.with_deadline(deadline), ..self.clone() }
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    /// Nothing watches it: what is dropped in shadow is no outage.
    fn in_shadow(&self) -> Answering<S, F> {
        let (store, substitute) = (self.store.in_shadow(), self.substitute.in_shadow());
        Answering { store, substitute, outage: Outage::unwatched(), kept: None, lost: Arc::default() }
    }

    /// Waits until no correction is [kept](Answering::keep_corrections) any more, and closes both.
    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S, F> {
        let (until, store, kept) = (timer_after(limit), self.store.close(limit), self.kept.clone());
        let substitute = self.substitute.close(limit);
        let (lost, before) = (Arc::clone(&self.lost), self.lost.load(Ordering::Relaxed));
        let unknown = self.kept_corrections().unknown;
        async move {
            if let Some(kept) = &kept {
                let _ = timeout_at(until, kept.sent()).await;
            }
            let mut unsent = store.await;
            unsent += substitute.await;
            unsent.corrections += lost.load(Ordering::Relaxed) - before;
            if let Some(kept) = &kept {
                let counts = kept.counts();
                unsent.corrections += counts.waiting as u64 + counts.unknown - unknown;
            }
            unsent
        }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)?;
        self.substitute.supports(policy)
    }
}

/// Waits for an operation that changes nothing if the store fails.
async fn recorded<E: StoreError>(outage: Outage, operation: Option<impl Future<Output = Result<(), E>>>) {
    if let Some(operation) = operation {
        outage.record(&operation.await);
    }
}

/// Reports renewals of some of the grants at the places of these among all.
fn reported_at(places: Vec<usize>, report: RenewalReport) -> RenewalReport {
    Arc::new(move |at, renewal| {
        if let Some(place) = places.get(at) {
            report(*place, renewal);
        }
    })
}

/// The decision of a store, or that of its substitute if the store fails.
#[pin_project]
pub struct PendingAnswer<A, F: Substitute> {
    #[pin]
    stage: AnswerStage<A, F>,
    substitute: F,
    outage: Outage,
}

/// Which of the two is asked.
#[pin_project(project = AnswerStageProjection)]
enum AnswerStage<A, F: Substitute> {
    Store {
        #[pin]
        asked: A,
        kept: F::Kept,
    },
    Substitute(#[pin] F::Acquire),
}

impl<A, F, E> Future for PendingAnswer<A, F>
where
    A: Future<Output = Result<Verdict, E>>,
    E: StoreError,
    F: Substitute,
{
    type Output = Result<Verdict, Infallible>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                AnswerStageProjection::Store { asked, kept } => {
                    let answer = ready!(asked.poll(cx));
                    this.outage.record_decision(&answer);
                    answer.map_or_else(|_| this.substitute.decide_kept(kept), Reply::Now)
                }
                AnswerStageProjection::Substitute(future) => Reply::Now(ready!(future.poll(cx))),
            };
            match next {
                Reply::Now(verdict) => return Poll::Ready(Ok(verdict)),
                Reply::Later(future) => this.stage.set(AnswerStage::Substitute(future)),
            }
        }
    }
}

impl<A, F: Substitute> fmt::Debug for PendingAnswer<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingAnswer(..)")
    }
}
