//! Which algorithm keeps the promise that you want to make.
//!
//! [`algorithm`](crate::algorithm) tells what each guarantees and what its state costs. To choose:
//!
//! | you want to say | write | know that |
//! |---|---|---|
//! | "100 a minute, 20 of them at once" | `Policy::new("api", Quota::per_minute(100).burst(20))` | the default, the token bucket. A caller who was idle gets 120 in his first minute |
//! | "as you come, but evenly" | `.with_algorithm(Algorithm::LeakyBucket { max_wait })` | requests wait for their turn instead of failing. Each that waits is held, with its connection |
//! | "5,000 a day, from midnight UTC" | `.with_algorithm(Algorithm::FIXED_WINDOW_ALIGNED)` | twice that around midnight; and at midnight everybody is back at once |
//! | "5,000 a day, from your first request" | `.with_algorithm(Algorithm::FIXED_WINDOW)` | twice that around the end of the day |
//! | "about 5,000 in any day" | `.with_algorithm(Algorithm::SlidingWindow)` | an estimate, in little more memory than a fixed window takes |
//! | "never more than 5,000 in any day" | `.with_algorithm(Algorithm::SLIDING_BUCKETS)` | what was used may count for a tenth of a day too long |
//! | "5 log-ins in any hour, to the microsecond" | `.with_algorithm(Algorithm::SLIDING_LOG)` | memory for each unit: for few and dear ones |
//!
//! When in doubt, take the default with a burst: nobody waits longer than it takes for the units that he wants to come back.
//!
//! # The burst
//!
//! The token bucket holds `burst` units and is refilled at limit / window, so that a caller has at most
//! burst + limit × t / window in any time t. Without [`burst`](crate::Quota::burst) the bucket holds the whole limit:
//! `Quota::per_minute(100)` lets 100 requests pass at once, and 200 within the first minute. If 100 in *any* minute is the
//! promise, take `SLIDING_BUCKETS`; if it is to protect what is behind, take a small burst.
//!
//! Window algorithms have no burst: to give them one is an error at construction. For both promises take two rules, which
//! are decided together:
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
//! Ten a minute; ten requests just before the minute, ten just after it:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::extract::global;
//! use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, PolicyExt, Quota, Timestamp};
//!
//! async fn pass_in_200_ms(algorithm: Algorithm) -> usize {
//!     let time = ManualClock::new(Timestamp::from_micros(59_900_000));
//!     let policy = Policy::new("ten", Quota::per_minute(10)).with_algorithm(algorithm);
//!     let limiter = Limiter::new([policy.by(global())]).store(MemoryStore::builder().clock(&time).build());
//!     let mut passed = 0;
//!     for _ in 0..2 {
//!         for _ in 0..10 {
//!             passed += usize::from(limiter.check_key(&Key::global(), 1).await.is_ok());
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
//! A window that opens with the first request has the same seam, elsewhere: a caller who opens it with one request, and sends
//! nine at its end and ten in the next, has 19 within a moment.
//!
//! # The leaky bucket
//!
//! Here a request that comes too early reserves the next slot, and the layer holds it until then. What would wait longer than
//! `max_wait` is refused. The burst is 1 unless given: the first passes at once, the others one by one.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::extract::global;
//! use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, PolicyExt, Quota, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let even = Policy::new("even", Quota::per_second(10))
//!     .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_millis(200) });
//! # let time = ManualClock::new(Timestamp::from_micros(1_000_000));
//! let limiter = Limiter::new([even.by(global())]);
//! # let limiter = limiter.store(MemoryStore::builder().clock(&time).build());
//!
//! for wait in [0, 100, 200] {
//!     let permit = limiter.check_key(&Key::global(), 1).await.unwrap();
//!     assert_eq!(permit.delay(), Duration::from_millis(wait));
//! }
//! let denial = limiter.check_key(&Key::global(), 1).await.unwrap_err();
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
//! Under every algorithm a request takes 1 unit, or what [`Rule::cost`](crate::Rule::cost) says: more for a search, 0 for a
//! page that only shows what is left. A cost above [`Policy::largest_cost`](crate::Policy::largest_cost) can never pass, and
//! is answered 422 instead of a `Retry-After` in vain.
//!
//! # To change one later
//!
//! Limit and burst can change while states live on in a store: a key keeps what it has used. With another name,
//! algorithm or window it begins anew.
