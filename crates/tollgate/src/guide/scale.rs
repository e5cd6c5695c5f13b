//! How to decide most requests without a round trip: leases and the cache of denials.
//!
//! Start without both. An exact decision costs one round trip, and one Redis makes hundreds of
//! thousands of them a second: see [`capacity`](super::capacity). Add a wrapper if the round trip
//! is too slow, or if Redis is too busy.
//!
//! | the problem | write | it changes |
//! |---|---|---|
//! | denied callers keep asking | `.deny_cache(100_000)` | refunds, resets and raises by other processes are seen after a second and a round trip, or two seconds while Redis does not answer |
//! | busy keys that are mostly allowed | `.leased(Lease::default())` | the [bounds of a lease](crate::scale#the-bounds-of-a-lease) |
//! | both | both, the cache last | both |
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, Lease, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//!
//! // In your code: `let redis = RedisStore::connect("redis://127.0.0.1/").await?;`
//! # let redis = MemoryStore::new();
//! let store = redis
//!     .timeout(Duration::from_millis(50))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .leased(Lease::default())
//!     .deny_cache(100_000)
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//! let layer = RateLimitLayer::per_ip(Quota::per_second(1_000)).store(store);
//! ```
//!
//! # The cache of denials
//!
//! It is for callers that do not wait for `Retry-After`: a scan, a client in a loop, a flood. Such
//! a caller costs one call to Redis a second, for each process that it reaches. It never denies
//! what Redis would allow, except within that bound. Almost every fleet can use it.
//!
//! Choose a capacity above the number of keys that are denied at the same time. A key without a
//! place is decided by Redis.
//!
//! # Leases
//!
//! A process fetches units of a busy key ahead of demand, and pays for them at once. Requests are
//! then decided in the process. The limit still holds for all processes together, within the
//! bounds.
//!
//! | lease | do not lease |
//! |---|---|
//! | keys with many requests in one process: a tenant, a route, all callers together | many keys with a few requests in the life of a lease: it [saves nothing](super::capacity#a-cluster) |
//! | load that is mostly below the limit | load that is always above it: near the limit Redis decides each request |
//! | limits that protect a service | a limit of a few units that must be used up to the last one |
//!
//! A fixed window is never exceeded, leased or not. If the limit is a promise about a window, lease
//! it as a fixed window.
//!
//! # How to choose a lease
//!
//! The **life** is the setting that matters. A longer life saves round trips. It strands more units
//! on processes that do not use them, and raises the bound of a token bucket by rate × life.
//!
//! A simulated fleet of 20 processes has a limit of 20,000 a second and four fifths of that as
//! load. The load is skewed by Zipf's law, and a round trip takes 1 ms:
//!
//! | life | round trips for each decision | most units stranded, of the limit of a second |
//! |---|--:|--:|
//! | 100 ms | 0.036 | 15 % |
//! | **250 ms, the default** | 0.016 | 31 % |
//! | 1 s | 0.0073 | 65 % |
//!
//! The **most units** bound what a crash loses, and what a sliding window admits above its limit.
//! They matter only if a process uses more of a key in a life. In the same fleet, 100 units need
//! 0.023 round trips for each decision. With a round trip of 20 ms they need 0.159, and 1,000 units
//! need 0.024: a lease that is too small runs dry before the next one arrives. 10,000 units gain
//! nothing there. Choose what one process uses of a key in a life, or a bit more.
//!
//! Stranded units are not lost while the store answers. They go back when their lease ends. With
//! load of one and a half times the limit, the leased fleet admitted 119,880 requests, and the
//! exact one 119,980.
//!
//! Simulate a fleet of your own before you change the defaults:
//!
//! ```text
//! cargo run --release --example fleet -- --nodes 20 --rate 16000 --limit 20000/s --lease 1000/250ms
//! cargo run --release --example fleet -- --help
//! ```
//!
//! # How to stop
//!
//! A process that ends holds units of its busy keys, which stay charged. Give them back after the
//! last request, within a limit:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Lease, MemoryStore, StoreExt};
//! use tokio::time::timeout;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! # let redis = MemoryStore::new();
//! let leased = redis.leased(Lease::default());
//! let store = leased.clone().deny_cache(100_000).fail_open();
//! # let stopped = async {};
//! // In your code: `axum::serve(listener, app).with_graceful_shutdown(stopped).await?;`
//! # stopped.await;
//! if timeout(Duration::from_secs(2), leased.give_back()).await.is_err() {
//!     eprintln!("some units of leases stay charged");
//! }
//! # }
//! ```
//!
//! Five playgrounds that stopped in turn had charged 2,554 units for 1,000 requests without it, and
//! 1,000 with it.
//!
//! # What to watch
//!
//! [`Leases::stats`](crate::scale::Leases::stats) has the round trips, the units that were refunded
//! and the units that are held now. [`LeaseStats::decisions_per_round_trip`] near 1 means that
//! leases save nothing: the keys are cold, or the limit is reached.
//!
//! ```
//! use tollgate::{Lease, MemoryStore, StoreExt};
//!
//! # let redis = MemoryStore::new();
//! let store = redis.leased(Lease::default());
//! let stats = store.stats();
//! assert_eq!((stats.held_units, stats.decisions_per_round_trip()), (0, None));
//! ```
//!
//! [`LeaseStats::decisions_per_round_trip`]: crate::scale::LeaseStats::decisions_per_round_trip
