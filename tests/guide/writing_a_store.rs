//! A store over a connection, and a wrapper around a store: complete, for copying.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{error, fmt};

use tollgate::extract::global;
use tollgate::store::{
    After, BlockStart, Check, End, ErrorKind, Grant, OwnedCheck, RenewalReport, Reply, SentClaims, Settled,
    Store, StoreError, Then, Times, Unsent, Verdict,
};
use tollgate::time::Clock;
use tollgate::{
    Algorithm, Key, Limiter, MemoryStore, Policy, PolicyError, PolicyExt, Quota, RateLimitLayer, Reason,
    Share, StoreExt, Timestamp,
};
use tollgate_conformance::Suite;

/// The remote side is a store in memory, and a test can cut the connection.
#[derive(Clone)]
struct Remote {
    inner: MemoryStore,
    is_cut: Arc<AtomicBool>,
}

impl Remote {
    fn new(inner: MemoryStore) -> Remote {
        Remote { inner, is_cut: Arc::default() }
    }

    async fn trip(&self) -> Result<(), Unreachable> {
        tokio::task::yield_now().await;
        if self.is_cut.load(Ordering::Relaxed) { Err(Unreachable) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct Unreachable;

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the remote store does not answer")
    }
}

impl error::Error for Unreachable {}

impl StoreError for Unreachable {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}

type Later<T> = Pin<Box<dyn Future<Output = Result<T, Unreachable>> + Send>>;

impl Store for Remote {
    type Error = Unreachable;
    type Acquire = Later<Verdict>;

    fn acquire(
        &self,
        set: &[Check<'_>],
        times: Times,
    ) -> Reply<Result<Verdict, Unreachable>, Later<Verdict>> {
        if set.is_empty() {
            return Reply::Now(Ok(Verdict::new(times.max(), Duration::ZERO, [])));
        }
        let remote = self.clone();
        let set: Vec<OwnedCheck> = set.iter().map(OwnedCheck::from).collect();
        Reply::Later(Box::pin(async move {
            remote.trip().await?;
            let set: Vec<Check<'_>> = set.iter().map(OwnedCheck::check).collect();
            let Ok(verdict) = remote.inner.acquire(&set, times).wait().await;
            Ok(verdict)
        }))
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), Unreachable> + use<> {
        let remote = self.clone();
        let grants: Vec<_> = grants
            .iter()
            .map(|grant| (grant.policy.clone(), grant.key.clone(), grant.units, grant.stamp))
            .collect();
        async move {
            remote.trip().await?;
            for (policy, key, units, stamp) in &grants {
                let grant = Grant { policy, key, units: *units, stamp: *stamp, share: None };
                let Ok(()) = remote.inner.refund(&[grant]).await;
            }
            Ok(())
        }
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), Unreachable> + use<> {
        let remote = self.clone();
        let (key, policies) =
            (key.clone(), policies.iter().map(|policy| (*policy).clone()).collect::<Vec<_>>());
        async move {
            remote.trip().await?;
            let Ok(()) = remote.inner.reset(&key, &policies.iter().collect::<Vec<_>>()).await;
            Ok(())
        }
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        match policy.algorithm() {
            // For example, more entries than the remote store has room for.
            Algorithm::SlidingLog { .. } if policy.quota().limit() > 1_000 => Err(PolicyError::Unsupported),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn the_store_keeps_the_contract() {
    Suite::new().steps(200).run(async |clock| Remote::new(MemoryStore::builder().clock(clock).build())).await;
}

#[tokio::test]
async fn an_outage_refuses_requests_and_charges_nothing() {
    let store = Remote::new(MemoryStore::new());
    let closed = store.clone().timeout(Duration::from_millis(50)).fail_closed();
    let limiter = Limiter::new([Policy::new("one", Quota::per_minute(1))]).store(closed);
    store.is_cut.store(true, Ordering::Relaxed);
    let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
    assert_eq!(denial.reason(), Reason::Unavailable);
    store.is_cut.store(false, Ordering::Relaxed);
    assert!(limiter.check(&Key::global(), 1).await.is_ok(), "nothing was charged");
}

#[test]
fn a_policy_that_the_store_does_not_support_is_refused_at_construction() {
    let store = Remote::new(MemoryStore::new());
    let large = Policy::new("large", Quota::per_day(5_000)).with_algorithm(Algorithm::SLIDING_LOG);
    assert!(RateLimitLayer::new([large.by(global())]).try_store(store.fail_open()).is_err());
}

#[derive(Clone)]
struct Slow<S> {
    store: S,
    clock: Clock,
}

/// Logs the decision on a set if it took long.
struct LogSlow {
    asked: Timestamp,
}

impl<E> After<Result<Verdict, E>> for LogSlow {
    /// What all requests share.
    type Shared = Clock;
    type Output = Result<Verdict, E>;

    fn after(self, clock: &Clock, answer: Result<Verdict, E>) -> Result<Verdict, E> {
        let took = clock.now().saturating_since(self.asked);
        if took > Duration::from_millis(10) {
            println!("a decision took {took:?}");
        }
        answer
    }
}

impl<S: Store> Store for Slow<S> {
    type Error = S::Error;
    type Acquire = Then<S::Acquire, LogSlow>;

    fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
        let asked = self.clock.now();
        self.store.acquire(set, times).then(&self.clock, LogSlow { asked })
    }

    fn refund(&self, grants: &[Grant<'_>]) -> impl End<(), S::Error> + use<S> {
        self.store.refund(grants)
    }

    fn reset(&self, key: &Key, policies: &[&Policy]) -> impl End<(), S::Error> + use<S> {
        self.store.reset(key, policies)
    }

    // The default of these knows nothing of the store inside.
    fn settle(&self, grants: &[Grant<'_>], total: u64) -> impl End<Settled, S::Error> + use<S> {
        self.store.settle(grants, total)
    }

    fn renew(&self, grants: &[Grant<'_>], report: RenewalReport) -> impl End<(), S::Error> + use<S> {
        self.store.renew(grants, report)
    }

    fn block(
        &self,
        policy: &Policy,
        key: &Key,
        share: Option<Share>,
    ) -> impl End<BlockStart, S::Error> + use<S> {
        self.store.block(policy, key, share)
    }

    fn wait_limit(&self) -> Option<Duration> {
        self.store.wait_limit()
    }

    fn sent_claims(&self) -> Option<&SentClaims> {
        self.store.sent_claims()
    }

    fn with_deadline(&self, deadline: Option<Duration>) -> Slow<S> {
        Slow { store: self.store.with_deadline(deadline), clock: self.clock.clone() }
    }

    fn in_shadow(&self) -> Slow<S> {
        Slow { store: self.store.in_shadow(), clock: self.clock.clone() }
    }

    fn close(&self, limit: Duration) -> impl Future<Output = Unsent> + Send + use<S> {
        self.store.close(limit)
    }

    fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
        self.store.supports(policy)
    }
}

#[tokio::test]
async fn a_wrapper_passes_decisions_on() {
    super::shows("writing_a_store.md", include_str!("writing_a_store.rs"), &["struct LogSlow"]);
    let store = Slow { store: MemoryStore::new(), clock: Clock::system() };
    let limiter = Limiter::new([Policy::new("api", Quota::per_minute(1))]).store(store);
    let mut permit = limiter.check(&Key::from("ada"), 1).await.unwrap();
    let settled = permit.charge("api").settle(2).await;
    assert_eq!((settled.charged, settled.forgiven), (2, 0));
}
