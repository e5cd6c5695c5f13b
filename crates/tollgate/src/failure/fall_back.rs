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
    Check, Grant, Key, Policy, PolicyError, Reply, Share, Source, Store, StoreError, Times, UsageError,
    Verdict, Wait,
};

use super::done::Done;
use super::event::Event;
use super::outage::{Outage, undecided};

/// A [`Store`] whose fallback decides, by a share of each quota, while the inner store fails: see
/// [`FailureExt::fall_back_to`](super::FailureExt::fall_back_to).
#[derive(Clone, Debug)]
pub struct FallBack<S, F> {
    store: S,
    fallback: Fallback<F>,
    outage: Outage,
}

/// The other store, and its share of each quota.
#[derive(Clone, Debug)]
struct Fallback<F> {
    store: F,
    share: Share,
}

type Checks<'a> = SmallVec<[Check<'a>; 4]>;
type Grants<'a> = SmallVec<[Grant<'a>; 4]>;

impl<S: Store, F: Store<Error = Infallible>> FallBack<S, F> {
    pub(super) fn new(store: S, fallback: F, share: Share) -> FallBack<S, F> {
        let outage = Outage::new("a share of each quota is granted here", Source::Fallback);
        FallBack { store, fallback: Fallback { store: fallback, share }, outage }
    }

    /// Calls `observe` for every [`Event::Decided`] and [`Event::Failed`], within the request: it
    /// must not block. Call this before cloning: existing clones keep their observer. Only the last
    /// observer is called.
    #[must_use]
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> FallBack<S, F> {
        FallBack { outage: self.outage.observe(observe), ..self }
    }

    fn wait_for<A>(
        &self,
        asking: Asking<A, F::Acquire>,
        set: &[Check<'_>],
        times: Times,
    ) -> FallingBack<A, F> {
        // The set is borrowed, and is needed again if the store fails.
        let set = set.iter().map(OwnedCheck::new).collect();
        FallingBack { asking, set, times, fallback: self.fallback.clone(), outage: self.outage.clone() }
    }
}

impl<S: Store, F: Store<Error = Infallible>> Store for FallBack<S, F> {
    type Error = Infallible;
    type Acquire = FallingBack<S::Acquire, F>;
    type Done = Done<S::Done, F::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        let asking = match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                self.outage.record_decision(&answer);
                if let Ok(verdict) = answer {
                    return Reply::Now(Ok(verdict));
                }
                match self.fallback.acquire(set, times) {
                    Reply::Now(verdict) => return Reply::Now(Ok(verdict)),
                    Reply::Later(future) => Asking::Fallback(future),
                }
            }
            Reply::Later(future) => Asking::Store(future),
        };
        Reply::Later(self.wait_for(asking, set, times))
    }

    /// Refunds each grant to the store that made it.
    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        let (of_share, of_store): (Grants<'_>, Grants<'_>) =
            grants.iter().copied().partition(|grant| grant.share.is_some());
        let store = (!of_store.is_empty()).then(|| self.store.refund(&of_store));
        let fallback = (!of_share.is_empty()).then(|| self.fallback.refund(&of_share));
        Done::of(store, fallback, &self.outage)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        let store = self.store.reset(key, policies);
        Done::of(Some(store), Some(self.fallback.store.reset(key, policies)), &self.outage)
    }

    fn patient(&self) -> FallBack<S, F> {
        FallBack { store: self.store.patient(), ..self.clone() }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)?;
        self.fallback.store.supports(&policy.share(self.fallback.share)?)
    }

    async fn usage(&self, policy: &Policy, key: &Key, interval: Duration) -> Result<u64, UsageError> {
        self.store.usage(policy, key, interval).await
    }
}

impl<F: Store<Error = Infallible>> Fallback<F> {
    /// Asks the fallback for its share.
    #[inline(never)]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, F::Acquire> {
        let shares: Result<SmallVec<[Policy; 1]>, PolicyError> =
            set.iter().map(|check| check.policy.share(self.share)).collect();
        // A layer refuses such a policy when it is made.
        let Ok(shares) = shares else { return Reply::Now(undecided(0, Source::Fallback)) };
        let checks: Checks<'_> =
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
        let shares: SmallVec<[(&Grant<'_>, Policy); 1]> =
            grants.iter().filter_map(|grant| Some((grant, grant.policy.share(self.share).ok()?))).collect();
        let grants: Grants<'_> =
            shares.iter().map(|(grant, policy)| Grant { policy, share: None, ..**grant }).collect();
        self.store.refund(&grants)
    }
}

/// A check that outlives the call, in case the store fails.
#[derive(Debug)]
struct OwnedCheck {
    policy: Policy,
    key: Key,
    cost: u32,
}

impl OwnedCheck {
    fn new(check: &Check<'_>) -> OwnedCheck {
        OwnedCheck { policy: check.policy.clone(), key: check.key.clone(), cost: check.cost }
    }

    fn check(&self) -> Check<'_> {
        Check::new(&self.policy, &self.key, self.cost)
    }
}

/// The decision of a store, or that of the fallback if the store fails.
#[pin_project]
pub struct FallingBack<A, F: Store> {
    #[pin]
    asking: Asking<A, F::Acquire>,
    set: SmallVec<[OwnedCheck; 1]>,
    times: Times,
    fallback: Fallback<F>,
    outage: Outage,
}

#[pin_project(project = AskingProjection)]
enum Asking<A, B> {
    Store(#[pin] A),
    Fallback(#[pin] B),
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
            match this.asking.as_mut().project() {
                AskingProjection::Store(future) => {
                    let answer = ready!(future.poll(cx));
                    this.outage.record_decision(&answer);
                    if let Ok(verdict) = answer {
                        return Poll::Ready(Ok(verdict));
                    }
                    let set: Checks<'_> = this.set.iter().map(OwnedCheck::check).collect();
                    match this.fallback.acquire(&set, *this.times) {
                        Reply::Now(verdict) => return Poll::Ready(Ok(verdict)),
                        Reply::Later(future) => this.asking.set(Asking::Fallback(future)),
                    }
                }
                AskingProjection::Fallback(future) => {
                    let Ok(verdict) = ready!(future.poll(cx));
                    let set: Checks<'_> = this.set.iter().map(OwnedCheck::check).collect();
                    return Poll::Ready(Ok(this.fallback.reported(verdict, &set, *this.times)));
                }
            }
        }
    }
}

impl<A, F: Store> fmt::Debug for FallingBack<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FallingBack(..)")
    }
}
