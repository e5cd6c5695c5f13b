//! How to move a service from a hand-written Redis script, and which bugs such scripts have.
//!
//! # The same service
//!
//! Each API key gets 100 requests a minute on all servers together. Before, one of these:
//!
//! ```text
//! -- A counter.                              -- A log.
//! local n = redis.call('INCR', KEYS[1])      redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, ARGV[1] - 60000)
//! if n == 1 then                             redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1])
//!   redis.call('EXPIRE', KEYS[1], 60)        redis.call('EXPIRE', KEYS[1], 60)
//! end                                        return redis.call('ZCARD', KEYS[1]) <= 100
//! return n <= 100
//! ```
//!
//! After, with the crate [tollgate-redis](https://docs.rs/tollgate-redis):
//!
//! ```text
//! let redis = RedisStore::connect("redis://127.0.0.1/").await?;
//! let app = app(redis);
//! ```
//!
//! ```
//! use std::time::Duration;
//! use axum::{Router, routing::get};
//! use tollgate::extract::header;
//! use tollgate::{Algorithm, CircuitBreaker, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
//! use tollgate::store::Store;
//! use tollgate::Share;
//!
//! fn app<S: Store>(redis: S) -> Router {
//!     let store = redis
//!         .timeout(Duration::from_millis(50))
//!         .circuit_breaker(CircuitBreaker::default())
//!         // While Redis fails, each of 3 servers grants a third of the quota.
//!         .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//!     let rule = Policy::new("api", Quota::per_minute(100))
//!         // For the counter: `Algorithm::FIXED_WINDOW`.
//!         .with_algorithm(Algorithm::SLIDING_LOG)
//!         .by(header("x-api-key"));
//!     Router::new().route("/", get(|| async { "hello" })).layer(RateLimitLayer::new(rule).store(store))
//! }
//! # let _ = app(MemoryStore::new());
//! ```
//!
//! # The terms
//!
//! | in a script | tollgate |
//! |---|---|
//! | `INCR` and `EXPIRE`: a window from the first request on | [`FIXED_WINDOW`](crate::Algorithm::FIXED_WINDOW) |
//! | a key with the minute in its name | [`FIXED_WINDOW_ALIGNED`](crate::Algorithm::FIXED_WINDOW_ALIGNED) |
//! | a sorted set of times | [`SLIDING_LOG`](crate::Algorithm::SLIDING_LOG); [`SLIDING_BUCKETS`](crate::Algorithm::SLIDING_BUCKETS) needs less memory |
//! | two counters, weighted | [`SlidingWindow`](crate::Algorithm::SlidingWindow) |
//! | a hash of tokens and a time | [`Gcra`](crate::Algorithm::Gcra), the default: a token bucket in one number |
//! | `INCRBY KEYS[1] cost` | [`Rule::cost`](crate::Rule::cost), or [`Limiter::check(&key, cost)`](crate::Limiter::check) |
//! | `TTL` for `Retry-After` | [`Denial::retry_after`](crate::Denial::retry_after), and the header |
//! | `DECR` to give back | [`Limiter::refund`](crate::Limiter::refund) |
//! | `DEL` to forgive | [`Limiter::reset`](crate::Limiter::reset) |
//! | `ZCOUNT` of the last ten seconds | [`RecentUsage`](crate::usage::RecentUsage) |
//! | the prefix of the key | `RedisStore::builder(url).prefix(..)` |
//!
//! [Algorithms](super::algorithms) says how much each admits. Around the end of a window, a counter
//! admits up to twice its limit. A log never does.
//!
//! # The bugs of such scripts
//!
//! Look for these in yours. Each has a test in `tests/` of the repository, against real servers.
//!
//! | bug | what happens | test |
//! |---|---|---|
//! | `EXPIRE` if the count is 1, after `INCRBY` of a larger cost | the key never expires, and the caller is refused for ever | `redis/life.rs`: `a_first_request_of_cost_two_leaves_a_key_that_expires` |
//! | `INCR` and `EXPIRE` as two commands, and the process dies in between | the same | `redis/healing.rs`: `a_key_without_an_end_gets_one_by_a_charge_and_by_a_denial` |
//! | `EXPIRE` with each hit of a counter | the window of a busy caller never ends | `redis/life.rs`: `hits_do_not_prolong_the_life_of_a_window` |
//! | `GET`, a decision in the program, then `INCR` | a burst passes between the two | `redis/load.rs`: `processes_that_share_a_limit_get_it_exactly` |
//! | `ZADD` before the count is compared, as above | refused requests count: a caller that keeps trying never passes, and an attack grows the log | `redis/denials.rs`: `a_denied_request_writes_nothing`, `denied_requests_do_not_grow_a_log` |
//! | the time as the member of the sorted set, as above | two requests of one millisecond count as one | `redis/load.rs`: `merged_callers_get_exactly_the_limit` |
//! | the time of the caller | servers whose clocks differ have different windows | `faults/clock.rs`: `a_promoted_replica_with_a_slow_clock_keeps_the_limit` |
//! | `tostring` of a time in microseconds | Lua keeps 14 digits of it | `redis/contract.rs`: `large_numbers_reach_commands_as_digits` |
//! | `EVALSHA` without `EVAL` for the reply `NOSCRIPT` | each request fails after Redis has restarted | `redis/scripts.rs`: `flushed_scripts_fail_no_request_and_grant_nothing_twice` |
//! | a call is sent again after a timeout | the request is charged twice | `redis/lost.rs`: `a_reply_that_is_lost_after_the_charge_charges_once` |
//! | two keys without a common hash tag | an error in a Cluster | `redis/cluster/mod.rs`: `all_policies_of_a_key_share_a_slot` |
//! | several limits, one script call each | the first has charged when the second refuses | `redis/cluster/sets.rs`: `a_set_over_several_slots_charges_no_key_when_one_refuses` |
//! | no timeout, and no answer to an error | requests hang while Redis does, or all of them pass | `faults/main.rs`: `every_policy_keeps_its_promise_under_every_fault` |
//!
//! # The day of the change
//!
//! The names of the keys differ, so all callers start with their full quota. Old keys expire by
//! themselves, except those of the first two bugs: delete these. To see the new limit decide before
//! it refuses, run it [in the shadow](super::recipes::applications#a-limit-in-the-shadow).
