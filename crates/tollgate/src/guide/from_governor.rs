//! How to move a program from [governor](https://docs.rs/governor) 0.10, used without a layer.
//!
//! # The same program
//!
//! A job calls another API ten times a second and waits for its turn. Each user may send 60 mails
//! an hour, and ten at once. Before:
//!
//! ```text
//! let calls = RateLimiter::direct(Quota::per_second(nonzero!(10u32)));
//! let mails = RateLimiter::keyed(Quota::per_hour(nonzero!(60u32)).allow_burst(nonzero!(10u32)));
//!
//! calls.until_ready().await;
//! call_api().await;
//!
//! match mails.check_key_n(&user, recipients) {
//!     Ok(Ok(())) => send().await,
//!     Ok(Err(not_until)) => later(not_until.wait_time_from(clock.now())),
//!     Err(InsufficientCapacity(capacity)) => never(capacity),
//! }
//! // From time to time, in a task:
//! mails.retain_recent();
//! ```
//!
//! After:
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Key, Limiter, Policy, Quota};
//!
//! # async fn call_api() {}
//! # async fn send() {}
//! # fn later(wait: Duration) { assert_eq!(wait, Duration::from_secs(60)); }
//! # fn never() {}
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::Denial> {
//! # let time = tollgate::ManualClock::new(tollgate::Timestamp::from_micros(1_000_000));
//! # let store = tollgate::MemoryStore::builder().clock(&time).build();
//! let calls = Limiter::new([Policy::new("calls", Quota::per_second(10))]);
//! let mails = Limiter::new([Policy::new("mails", Quota::per_hour(60).burst(10))]);
//! # let mails = mails.store(store);
//!
//! // Fails if the turn would come later than in a minute.
//! let _permit = calls.until_ready(&Key::global(), 1, Duration::from_secs(60)).await?;
//! call_api().await;
//!
//! # for (user, recipients) in [("ada", 10), ("ada", 1), ("bob", 11)] {
//! match mails.check(&Key::from(user), recipients).await {
//!     Ok(_permit) => send().await,
//!     Err(denial) => match denial.retry_after() {
//!         Some(wait) => later(wait),
//!         None => never(),
//!     },
//! }
//! # }
//! # assert!(mails.check(&Key::from("ada"), 1).await.is_err());
//! # let denial = mails.check(&Key::from("bob"), 11).await.unwrap_err();
//! # assert_eq!((denial.reason(), denial.retry_after()), (tollgate::Reason::NeverPossible, None));
//! # Ok(())
//! # }
//! ```
//!
//! # The terms
//!
//! | governor | tollgate |
//! |---|---|
//! | `Quota::per_second(n)`, `per_minute`, `per_hour` | [the same](crate::Quota), with the same rate and burst. `n` is a `u64`: a zero in a constant is a compile error |
//! | `Quota::with_period(d)`: one each `d`, burst 1 | [`Quota::new(1, d)`](crate::Quota::new) |
//! | `.allow_burst(n)` | [`.burst(n)`](crate::Quota::burst) |
//! | `RateLimiter::direct(quota)` | [`Limiter::new`](crate::Limiter::new), asked with [`Key::global`](crate::Key::global) |
//! | `RateLimiter::keyed(quota)`, `dashmap`, `hashmap` | [`Limiter::new`](crate::Limiter::new), which takes several policies |
//! | a key of any type that is `Hash + Eq + Clone` | a [`Key`](crate::Key), from numbers, texts, bytes and addresses; [`Key::join`](crate::Key::join) for tuples |
//! | `check()`, `check_key(&key)` | [`check(&key, 1)`](crate::Limiter::check) |
//! | `check_n(n)`, `check_key_n(&key, n)` | `check(&key, n)` |
//! | `until_ready`, `until_key_ready`, `until_n_ready`, `until_key_n_ready` | [`until_ready(&key, n, at_most)`](crate::Limiter::until_ready) |
//! | `.._with_jitter(jitter)` | not needed: callers of one key wait in a queue |
//! | `NotUntil::wait_time_from(now)` | [`Denial::retry_after`](crate::Denial::retry_after) |
//! | `InsufficientCapacity` | [`Reason::NeverPossible`](crate::Reason::NeverPossible), and `retry_after` is `None` |
//! | `StateInformationMiddleware`, `remaining_burst_capacity` | [`Permit::report`](crate::Permit::report), whose statuses have `remaining` |
//! | `stream.ratelimit_stream(&limiter)` | `until_ready` before each item |
//! | `retain_recent`, `shrink_to_fit` | not needed: remove them |
//! | `len` | [`MemoryStore::keys`](crate::MemoryStore::keys) of a store that you give to the limiter |
//! | `FakeRelativeClock` | [`ManualClock`](crate::ManualClock) |
//!
//! # What behaves differently
//!
//! | | governor | tollgate |
//! |---|---|---|
//! | a check | is a function | is a future, because a store may be remote. With a store in memory it is ready when first polled |
//! | waiting | has no bound | has one. A caller that would wait longer is refused at once |
//! | many callers that wait | each ask again when the first may pass | are a queue for each key, in order of arrival: see [`until_ready`](crate::Limiter::until_ready) |
//! | the timer | is a thread of `futures-timer`, on any executor | is that of tokio |
//! | an interval | is cut to whole nanoseconds, so `per_second(3)` is one each 333,333,333 ns | is exact: [the rate is not rounded](super::algorithms) |
//! | a wait | is exact in nanoseconds | is rounded up to a microsecond |
//! | idle keys | stay until `retain_recent` | are removed as other keys are used, and memory has [a bound](crate::memory) |
//! | two limits | are two limiters: the first has charged when the second refuses | are two policies of one limiter: all are charged, or none |
//!
//! Both use GCRA, refuse a set of cells as a whole, and record nothing of refused ones. A caller
//! without an executor polls the future once:
//!
//! ```
//! use std::pin::pin;
//! use std::task::{Context, Poll, Waker};
//! use tollgate::{Key, Limiter, Policy, Quota};
//!
//! let limiter = Limiter::new([Policy::new("one", Quota::per_hour(1))]);
//! let check = || {
//!     let key = Key::global();
//!     let check = pin!(limiter.check(&key, 1));
//!     match check.poll(&mut Context::from_waker(Waker::noop())) {
//!         Poll::Ready(result) => result.is_ok(),
//!         Poll::Pending => unreachable!("a store in memory answers at once"),
//!     }
//! };
//! assert!(check() && !check());
//! ```
//!
//! # What tollgate adds
//!
//! [Refunds](crate::Limiter::refund), [other algorithms](super::algorithms), a store
//! [for a fleet](super::outages), a [layer](crate::RateLimitLayer) for HTTP and gRPC, and
//! [one for any other service](crate::calls).
