//! Which algorithm fits your limit.
//!
//! [`algorithm`](crate::algorithm) says what each guarantees and how much memory its state takes.
//! To choose:
//!
//! | your limit | write | note |
//! |---|---|---|
//! | "100 a minute, 20 of them at once" | `Policy::new("api", Quota::per_minute(100).burst(20))` | the default, the token bucket. A caller that was idle gets 120 in its first minute |
//! | "any time, but evenly" | `.with_algorithm(Algorithm::LeakyBucket { max_wait })` | requests wait for their turn instead of failing. A waiting request keeps its connection |
//! | "5,000 a day, from midnight UTC" | `.with_algorithm(Algorithm::FIXED_WINDOW_ALIGNED)` | up to twice that around midnight, and at midnight all callers return at once |
//! | "5,000 a day, from your first request" | `.with_algorithm(Algorithm::FIXED_WINDOW)` | up to twice that around the end of the day |
//! | "about 5,000 in any day" | `.with_algorithm(Algorithm::SlidingWindow)` | an estimate, with little more memory than a fixed window |
//! | "never more than 5,000 in any day" | `.with_algorithm(Algorithm::SLIDING_BUCKETS)` | usage may count for a tenth of a day too long |
//! | "5 log-ins in any hour, to the microsecond" | `.with_algorithm(Algorithm::SLIDING_LOG)` | memory for each request: for few and expensive ones |
//!
//! When in doubt, take the default with a burst. A caller waits exactly until the units that it
//! needs are back, and never for the end of a window.
//!
//! # The burst
//!
//! The token bucket holds `burst` units and is refilled at limit / window. In any time t a caller
//! gets at most burst + limit × t / window. Without [`burst`](crate::Quota::burst) the bucket holds
//! the whole limit: `Quota::per_minute(100)` lets 100 requests pass at once, and 200 within the
//! first minute.
//!
//! - To promise 100 in *any* minute, take `SLIDING_BUCKETS`.
//! - To protect the service behind the limit, take a small burst.
//!
//! Window algorithms have no burst: giving them one is an error at construction. To promise both,
//! take two rules. They are decided together:
//!
//! ```
//! use tollgate::extract::PeerIp;
//! use tollgate::{Algorithm, Policy, PolicyExt, Quota, RateLimitLayer};
//!
//! let layer = RateLimitLayer::new([
//!     Policy::new("burst", Quota::per_second(10).burst(20)).by(PeerIp::new()),
//!     Policy::new("daily", Quota::per_day(5_000)).with_algorithm(Algorithm::SLIDING_BUCKETS).by(PeerIp::new()),
//! ]);
//! ```
//!
//! # Around the end of a window
//!
//! The limit is ten a minute. Ten requests arrive just before the end of a minute, and ten just
//! after it:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Timestamp};
//!
//! async fn pass_in_200_ms(algorithm: Algorithm) -> usize {
//!     let time = ManualClock::new(Timestamp::from_micros(59_900_000));
//!     let policy = Policy::new("ten", Quota::per_minute(10)).with_algorithm(algorithm);
//!     let limiter = Limiter::new([policy]).store(MemoryStore::builder().clock(&time).build());
//!     let mut passed = 0;
//!     for _ in 0..2 {
//!         for _ in 0..10 {
//!             passed += usize::from(limiter.check(&Key::global(), 1).await.is_ok());
//!         }
//!         time.advance(Duration::from_millis(200));
//!     }
//!     passed
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! assert_eq!(pass_in_200_ms(Algorithm::FIXED_WINDOW_ALIGNED).await, 20);
//! for algorithm in [Algorithm::Gcra, Algorithm::SlidingWindow, Algorithm::SLIDING_BUCKETS, Algorithm::SLIDING_LOG] {
//!     assert_eq!(pass_in_200_ms(algorithm).await, 10, "{algorithm:?}");
//! }
//! # }
//! ```
//!
//! A window that opens with the first request has the same boundary effect, at another time. A
//! caller opens it with one request, sends nine at its end and ten in the next window: 19 within a
//! moment.
//!
//! # The leaky bucket
//!
//! A request that is too early reserves the next slot, and the layer delays it until then. A
//! request that would wait longer than `max_wait` is refused. The default burst is 1: the first
//! request passes at once, the others one by one.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let even = Policy::new("even", Quota::per_second(10))
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_millis(200) });
//! # let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let limiter = Limiter::new([even]);
//! # let limiter = limiter.store(MemoryStore::builder().clock(&time).build());
//!
//! for wait in [0, 100, 200] {
//!     let permit = limiter.check(&Key::global(), 1).await.unwrap();
//!     assert_eq!(permit.delay(), Duration::from_millis(wait));
//! }
//! let denial = limiter.check(&Key::global(), 1).await.unwrap_err();
//! assert_eq!(denial.retry_after(), Some(Duration::from_millis(100)));
//! # }
//! ```
//!
//! A layer sleeps for [`Permit::delay`](crate::Permit::delay) by itself. Code that asks a
//! [`Limiter`](crate::Limiter) has to sleep itself. Under a layer, a caller that leaves the queue
//! gives back what its request was charged; its slot comes back if no request has queued behind it.
//! A request with a deadline before its turn is denied at once and takes no slot: see
//! [`deadline_header`](crate::RateLimitLayer::deadline_header). Where delayed requests take places
//! of a concurrency limit, see [`layers`](super::layers#load-shed-buffer-and-concurrency-limit).
//!
//! # What a request costs
//!
//! Under every algorithm a request takes 1 unit, unless [`Rule::cost`](crate::Rule::cost) says
//! otherwise: more for a search, 0 for a page that only shows what is left. A cost above
//! [`Policy::largest_cost`](crate::Policy::largest_cost) can never pass. The answer is then 422,
//! without a `Retry-After`.
//!
//! # Changing a policy later
//!
//! Limit and burst can change while a store keeps its states: a key keeps its usage. Under another
//! name, algorithm or window a key starts with a full quota.
