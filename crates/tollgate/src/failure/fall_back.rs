//! Another store decides while the store fails.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use smallvec::SmallVec;
use tollgate_core::{
    Check, Grant, Key, Policy, PolicyError, Reply, Share, Store, StoreError, Times, Verdict, Wait,
};

use super::event::{Event, Source};
use super::outage::Outage;

/// A [`Store`] that has another one decide, over a share of the quotas, what the inner store fails to: see
/// [`FailureExt::fall_back_to`](super::FailureExt::fall_back_to) and the [module docs](super).
#[derive(Clone, Debug)]
pub struct FallBack<S, F> {
    store: S,
    local: Local<F>,
}

/// The other store, and what it is given to grant.
#[derive(Clone, Debug)]
struct Local<F> {
    store: F,
    share: Share,
    outage: Outage,
}

impl<S: Store, F: Store<Error = Infallible>> FallBack<S, F> {
    pub(super) fn new(store: S, fallback: F, share: Share) -> FallBack<S, F> {
        let outage = Outage::new("a share of each quota is granted here", Source::Fallback);
        FallBack { store, local: Local { store: fallback, share, outage } }
    }

    /// Tells `observe` of every [`Event::Decided`] and [`Event::Failed`]. It is called within a request and must not block.
    /// Before clones are made: they tell whom their original did. Of several observers the last is told.
    pub fn observe(self, observe: impl Fn(Event) + Send + Sync + 'static) -> FallBack<S, F> {
        let outage = self.local.outage.observe(observe);
        FallBack { local: Local { outage, ..self.local }, ..self }
    }
}

impl<S: Store, F: Store<Error = Infallible>> Store for FallBack<S, F> {
    type Error = Infallible;
    type Acquire = FallingBack<S::Acquire, F>;
    type Done = BothDone<S::Done, F::Done>;

    #[inline]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Infallible>, Self::Acquire> {
        match self.store.acquire(set, times) {
            Reply::Now(answer) => {
                self.local.outage.decided(&answer);
                match answer {
                    Ok(verdict) => Reply::Now(Ok(verdict)),
                    Err(_) => match self.local.acquire(set, times) {
                        Reply::Now(verdict) => Reply::Now(Ok(verdict)),
                        Reply::Later(fallen) => {
                            Reply::Later(self.local.falling(None, Some(fallen), set, times))
                        }
                    },
                }
            }
            Reply::Later(asking) => Reply::Later(self.local.falling(Some(asking), None, set, times)),
        }
    }

    /// Each grant goes back to the store that gave it.
    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, Self::Done> {
        let (of_share, of_store): (Grants<'_>, Grants<'_>) =
            grants.iter().copied().partition(|grant| grant.share.is_some());
        let store = (!of_store.is_empty()).then(|| self.store.refund(&of_store));
        let local = (!of_share.is_empty()).then(|| self.local.refund(&of_share));
        let store = store.and_then(|reply| pending(reply, |answer| self.local.outage.hear(&answer)));
        let local = local.and_then(|reply| pending(reply, |Ok(())| ()));
        self.local.both(store, local)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Infallible>, Self::Done> {
        let store = pending(self.store.reset(key, policies), |answer| self.local.outage.hear(&answer));
        let local = pending(self.local.store.reset(key, policies), |Ok(())| ());
        self.local.both(store, local)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)?;
        self.local.store.supports(&policy.share(self.local.share)?)
    }
}

/// What is still to be awaited.
fn pending<T, F>(reply: Reply<T, F>, hear: impl FnOnce(T)) -> Option<F> {
    match reply {
        Reply::Now(answer) => {
            hear(answer);
            None
        }
        Reply::Later(future) => Some(future),
    }
}

type Grants<'a> = SmallVec<[Grant<'a>; 4]>;

impl<F: Store<Error = Infallible>> Local<F> {
    /// The end of what is still to be awaited of both stores.
    fn both<A>(
        &self,
        store: Option<A>,
        local: Option<F::Done>,
    ) -> Reply<Result<(), Infallible>, BothDone<A, F::Done>> {
        if store.is_none() && local.is_none() {
            return Reply::Now(Ok(()));
        }
        Reply::Later(BothDone { store, local, outage: self.outage.clone() })
    }

    fn falling<A>(
        &self,
        asking: Option<A>,
        fallen: Option<Fallen<F::Acquire>>,
        set: &[Check<'_>],
        times: Times,
    ) -> FallingBack<A, F> {
        // The set is borrowed, and has to be at hand if the store fails.
        let asked = set.iter().map(Asked::new).collect();
        FallingBack { asking, fallen, asked, times, local: self.clone() }
    }

    /// What the share has room for.
    #[inline(never)]
    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Verdict, Fallen<F::Acquire>> {
        let parts: Result<SmallVec<[Policy; 1]>, PolicyError> =
            set.iter().map(|check| check.policy.share(self.share)).collect();
        let Ok(parts) = parts else {
            // Where a layer was made, such policies were refused.
            return Reply::Now(undecided());
        };
        let checks: SmallVec<[Check<'_>; 4]> =
            set.iter().zip(&parts).map(|(check, policy)| Check { policy, ..*check }).collect();
        let is_too_large = |check: &Check<'_>| check.cost > check.policy.largest_cost();
        // A look is told how the share stands, too small as it may be.
        let is_possible = times.max() > 0 && !set.iter().any(is_too_large);
        match self.store.acquire(&checks, times) {
            Reply::Now(Ok(verdict)) => Reply::Now(told(verdict, self.share, is_possible)),
            Reply::Later(future) => Reply::Later(Fallen { future, share: self.share, is_possible }),
        }
    }

    fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Infallible>, F::Done> {
        let mut granted: SmallVec<[(&Grant<'_>, Policy); 1]> = SmallVec::new();
        for grant in grants {
            granted.extend(grant.policy.share(self.share).ok().map(|part| (grant, part)));
        }
        let grants: Grants<'_> =
            granted.iter().map(|(grant, policy)| Grant { policy, share: None, ..**grant }).collect();
        self.store.refund(&grants)
    }
}

/// The verdict over a share, for those who asked for the whole.
fn told(verdict: Verdict, share: Share, is_possible: bool) -> Verdict {
    if is_possible && verdict.wait() == Wait::Never {
        // Too much for a share, and not for the whole: it is the outage that refuses.
        return undecided();
    }
    verdict.of_share(share)
}

fn undecided() -> Verdict {
    Verdict::new(0, Duration::ZERO, [])
}

/// A check that is kept for the case that the store fails.
#[derive(Debug)]
struct Asked {
    policy: Policy,
    key: Key,
    cost: u32,
}

impl Asked {
    fn new(check: &Check<'_>) -> Asked {
        Asked { policy: check.policy.clone(), key: check.key.clone(), cost: check.cost }
    }

    fn check(&self) -> Check<'_> {
        Check::new(&self.policy, &self.key, self.cost)
    }
}

/// The decision of a store, or of the fallback in its place.
#[pin_project]
pub struct FallingBack<A, F: Store> {
    #[pin]
    asking: Option<A>,
    #[pin]
    fallen: Option<Fallen<F::Acquire>>,
    asked: SmallVec<[Asked; 1]>,
    times: Times,
    local: Local<F>,
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
        if let Some(asking) = this.asking.as_mut().as_pin_mut() {
            let answer = ready!(asking.poll(cx));
            this.asking.set(None);
            this.local.outage.decided(&answer);
            if let Ok(verdict) = answer {
                return Poll::Ready(Ok(verdict));
            }
            let set: SmallVec<[Check<'_>; 4]> = this.asked.iter().map(Asked::check).collect();
            match this.local.acquire(&set, *this.times) {
                Reply::Now(verdict) => return Poll::Ready(Ok(verdict)),
                Reply::Later(fallen) => this.fallen.set(Some(fallen)),
            }
        }
        match this.fallen.as_pin_mut() {
            Some(fallen) => fallen.poll(cx).map(Ok),
            None => unreachable!("polled after it was ready"),
        }
    }
}

impl<A, F: Store> fmt::Debug for FallingBack<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FallingBack(..)")
    }
}

/// The decision of a fallback that has to be awaited.
#[pin_project]
struct Fallen<A> {
    #[pin]
    future: A,
    share: Share,
    is_possible: bool,
}

impl<A: Future<Output = Result<Verdict, Infallible>>> Future for Fallen<A> {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let this = self.project();
        let Ok(verdict) = ready!(this.future.poll(cx));
        Poll::Ready(told(verdict, *this.share, *this.is_possible))
    }
}

/// The end of a refund or a reset in both stores, whether or not the one that can fail has done it.
#[pin_project]
#[derive(Debug)]
pub struct BothDone<A, B> {
    #[pin]
    store: Option<A>,
    #[pin]
    local: Option<B>,
    outage: Outage,
}

impl<A, B, E> Future for BothDone<A, B>
where
    A: Future<Output = Result<(), E>>,
    B: Future<Output = Result<(), Infallible>>,
    E: StoreError,
{
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(local) = this.local.as_mut().as_pin_mut() {
            let Ok(()) = ready!(local.poll(cx));
            this.local.set(None);
        }
        if let Some(store) = this.store.as_mut().as_pin_mut() {
            let answer = ready!(store.poll(cx));
            this.outage.hear(&answer);
            this.store.set(None);
        }
        Poll::Ready(Ok(()))
    }
}
