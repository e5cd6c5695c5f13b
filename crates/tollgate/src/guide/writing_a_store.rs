//! How to keep the state in a place of your own: a database, a cache, a process of a fleet.
//!
//! Before you do: a wrapper may be enough. Everything in [`failure`](crate::failure) is a [`Store`](crate::Store) around
//! another one, and so can be what counts, logs or prefixes.
//!
//! # What it has to do
//!
//! The [contract](crate::Store) has one main operation: [`acquire`](crate::Store::acquire) charges a set of checks, all or
//! nothing, between [`Times::min`](crate::Times::min) and [`Times::max`](crate::Times::max) times over. The arithmetic is
//! there already: [`algorithm::State`](crate::algorithm::State) is what is kept for a key under a policy. For each call:
//!
//! 1. Take the time, once, and whatever lock or transaction makes the rest one step.
//! 2. Add up the costs of checks that name one pair of [`Policy::scope`](crate::Policy::scope) and key.
//! 3. [`look`](crate::algorithm::State::look) at the state of each; what is not there is a
//!    [`State::new`](crate::algorithm::State::new). The set can be granted as often as the scarcest has room.
//! 4. If that is less than `min`, or none: [`refuse`](crate::algorithm::State::refuse) each, and store nothing. Else
//!    [`charge`](crate::algorithm::State::charge) each; it tells when the state [expires](crate::algorithm::Charge::expires).
//! 5. Answer with a [`Verdict`](crate::Verdict): a status for each check, in their order, and the longest delay.
//!
//! That is some sixty lines around a `Mutex<HashMap>`. They stand, whole and held to the contract, in the documentation of
//! [`tollgate_conformance::Suite`](https://docs.rs/tollgate-conformance/latest/tollgate_conformance/struct.Suite.html): begin
//! with a copy. What it lacks for production is what [`memory`](crate::memory) has: shards, a bound, and the expiry of what
//! is idle.
//!
//! If your place computes for itself, as a script in Redis does, keep no `State` but the numbers of
//! [`State::restore`](crate::algorithm::State::restore), and answer by [`Status::new`](crate::Status::new) and
//! [`Stamp::new`](crate::Stamp::new).
//!
//! # What a network adds
//!
//! | in the trait | it is |
//! |---|---|
//! | [`Reply::Now`](crate::Reply::Now) | an answer that needs no trip, at no cost of a future: all of a store in memory; of others an empty set, or what a cache knows |
//! | [`Reply::Later`](crate::Reply::Later) | an answer to be awaited. The future is `'static`, so that it takes along what it needs of the set |
//! | [`Store::Error`](crate::Store::Error) | [`Infallible`](std::convert::Infallible), or an error of yours: then a layer asks for a [failure policy](crate::failure) |
//! | [`StoreError::kind`](crate::StoreError::kind) | what the wrappers go by: `Timeout` and `Unavailable` open a circuit breaker, `Misconfigured` does not, and is logged as an error |
//! | [`Store::end_waits_after`](crate::Store::end_waits_after) | a limit of how long callers wait: leave it out, and a [`timeout`](crate::FailureExt::timeout) around your store has a timer for each |
//! | [`Store::supports`](crate::Store::supports) | policies that you cannot enforce: refused when a layer is made, not when a request comes |
//!
//! A failure policy writes what an error displays to the log: there must be no key in it. A future that is dropped, since its
//! request was given up, may have charged or not, but never a part of a set. And nothing is to be sent again that may have
//! been executed, or it charges twice.
//!
//! Here the far end is a store in memory, and the way to it can be cut. The rest is as it would be:
//!
//! ```
//! use std::pin::Pin;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use std::time::Duration;
//! use std::{error, fmt};
//!
//! use tollgate::extract::global;
//! use tollgate::{Algorithm, Check, ErrorKind, FailureExt, Grant, Key, Limiter, MemoryStore, Policy, PolicyError};
//! use tollgate::{PolicyExt, Quota, RateLimitLayer, Reason, Reply, Store, StoreError, Times, Verdict};
//! use tollgate_conformance::Suite;
//!
//! #[derive(Clone)]
//! struct Remote {
//!     far_end: MemoryStore,
//!     is_cut: Arc<AtomicBool>,
//! }
//!
//! impl Remote {
//!     fn new(far_end: MemoryStore) -> Remote {
//!         Remote { far_end, is_cut: Arc::default() }
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
//!         f.write_str("the far end does not answer")
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
//!         let set: Vec<_> = set.iter().map(|check| (check.policy.clone(), check.key.clone(), check.cost)).collect();
//!         Reply::Later(Box::pin(async move {
//!             remote.trip().await?;
//!             let set: Vec<_> = set.iter().map(|(policy, key, cost)| Check::new(policy, key, *cost)).collect();
//!             let Ok(verdict) = remote.far_end.acquire(&set, times).wait().await;
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
//!                 let Ok(()) = remote.far_end.refund(&[grant]).wait().await;
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
//!             let Ok(()) = remote.far_end.reset(&key, &policies.iter().collect::<Vec<_>>()).wait().await;
//!             Ok(())
//!         }))
//!     }
//!
//!     fn supports(&self, policy: &Policy) -> Result<(), PolicyError> {
//!         match policy.algorithm() {
//!             // More entries than the far end has room for, say.
//!             Algorithm::SlidingLog { .. } if policy.quota().limit() > 1_000 => Err(PolicyError::Unsupported),
//!             _ => Ok(()),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // In tests of your own, three of them. First the contract, over the clock that the suite hands out:
//! Suite::new()
//!     .steps(200)
//!     .run(async |clock| Remote::new(MemoryStore::builder().clock(clock).build()))
//!     .await;
//!
//! // then what an outage does,
//! let store = Remote::new(MemoryStore::new());
//! let closed = store.clone().timeout(Duration::from_millis(50)).fail_closed();
//! let limiter = Limiter::new([Policy::new("one", Quota::per_minute(1)).by(global())]).store(closed);
//! store.is_cut.store(true, Ordering::Relaxed);
//! let denial = limiter.check_key(&Key::global(), 1).await.unwrap_err();
//! assert_eq!(denial.reason(), Reason::Unavailable);
//! store.is_cut.store(false, Ordering::Relaxed);
//! assert!(limiter.check_key(&Key::global(), 1).await.is_ok(), "nothing was charged");
//!
//! // and what is refused before any request comes.
//! let dear = Policy::new("dear", Quota::per_day(5_000)).with_algorithm(Algorithm::SLIDING_LOG);
//! assert!(RateLimitLayer::new([dear.by(global())]).try_store(store.fail_open()).is_err());
//! # }
//! ```
//!
//! # Where a set cannot be one step
//!
//! If keys live in different places, ask them in order and give back what was granted when a later one refuses, and tell the
//! suite: `Suite::new().without_atomic_sets_across_keys()`. Policies of one key must stay together in any case.
