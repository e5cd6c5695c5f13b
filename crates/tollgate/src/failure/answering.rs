//! A store that always answers: while the inner store fails, a substitute decides.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tollgate_core::{
    Check, Grant, Key, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Share, Source, Store,
    StoreError, Then, Times, Verdict,
};

use super::both::Both;
use super::by_share::ByShare;
use super::event::Event;
use super::fixed::Fixed;
use super::outage::{Complete, Outage};
use super::substitute::{GrantSet, Substitute};

/// A [`Store`] that always answers. While the inner store fails, `F` decides: [`Fixed`] under
/// [`fail_open`](crate::StoreExt::fail_open) and [`fail_closed`](crate::StoreExt::fail_closed),
/// [`ByShare`] under [`fall_back_to`](crate::StoreExt::fall_back_to).
#[derive(Clone, Debug)]
pub struct Answering<S, F> {
    store: S,
    substitute: F,
    outage: Outage,
}

impl<S: Store> Answering<S, Fixed> {
    pub(crate) fn open(store: S) -> Answering<S, Fixed> {
        let outage = Outage::new("requests pass without limit", Source::FailurePolicy);
        Answering { store, substitute: Fixed::OPEN, outage }
    }

    pub(crate) fn closed(store: S) -> Answering<S, Fixed> {
        let outage = Outage::new("requests are refused", Source::FailurePolicy);
        Answering { store, substitute: Fixed::CLOSED, outage }
    }
}

impl<S: Store, F: Store<Error = Infallible>> Answering<S, ByShare<F>> {
    pub(crate) fn by_share(store: S, fallback: F, share: Share) -> Answering<S, ByShare<F>> {
        let outage = Outage::new("a share of each quota is granted here", Source::Fallback);
        Answering { store, substitute: ByShare::new(fallback, share), outage }
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

    /// Splits grants into those of the substitute and those of the store.
    fn by_maker<'a>(&self, grants: &[Grant<'a>]) -> (GrantSet<'a>, GrantSet<'a>) {
        grants.iter().copied().partition(|grant| self.substitute.made(grant))
    }

    /// Corrects grants that one of the two made.
    async fn settle_in(&self, is_of_substitute: bool, grants: &[Grant<'_>], total: u64) -> Settled {
        if is_of_substitute {
            return self.substitute.settle(grants, total).await;
        }
        self.outage.settled(self.store.settle(grants, total).await, grants, total)
    }
}

impl<S: Store, F: Substitute> Store for Answering<S, F> {
    type Error = Infallible;
    type Acquire = PendingAnswer<S::Acquire, F>;
    type Done = Both<F::Done, Then<S::Done, Complete>>;

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
    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        let (of_substitute, of_store) = self.by_maker(grants);
        let first = match of_substitute[..] {
            [] => Reply::Now(Ok(())),
            _ => self.substitute.refund(&of_substitute),
        };
        let second = match of_store[..] {
            [] => Reply::Now(Ok(())),
            _ => self.store.refund(&of_store).then(&self.outage, Complete),
        };
        Both::of(first, second)
    }

    /// Corrects each grant where it was made. An outage between two grants of one request spreads
    /// them: then those of the maker of the newest are corrected first.
    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Infallible> {
        let is_of_substitute = grants.last().is_some_and(|newest| self.substitute.made(newest));
        let (newer, older): (GrantSet<'_>, GrantSet<'_>) =
            grants.iter().copied().partition(|grant| self.substitute.made(grant) == is_of_substitute);
        if older.is_empty() {
            return Ok(self.settle_in(is_of_substitute, &newer, total).await);
        }
        let of_older = Settled::unchanged(&older, 0).charged.min(total);
        let first = self.settle_in(is_of_substitute, &newer, total - of_older).await;
        let then = self.settle_in(!is_of_substitute, &older, of_older).await;
        let (charged, unknown) = (first.charged + then.charged, first.unknown + then.unknown);
        Ok(Settled { charged, unknown, ..first })
    }

    /// Renews each slot where it was granted.
    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Infallible> {
        let (of_substitute, of_store) = self.by_maker(grants);
        let mut by_substitute = self.substitute.renew(&of_substitute).await.into_iter();
        let answer = if of_store.is_empty() { Ok(Vec::new()) } else { self.store.renew(&of_store).await };
        let mut by_store = self.outage.renewals(answer, &of_store).into_iter();
        let of_grant = |grant: &Grant<'_>| {
            let renewals = if self.substitute.made(grant) { &mut by_substitute } else { &mut by_store };
            renewals.next().unwrap_or(Renewal::Unanswered)
        };
        Ok(grants.iter().map(of_grant).collect())
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        let store = self.store.reset(key, policies).then(&self.outage, Complete);
        Both::of(self.substitute.reset(key, policies), store)
    }

    fn node_of(&self, key: &Key) -> u64 {
        self.store.node_of(key)
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn patient(&self) -> Answering<S, F> {
        Answering { store: self.store.patient(), ..self.clone() }
    }

    /// Nothing watches it: what is dropped in shadow is no outage.
    fn in_shadow(&self) -> Answering<S, F> {
        let (store, substitute) = (self.store.in_shadow(), self.substitute.in_shadow());
        Answering { store, substitute, outage: Outage::unwatched() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)?;
        self.substitute.supports(policy)
    }
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
