//! Fewer round trips to a shared store: leases and a cache of denials, each of them a store around
//! another one.
//!
//! A decision in Redis costs a round trip, and time of a server that all processes share. Two
//! wrappers answer most requests in the process, within stated bounds:
//!
//! | wrapper | what it does | what it changes |
//! |---|---|---|
//! | [`deny_cache`](crate::StoreExt::deny_cache) | remembers denials until their wait is over | changes by other processes are seen after a second and a round trip, or two seconds while the store does not answer |
//! | [`leased`](crate::StoreExt::leased) | fetches units of busy keys ahead of demand and pays for them at once | the bounds [below](#the-bounds-of-a-lease) |
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, Lease, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//!
//! # let shared_store = MemoryStore::new();
//! let store = shared_store
//!     .timeout(Duration::from_millis(250))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .leased(Lease::default())
//!     .deny_cache(100_000)
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_second(1_000)).store(store);
//! ```
//!
//! Put them after the timeout and the circuit breaker, and before the failure policy. Put the cache
//! of denials last, so that a denied request does not count as demand for a lease. The cache grants
//! what a lease holds before it looks for a denial, so it adds next to nothing to such a request.
//! While the store fails, a lease is spent until it ends; then the failure policy decides.
//!
//! # The bounds of a lease
//!
//! Let *d* be the life of a lease, *C* its most units, and *N* the number of processes.
//!
//! - **A fixed window is never exceeded.** The store charges a lease to the window in which it is
//!   fetched. The lease ends with that window, at the latest: its end is computed from the time
//!   before the fetch was sent, so it is never later than the end at the store.
//! - **A token bucket admits at most burst + rate × (*t* + *d*) in any time *t*.** Each unit that
//!   is spent in a time *t* was fetched in that time, or up to *d* before it. In *t* + *d* the
//!   store grants at most burst + rate × (*t* + *d*).
//! - **A sliding window or log admits at most its limit + *N* × *C* in any window.** Each unit that
//!   is spent in a window was fetched in it, or was held when it began. A process holds at most *C*
//!   units of a key.
//! - **At most *N* × *C* units of a key are stranded**, each for at most *d*: they are held by a
//!   process that does not use them. Then they are refunded.
//! - **A refund is sent again for up to a minute if nothing of it was
//!   [executed](crate::store::StoreError::executed_nothing)**: a circuit is open, or a server
//!   refuses the connection. Any other refund that fails is lost, and its units stay charged.
//! - **A lease that arrives late is refunded.** Fetches and refunds outlive the
//!   [timeout](crate::StoreExt::timeout) of requests. They end when the store itself gives up.
//! - **A fetch that may have been executed, and is not answered, loses at most *C* units of a
//!   key.**
//! - **A process that is killed loses at most *C* units of a key.** It never spends them twice. A
//!   process that [closes](crate::RateLimitLayer::close) its layer loses none.
//! - **A [block](tollgate_core::Policy::block_after) that another process starts** is heeded when
//!   what this process holds ends, so after *d* at most. One that this process starts is heeded at
//!   once.
//! - **After a [reset](crate::Limiter::reset) by another process**, units from before it may be
//!   spent or refunded: at most *N* × *C* of a key, for at most *d*, and for up to a minute if
//!   their refund is sent again. A reset by this process drops what it holds.
//! - **The clock of a suspended machine stands still.** If it sleeps beyond the end of a window, it
//!   may afterwards spend up to *C* units of that window.
//!
//! A lease is at most a tenth of what remains at the store, and at most twice what the process used
//! in the time *d*. Near the limit leases shrink to nothing, and the store decides each request.
//! Keys with up to two requests in *d* are not leased, since a lease would cost them more round
//! trips than it saves. A set of several rules is decided by leases only if there is one for each
//! rule.
//!
//! A [leaky bucket](crate::Algorithm::LeakyBucket) is not leased, since it delays each request by
//! itself: the store decides. Neither is a policy that [tracks
//! usage](tollgate_core::Policy::track_usage), whose uses the store has to see.
//!
//! `remaining` in fields and reports is what the process knows: what it holds, and what the store
//! had left at the last fetch. A look shows what the store has left, and what this process holds.
//! `reset_after` counts what is held as used. A request that costs more than what is held is
//! decided by the store alone, as if what is held was used.
//!
//! Leases need a tokio runtime. Without one, the store decides each request. A task of one runtime
//! returns the leases of all. If that runtime is alive and not driven, the next request of another
//! runtime that the store decides starts a task there. A fetch whose answer no runtime awaits any
//! more is lost, as in a process that is killed.
//!
//! # What a long key costs
//!
//! The caller hashes its key before any lock. Under a lock, both wrappers search, compare and move
//! a digest of 16 bytes. The cache of denials keeps no key. A lease copies its key under the lock
//! of a shard, so leased keys have at most 4,096 bytes. The store decides all requests of longer
//! ones.

mod deny_cache;
mod lease;

pub use deny_cache::DenyCache;
pub use lease::{HeldLease, Lease, LeaseStats, Leases};
