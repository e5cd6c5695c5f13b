//! A fallback: another store decides while the store fails.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use smallvec::SmallVec;
use tollgate_core::{
    Check, Grant, Key, OwnedCheck, Policy, PolicyError, Renewal, Reply, SentClaims, Settled, Share, Source,
    Store, StoreError, Then, Times, Verdict, Wait,
};

use super::both::Both;
use super::event::Event;
use super::outage::{Complete, Outage, undecided};

/// A [`Store`] whose fallback decides, by a share of each quota, while the inner store fails: see
/// [`fall_back_to`](crate::StoreExt::fall_back_to).
#[derive(Clone, Debug)]
pub struct Fallback<S, F> {
    store: S,
    substitute: ByShare<F>,
}

/// The other store, and its share of each quota.
#[derive(Clone, Debug)]
struct ByShare<F> {
    store: F,
    share: Share,
    outage: Outage,
}

type CheckSet<'a> = SmallVec<[Check<'a>; 4]>;
type GrantSet<'a> = SmallVec<[Grant<'a>; 4]>;

impl<S: Store, F: Store<Error = Infallible>> Fallback<S, F> {
    pub(crate) fn new(store: S, fallback: F, share: Share) -> Fallback<S, F> {
        let outage = Outage::new("a share of each quota is granted here", Source::Fallback);
        Fallback { store, substitute: ByShare { store: fallback, share, outage } }
    }

    /// Calls `observe` for every [`Event::Decided`] and [`Event::Failed`], within the request: it
    /// must not block. Several observers may be added. Call this before cloning: existing clones
    /// keep their observers.
    #[must_use]
    pub fn observe(mut self, observe: impl Fn(Event) + Send + Sync + 'static) -> Fallback<S, F> {
        self.substitute.outage = self.substitute.outage.observe(observe);
        self
    }
}

impl<S: Store, F: Store<Error = Infallible>> Fallback<S, F> {
    /// Corrects grants that one of the two stores made.
    async fn settle_in(&self, is_by_share: bool, grants: &[Grant<'_>], total: u64) -> Settled {
        if is_by_share {
            return self.substitute.settle(grants, total).await;
        }
        self.substitute.outage.settled(self.store.settle(grants, total).await, grants, total)
    }
}

impl<S: Store, F: Store<Error = Infallible>> Store for Fallback<S, F> {
    type Error = Infallible;
    type Acquire = FallingBack<S::Acquire, F>;
    type Done = Both<F::Done, Then<S::Done, Complete>>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let asking = match self.store.acquire(set, times) {
            Reply::Now(answer) => match self.substitute.after(answer, set, times) {
                Reply::Now(verdict) => return Reply::Now(Ok(verdict)),
                Reply::Later(future) => FirstOrSecond::Second(future),
            },
            Reply::Later(future) => FirstOrSecond::First(future),
        };
        // The set is borrowed, and is needed again if the store fails.
        let set = set.iter().map(OwnedCheck::from).collect();
        Reply::Later(FallingBack { asking, set, times, substitute: self.substitute.clone() })
    }

    /// Refunds each grant to the store that made it.
    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        let (of_share, of_store): (GrantSet<'_>, GrantSet<'_>) =
            grants.iter().copied().partition(|grant| grant.share.is_some());
        let by_share =
            if of_share.is_empty() { Reply::Now(Ok(())) } else { self.substitute.refund(&of_share) };
        let store = if of_store.is_empty() {
            Reply::Now(Ok(()))
        } else {
            self.store.refund(&of_store).then(&self.substitute.outage, Complete)
        };
        Both::of(by_share, store)
    }

    /// Corrects each grant in the store that made it. An outage between two grants of one request
    /// spreads them: then those of the store that made the newest are corrected first.
    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Result<Settled, Infallible> {
        let is_by_share = grants.last().is_some_and(|newest| newest.share.is_some());
        let (newer, older): (GrantSet<'_>, GrantSet<'_>) =
            grants.iter().copied().partition(|grant| grant.share.is_some() == is_by_share);
        if older.is_empty() {
            return Ok(self.settle_in(is_by_share, &newer, total).await);
        }
        let of_older = Settled::unchanged(&older, 0).charged.min(total);
        let first = self.settle_in(is_by_share, &newer, total - of_older).await;
        let then = self.settle_in(!is_by_share, &older, of_older).await;
        let (charged, unknown) = (first.charged + then.charged, first.unknown + then.unknown);
        Ok(Settled { charged, unknown, ..first })
    }

    /// Renews each slot in the store that granted it.
    async fn renew(&self, grants: &[Grant<'_>]) -> Result<Vec<Renewal>, Infallible> {
        let (of_share, of_store): (GrantSet<'_>, GrantSet<'_>) =
            grants.iter().copied().partition(|grant| grant.share.is_some());
        let mut by_share = self.substitute.renew(&of_share).await.into_iter();
        let answer = if of_store.is_empty() { Ok(Vec::new()) } else { self.store.renew(&of_store).await };
        let mut by_store = self.substitute.outage.renewals(answer, &of_store).into_iter();
        let of_grant = |grant: &Grant<'_>| {
            let renewals = if grant.share.is_some() { &mut by_share } else { &mut by_store };
            renewals.next().unwrap_or(Renewal::Unanswered)
        };
        Ok(grants.iter().map(of_grant).collect())
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        let store = self.store.reset(key, policies).then(&self.substitute.outage, Complete);
        Both::of(self.substitute.store.reset(key, policies), store)
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

    fn patient(&self) -> Fallback<S, F> {
        Fallback { store: self.store.patient(), ..self.clone() }
    }

    /// Nothing watches it: what is dropped in shadow is no outage.
    fn in_shadow(&self) -> Fallback<S, F> {
        let ByShare { store, share, .. } = &self.substitute;
        let substitute = ByShare { store: store.in_shadow(), share: *share, outage: Outage::unwatched() };
        Fallback { store: self.store.in_shadow(), substitute }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)?;
        self.substitute.store.supports(&policy.share(self.substitute.share)?)
    }
}

impl<F: Store<Error = Infallible>> ByShare<F> {
    /// The verdict of the store, or that of the fallback if the store failed.
    #[inline]
    fn after<E: StoreError>(
        &self,
        answer: Result<Verdict, E>,
        set: &[Check<'_>],
        times: Times,
    ) -> Reply<Verdict, F::Acquire> {
        self.outage.record_decision(&answer);
        answer.map_or_else(|_| self.acquire(set, times), Reply::Now)
    }

    /// Asks the fallback for its share.
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, F::Acquire> {
        let shares: Result<SmallVec<[Policy; 1]>, PolicyError> =
            set.iter().map(|check| check.policy.share(self.share)).collect();
        // A layer refuses such a policy when it is made.
        let Ok(shares) = shares else { return Reply::Now(undecided(0, Source::Fallback)) };
        let checks: CheckSet<'_> =
            set.iter().zip(&shares).map(|(check, policy)| Check { policy, ..*check }).collect();
        match self.store.acquire(&checks, times) {
            Reply::Now(Ok(verdict)) => Reply::Now(self.reported(verdict, set, times)),
            Reply::Later(future) => Reply::Later(future),
        }
    }

    /// The fallback's verdict, as it is reported for the whole quota.
    fn reported(&self, verdict: Verdict, set: &[Check<'_>], times: Times) -> Verdict {
        let fits_whole = set.iter().all(|check| check.cost <= check.policy.largest_cost());
        // The outage refuses a cost that only exceeds the share. A look still reports the share.
        if times.max() > 0 && fits_whole && verdict.wait() == Wait::Never {
            return undecided(0, Source::Fallback);
        }
        verdict.of_share(self.share)
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, F::Done> {
        self.store.refund(&of_whole(&self.shares(grants)))
    }

    async fn renew(&self, grants: &[Grant<'_>]) -> Vec<Renewal> {
        let Ok(renewals) = self.store.renew(&of_whole(&self.shares(grants))).await;
        renewals
    }

    /// Each grant with the policy that made it. A layer refuses a policy without a share when it is
    /// made.
    fn shares<'a>(&self, grants: &'a [Grant<'a>]) -> SmallVec<[(&'a Grant<'a>, Policy); 1]> {
        grants.iter().filter_map(|grant| Some((grant, grant.policy.share(self.share).ok()?))).collect()
    }

    async fn settle(&self, grants: &[Grant<'_>], total: u64) -> Settled {
        let share = grants.first().and_then(|grant| grant.policy.share(self.share).ok());
        // A layer refuses a policy without a share when it is made.
        let Some(policy) = share else { return Settled::unchanged(grants, total) };
        let grants: GrantSet<'_> =
            grants.iter().map(|grant| Grant { policy: &policy, share: None, ..*grant }).collect();
        let Ok(settled) = self.store.settle(&grants, total).await;
        settled
    }
}

/// The grants as the fallback knows them.
fn of_whole<'a>(shares: &'a [(&'a Grant<'a>, Policy)]) -> GrantSet<'a> {
    shares.iter().map(|(grant, policy)| Grant { policy, share: None, ..**grant }).collect()
}

/// The decision of a store, or that of the fallback if the store fails.
#[pin_project]
pub struct FallingBack<A, F: Store> {
    #[pin]
    asking: FirstOrSecond<A, F::Acquire>,
    set: SmallVec<[OwnedCheck; 1]>,
    times: Times,
    substitute: ByShare<F>,
}

/// The store that is asked: the first, or the second after it.
#[pin_project(project = FirstOrSecondProjection)]
enum FirstOrSecond<A, B> {
    First(#[pin] A),
    Second(#[pin] B),
}

impl<A, F, E> Future for FallingBack<A, F>
where
    A: Future<Output = Result<Verdict, E>>,
    E: StoreError,
    F: Store<Error = Infallible>,
{
    type Output = Result<Verdict, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.asking.as_mut().project() {
                FirstOrSecondProjection::First(future) => {
                    let answer = ready!(future.poll(cx));
                    this.substitute.after(answer, &checks(this.set), *this.times)
                }
                FirstOrSecondProjection::Second(future) => {
                    let Ok(verdict) = ready!(future.poll(cx));
                    Reply::Now(this.substitute.reported(verdict, &checks(this.set), *this.times))
                }
            };
            match next {
                Reply::Now(verdict) => return Poll::Ready(Ok(verdict)),
                Reply::Later(future) => this.asking.set(FirstOrSecond::Second(future)),
            }
        }
    }
}

fn checks(set: &[OwnedCheck]) -> CheckSet<'_> {
    set.iter().map(OwnedCheck::check).collect()
}

impl<A, F: Store> fmt::Debug for FallingBack<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FallingBack(..)")
    }
}
