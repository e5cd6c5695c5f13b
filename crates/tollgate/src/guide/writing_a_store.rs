//! How to keep the state in a store of your own: a database, a cache, another process.
//!
//! A wrapper may be enough: see [below](#a-wrapper). Everything in [`failure`](crate::failure) is a
//! [`Store`](crate::store::Store) around another one.
//!
//! # What a store does
//!
//! The [contract](crate::store::Store) has one main operation.
//! [`acquire`](crate::store::Store::acquire) charges a set of checks, all or nothing, between
//! [`Times::min`](crate::store::Times::min) and [`Times::max`](crate::store::Times::max) times. The
//! arithmetic exists already: [`algorithm::State`](crate::algorithm::State) is the state of a key
//! under a policy. For each call:
//!
//! 1. Read the time once. Take the lock or start the transaction that makes the rest one step.
//! 2. Add up the costs of checks with the same pair of [`Policy::scope`](crate::Policy::scope) and
//!    key.
//! 3. [`look`](crate::algorithm::State::look) at the state of each pair. A missing state is a
//!    [`State::new`](crate::algorithm::State::new). The set can be granted as often as the pair
//!    with the least room allows.
//! 4. If that is less than `min`, or zero, [`refuse`](crate::algorithm::State::refuse) each and
//!    store nothing. Otherwise [`charge`](crate::algorithm::State::charge) each. The result says
//!    when the state [expires](crate::algorithm::Charge::expires).
//!
//!    If your clock can step back, use
//!    [`Policy::with_clock_behind`](crate::Policy::with_clock_behind) in these steps until it
//!    reaches the latest time that you have seen.
//! 5. Return a [`Verdict`](crate::store::Verdict): a status for each check, in the order of the
//!    checks, and the longest delay.
//!
//! That takes about sixty lines around a `Mutex<HashMap>`. The documentation of
//! [`tollgate_conformance::Suite`](https://docs.rs/tollgate-conformance/latest/tollgate_conformance/struct.Suite.html)
//! has them, complete and tested against the contract: start with a copy. For production it lacks
//! what [`memory`](crate::memory) has: shards, a bound, and the expiry of idle keys.
//!
//! If your store computes the decision itself, as a script in Redis does, store the numbers of
//! [`State::restore`](crate::algorithm::State::restore) instead of a `State`. Build the answer with
//! [`Status::new`](crate::Status::new) and [`Stamp::new`](crate::store::Stamp::new).
//!
//! # What a network adds
//!
//! | in the trait | meaning |
//! |---|---|
//! | [`Reply::Now`](crate::store::Reply::Now) | an answer without a round trip and without a future: all answers of a store in memory; of other stores an empty set, or a cached answer |
//! | [`Reply::Later`](crate::store::Reply::Later) | an answer to await. The future is `'static`, so it owns what it needs of the set |
//! | [`Store::Error`](crate::store::Store::Error) | [`Infallible`](std::convert::Infallible), or your error type: then a layer requires a [failure policy](crate::failure) |
//! | [`StoreError::kind`](crate::store::StoreError::kind) | the wrappers use it: `Timeout` and `Unavailable` open a circuit breaker; `Misconfigured` does not, and is logged as an error |
//! | [`Store::end_waits_after`](crate::store::Store::end_waits_after) | a limit on how long callers wait. Without it, a [`timeout`](crate::StoreExt::timeout) around your store uses a timer for each call |
//! | [`Store::patient`](crate::store::Store::patient) | a handle without that limit, for what no request waits for |
//! | [`StoreError::executed_nothing`](crate::store::StoreError::executed_nothing) | whether an operation may be sent again: a refused connection, a server that is starting |
//! | [`RecentUsage`](crate::usage::RecentUsage) | a trait of its own: the units of a recent interval. `Suite::run_usage` tests it |
//! | [`Store::supports`](crate::store::Store::supports) | refuses policies that the store cannot enforce, when a layer is built and not when a request arrives |
//!
//! - A failure policy writes the error's text to the log, so the text must not contain a key.
//! - If a request is cancelled, its future is dropped. It may have charged or not, but never a part
//!   of a set.
//! - Never send a call again that may have been executed: it would charge twice.
//!
//! In this example the remote side is a store in memory, and the test can cut the connection. The
//! rest is what you would write:
//!
//! ```
//! use std::pin::Pin;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use std::time::Duration;
//! use std::{error, fmt};
//!
//! use tollgate::extract::global;
//! use tollgate::store::{Check, ErrorKind, Grant, OwnedCheck, Reply, Store, StoreError, Times, Verdict};
//! use tollgate::{
//!     Algorithm, Key, Limiter, MemoryStore, Policy, PolicyError, PolicyExt, Quota, RateLimitLayer, Reason, StoreExt,
//! };
//! use tollgate_conformance::Suite;
//!
//! #[derive(Clone)]
//! struct Remote {
//!     inner: MemoryStore,
//!     is_cut: Arc<AtomicBool>,
//! }
//!
//! impl Remote {
//!     fn new(inner: MemoryStore) -> Remote {
//!         Remote { inner, is_cut: Arc::default() }
//!     }
//!
//!     async fn trip(&self) -> Result<(), Unreachable> {
//!         tokio::task::yield_now().await;
//!         if self.is_cut.load(Ordering::Relaxed) { Err(Unreachable) } else { Ok(()) }
//!     }
//! }
//!
//! #[derive(Debug)]
//! struct Unreachable;
//!
//! impl fmt::Display for Unreachable {
//!     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
//!         f.write_str("the remote store does not answer")
//!     }
//! }
//!
//! impl error::Error for Unreachable {}
//!
//! impl StoreError for Unreachable {
//!     fn kind(&self) -> ErrorKind {
//!         ErrorKind::Unavailable
//!     }
//! }
//!
//! type Later<T> = Pin<Box<dyn Future<Output = Result<T, Unreachable>> + Send>>;
//!
//! impl Store for Remote {
//!     type Error = Unreachable;
//!     type Acquire = Later<Verdict>;
//!     type Done = Later<()>;
//!
//!     fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, Unreachable>, Later<Verdict>> {
//!         if set.is_empty() {
//!             return Reply::Now(Ok(Verdict::new(times.max(), Duration::ZERO, [])));
//!         }
//!         let remote = self.clone();
//!         let set: Vec<OwnedCheck> = set.iter().map(OwnedCheck::from).collect();
//!         Reply::Later(Box::pin(async move {
//!             remote.trip().await?;
//!             let set: Vec<Check<'_>> = set.iter().map(OwnedCheck::check).collect();
//!             let Ok(verdict) = remote.inner.acquire(&set, times).wait().await;
//!             Ok(verdict)
//!         }))
//!     }
//!
//!     fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), Unreachable>, Later<()>> {
//!         let remote = self.clone();
//!         let grants: Vec<_> =
//!             grants.iter().map(|grant| (grant.policy.clone(), grant.key.clone(), grant.units, grant.stamp)).collect();
//!         Reply::Later(Box::pin(async move {
//!             remote.trip().await?;
//!             for (policy, key, units, stamp) in &grants {
//!                 let grant = Grant { policy, key, units: *units, stamp: *stamp, share: None };
//!                 let Ok(()) = remote.inner.refund(&[grant]).wait().await;
//!             }
//!             Ok(())
//!         }))
//!     }
//!
//!     fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), Unreachable>, Later<()>> {
//!         let remote = self.clone();
//!         let (key, policies) = (key.clone(), policies.iter().map(|policy| (*policy).clone()).collect::<Vec<_>>());
//!         Reply::Later(Box::pin(async move {
//!             remote.trip().await?;
//!             let Ok(()) = remote.inner.reset(&key, &policies.iter().collect::<Vec<_>>()).wait().await;
//!             Ok(())
//!         }))
//!     }
//!
//!     fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
//!         match policy.algorithm() {
//!             // For example, more entries than the remote store has room for.
//!             Algorithm::SlidingLog { .. } if policy.quota().limit() > 1_000 => Err(PolicyError::Unsupported),
//!             _ => Ok(()),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // In your tests, check three things. First the contract, with the clock of the suite:
//! Suite::new()
//!     .steps(200)
//!     .run(async |clock| Remote::new(MemoryStore::builder().clock(clock).build()))
//!     .await;
//!
//! // Then what an outage does:
//! let store = Remote::new(MemoryStore::new());
//! let closed = store.clone().timeout(Duration::from_millis(50)).fail_closed();
//! let limiter = Limiter::new([Policy::new("one", Quota::per_minute(1))]).store(closed);
//! store.is_cut.store(true, Ordering::Relaxed);
//! let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
//! assert_eq!(denial.reason(), Reason::Unavailable);
//! store.is_cut.store(false, Ordering::Relaxed);
//! assert!(limiter.check(&Key::global(), 1).await.is_ok(), "nothing was charged");
//!
//! // Then the policies that the store does not support:
//! let large = Policy::new("large", Quota::per_day(5_000)).with_algorithm(Algorithm::SLIDING_LOG);
//! assert!(RateLimitLayer::new([large.by(global())]).try_store(store.fail_open()).is_err());
//! # }
//! ```
//!
//! # If a set cannot be one step
//!
//! If keys are in different places, ask the places in order. If a later one refuses, give back what
//! the earlier ones granted. Configure the suite for that:
//! `Suite::new().without_atomic_sets_across_keys()`. Policies of one key must always stay together.
//!
//! # A wrapper
//!
//! A wrapper passes calls on, and follows answers with a rule.
//! [`Reply::then`](crate::store::Reply::then) applies the rule to an answer that is available, and
//! to one that comes later. This one logs slow decisions:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::store::{After, Check, Grant, Reply, Store, Then, Times, Verdict};
//! use tollgate::{Clock, Key, Limiter, MemoryStore, Policy, PolicyError, Quota, Timestamp};
//!
//! #[derive(Clone)]
//! struct Slow<S> {
//!     store: S,
//!     clock: Clock,
//! }
//!
//! /// Logs the decision on a set if it took long.
//! struct LogSlow {
//!     asked: Timestamp,
//! }
//!
//! impl<E> After<Result<Verdict, E>> for LogSlow {
//!     /// What all requests share.
//!     type Shared = Clock;
//!     type Output = Result<Verdict, E>;
//!
//!     fn after(self, clock: &Clock, answer: Result<Verdict, E>) -> Result<Verdict, E> {
//!         let took = clock.now().saturating_since(self.asked);
//!         if took > Duration::from_millis(10) {
//!             println!("a decision took {took:?}");
//!         }
//!         answer
//!     }
//! }
//!
//! impl<S: Store> Store for Slow<S> {
//!     type Error = S::Error;
//!     type Acquire = Then<S::Acquire, LogSlow>;
//!     type Done = S::Done;
//!
//!     fn acquire(&self, set: &[Check<'_>], times: Times) -> Reply<Result<Verdict, S::Error>, Self::Acquire> {
//!         let asked = self.clock.now();
//!         self.store.acquire(set, times).then(&self.clock, LogSlow { asked })
//!     }
//!
//!     fn refund(&self, grants: &[Grant<'_>]) -> Reply<Result<(), S::Error>, S::Done> {
//!         self.store.refund(grants)
//!     }
//!
//!     fn reset(&self, key: &Key, policies: &[&Policy]) -> Reply<Result<(), S::Error>, S::Done> {
//!         self.store.reset(key, policies)
//!     }
//!
//!     // The default of these knows nothing of the store inside.
//!     fn end_waits_after(&mut self, limit: Duration) -> bool {
//!         self.store.end_waits_after(limit)
//!     }
//!
//!     fn patient(&self) -> Slow<S> {
//!         Slow { store: self.store.patient(), clock: self.clock.clone() }
//!     }
//!
//!     fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
//!         self.store.supports(policy)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let store = Slow { store: MemoryStore::new(), clock: Clock::system() };
//! let limiter = Limiter::new([Policy::new("api", Quota::per_minute(1))]).store(store);
//! assert!(limiter.check(&Key::from("ada"), 1).await.is_ok());
//! # }
//! ```
