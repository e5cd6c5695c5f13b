//! The store of [tollgate](https://docs.rs/tollgate) that a fleet shares: exact limits over all its processes, in Redis or
//! Valkey, on a server, behind Sentinels or in a Cluster.
//!
//! ```no_run
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, FailureExt, Quota, RateLimitLayer};
//! use tollgate_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1/")
//!     .await?
//!     .timeout(Duration::from_millis(50))
//!     .circuit_breaker(CircuitBreaker::default())
//!     .fail_open(); // or .fail_closed(), or .fall_back_to(..)
//!
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! # Ok(())
//! # }
//! ```
//!
//! Redis can be down, and a layer takes the store only once it was told what happens then: `timeout`,
//! `circuit_breaker`, `fail_open`, `fail_closed` and `fall_back_to` are
//! [wrappers of the crate `tollgate`](https://docs.rs/tollgate/latest/tollgate/failure/), and that page tells what each outage
//! then means.
//! [`RedisStore::connect`] has the URLs, [`RedisStoreBuilder`] all that can be chosen: services that share a Redis and not their
//! limits take a [prefix](RedisStoreBuilder::prefix) each, and with a [secret](RedisStoreBuilder::secret) no address and no API key
//! rests in Redis.
//!
//! # What is exact
//!
//! Never a unit more than the limit passes in the whole fleet, whoever asks, however many at once:
//!
//! - **One step.** A check is one call of a script: it looks at all rules of a request, and charges all or none, while
//!   nobody else is served. The scripts hold the same algorithms as the store in memory, in integers, and are held to the
//!   same oracles.
//! - **One clock**, the server's. A process whose clock is wrong changes nothing.
//! - **One round trip**, on a server or a slot of a Cluster. A lone request has a call of its own, which leaves at once. While a
//!   call is under way checks gather, and the next call carries those of up to 128 requests that differ, at once and without
//!   a timer. Those that ask the same are merged into one grant, handed out in the order of their arrival: each is told how
//!   things stand after its own turn.
//!
//! A failover can lose charges: replication is asynchronous, and what a master granted in its last moment may not have
//! reached the replica that takes over. These units, and no others, can then be had once more. Where the new master's clock
//! is behind, states that lie too far ahead are cut to an empty bucket or a full window, and nobody waits for longer.
//!
//! # In a Cluster
//!
//! All rules of one key share a slot: they are one step, as on a single server. Rules **with different keys** in one
//! request (an address and a user, say) may be on different nodes: they are asked in order, a round trip each, and what the
//! first granted is given back where a later one refuses. Meanwhile others may be refused what comes back a moment later;
//! never is too much granted. What cannot be given back stays charged: where a node failed in between; and in a leaky bucket,
//! where others have queued behind that place meanwhile. So let a leaky bucket with a key of its own be the last rule: before
//! others, it fills up with requests that they refuse.
//!
//! **Put the rule first that a caller cannot choose the key of**, the address. A request that a later rule refuses has held
//! units of the earlier ones meanwhile, and costs a trip to give them back: were the user's rule first, a flood from an address
//! that is refused could hold the quota of a user whose name it writes.
//!
//! While a slot moves, its callers are decided as ever, but for several rules of one key of which some are new there: no node
//! decides these until the slot has moved, and after a quarter of a second of asking they are an error.
//!
//! By TLS, the nodes' certificates have to be for what `CLUSTER SLOTS` calls them: for their addresses, or for names with
//! `cluster-preferred-endpoint-type hostname`.
//!
//! A Cluster that has lost a master, and its replicas, answers no key at all any more once it has noticed, unless
//! `cluster-require-full-coverage` is `no`. With that, the keys of the others are decided as ever. Have a circuit breaker bear it
//! as well, `CircuitBreaker::default().failures_in_a_row(70).failures_of(70, 100)`: of three masters without one, five answers in a
//! row are failures by mere chance within seconds, and the circuit is that of all.
//!
//! # Connections and failures
//!
//! - [`connect`](RedisStoreBuilder::connect) tries once. A Redis that is down is no error: a service starts, and the store
//!   joins when it comes up. What does not pass by itself is one: a bad URL, a wrong password, a permission that buckets need. (A
//!   name that does not resolve is none: it may tomorrow.) Whoever wants to know whether Redis answers asks the store, for
//!   [`Times::LOOK`](tollgate_core::Times::LOOK), which charges nothing.
//! - Four connections to a server carry checks unless [said](RedisStoreBuilder::connections), and one more what is given back
//!   or reset where those are busy; one to each master of a Cluster. One that dies, or leaves three calls in a row unanswered, is
//!   replaced. All to a server are replaced once more calls in a row were left unanswered, on whichever of them, than there are
//!   connections (and three at least), and once it turns out to be a replica. While connecting fails, checks fail at once, and it
//!   is tried again after 5 ms to half a second, at random, lest a fleet come back in step.
//! - A connection that serves is kept. Where a name or a load balancer is turned to another server, stop the old server: who is
//!   connected to it stays, and would count apart.
//! - The masters of a Cluster fail apart: nobody waits for one that his keys are not on. Who has taken over is asked in the
//!   background, of a node that answers.
//! - **Nothing is sent twice that may have been executed.** Only answers that say that nothing was (`NOSCRIPT`, `MOVED`,
//!   `ASK`, `TRYAGAIN`, `READONLY`, `MASTERDOWN`) have a call sent again. After a lost connection or a timeout, the check is an error,
//!   and may have been charged: once.
//! - Checks that wait while Redis hangs are [bounded](RedisStoreBuilder::most_waiting). Those whose callers have given up
//!   before they were sent, or whose `timeout` has ended, are charged nothing; but for a set over several slots of a Cluster,
//!   which is brought to its end once it was begun.
//! - A `timeout` directly around the store costs no timer for each check: one task ends the waits of all, in the runtime in
//!   which the store was connected. Callers in another runtime have a timer each, so that they need not rely on that one.
//!
//! # What rests in Redis
//!
//! `tollgate:1:{@192.0.2.1}:api~gcra~1m`: the [prefix](RedisStoreBuilder::prefix), the version of the stored form, the key,
//! and the policy with its algorithm and window. A limit or a burst can be changed in place; another name,
//! algorithm or window begins anew. While old and new processes run side by side, each decides by its own. But a bucket that the new
//! ones fill sooner than the old (a smaller burst, or a larger limit with the same burst) is taken by them for that of a clock that ran
//! ahead, and what lies beyond is forgiven to the old ones as well, again and again: for that deployment, make the new policy
//! with [`Policy::sharing_state_with`](tollgate_core::Policy::sharing_state_with) of the old one. Keys of more than 128 bytes are hashed, and
//! with a [secret](RedisStoreBuilder::secret) all are, so that no address and no API key rests in Redis. Every key expires
//! when its state means nothing more, those of `Gcra` and `LeakyBucket` within a second of it.
//!
//! | bytes a key | Redis 6.2 | Redis 7.0 | Redis 8.2 | Valkey 9.1 |
//! |---|--:|--:|--:|--:|
//! | a counter that expires, to compare | 112 (174) | 104 (172) | 96 (143) | 88 (120) |
//! | `Gcra`, `LeakyBucket` | 112 (178) | 104 (170) | 96 (142) | 88 (118) |
//! | `FixedWindow` | 112 (178) | 104 (170) | 96 (152) | 104 (134) |
//! | `SlidingWindow` | 142 (209) | 136 (202) | 128 (174) | 120 (155) |
//! | `SlidingBuckets` of 10, one in use | 203 (280) | 200 (282) | 112 (157) | 112 (142) |
//! | `SlidingBuckets` of 10, all in use | 292 (378) | 280 (362) | 192 (226) | 192 (222) |
//! | `SlidingLog`, 10 runs | 331 (391) | 312 (394) | 224 (272) | 224 (253) |
//! | the same as a sorted set | 243 (312) | 232 (293) | 224 (289) | 224 (250) |
//! | `SlidingLog`, 100 runs | 1,483 (1,564) | 1,464 (1,546) | 1,376 (1,423) | 1,296 (1,325) |
//! | the same as a sorted set | 1,411 (1,487) | 1,384 (1,450) | 1,376 (1,416) | 1,296 (1,326) |
//! | `SlidingLog`, 1,000 runs | 14,099 (14,190) | 13,536 (13,620) | 13,528 (13,692) | 13,120 (13,148) |
//! | the same as a sorted set | 103,000 (102,000) | 94,000 (102,000) | 79,000 (87,000) | 63,000 (63,000) |
//!
//! The number in parentheses is by how much `used_memory` grows with each of 10,000 such keys: it adds
//! what the tables of keys and expiry times take. A name of 56 bytes is part of each;
//! `cargo test -p tollgate-tests --test redis_docs -- --nocapture` prints the table.
//! Valkey takes up to 32 bytes more for a `Gcra` key that was charged once, or whose limit does not divide its window into
//! whole microseconds.
//!
//! A `SlidingLog` stores a run for each charge, whatever it cost: its time and a running count.
//! Charges of the same microsecond share a run. `SlidingBuckets` stores the same for each sub-window
//! that saw a charge. A run that was refunded whole may stay until it is over; such runs are at most
//! half of a log, and 64 more. As a [sorted set](SlidingLogLayout::SortedSet) a log can be searched by
//! time, and takes more memory than as a [list](SlidingLogLayout::List) from 129 runs on.
//!
//! # What a check costs the server
//!
//! Commands that a check runs inside its script at worst, and in parentheses the entries they read: of
//! a log an entry is a time and a text, of others the value. The limit is 100,000, all of it in use,
//! and the costs are 1, 50,000 and 100,000. A test counts them:
//!
//! | commands (entries read), at most | charge | denial | look | refund |
//! |---|--:|--:|--:|--:|
//! | `Gcra` | 3 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `LeakyBucket` | 3 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `FixedWindow` | 2 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `SlidingWindow` | 2 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `SlidingBuckets` of 10 | 15 (11) | 16 (20) | 15 (20) | 29 (31) |
//! | `SlidingBuckets` of 1,000 | 29 (25) | 34 (50) | 35 (50) | 58 (73) |
//! | `SlidingLog`, 10 runs | 15 (11) | 16 (20) | 15 (20) | 29 (31) |
//! | `SlidingLog`, 100,000 runs | 50 (46) | 55 (85) | 63 (85) | 92 (112) |
//! | the same as a sorted set, 10 runs | 12 (8) | 16 (20) | 15 (20) | 25 (25) |
//! | the same as a sorted set, 100,000 runs | 25 (21) | 55 (85) | 54 (85) | 67 (79) |
//!
//! Each call adds a `TIME`. These are the worst states, in which units were given back all over the
//! log. Usually a charge runs 6 to 10 commands, and a denial of cost 1 runs 5 or 6.
//!
//! - `Gcra`, `LeakyBucket`, `FixedWindow`, `SlidingWindow`: constant.
//! - `SlidingBuckets` and `SlidingLog` with n runs: a check runs O(log n) commands, each of at most two
//!   entries. Neither the cost nor the number of buckets multiplies that.
//! - A refund runs O((log n)²) commands, and usually about as many as a check. One refund in n / 2
//!   rewrites the log without what was refunded, in O(n).
//! - A charge drops all runs that are over with one command. The server takes linear time for that, but
//!   each run is dropped once, so a charge pays for one run on average.
//! - The other exceptions are rare: a clock that stepped back moves the runs ahead of it at once, and
//!   a log that counted 2^52 units without being empty is rewritten.
//!
#![doc = include_str!("../docs/stored-values.md")]
//!
//! # Advice for operators
//!
//! **Servers.** Redis 6.2 or later, or Valkey; the tests run on Redis 6.2, 7.0 and 8.2 and on Valkey 9.1.
//!
//! **A Redis of its own**, with room for all keys that live at once. Beside a cache, an `allkeys-…` policy evicts limits,
//! and an evicted caller has the whole quota again. When memory is full:
//!
//! | `maxmemory-policy` | what happens | choose it |
//! |---|---|---|
//! | `volatile-ttl` | the keys go whose states would have ended soonest: whoever is forgotten wins what that rest of time would have brought | mostly |
//! | `noeviction` | every charge fails, also those of keys that are there: the failure policy decides all requests | with `fail_closed` and an alarm, where a limit must hold even then |
//! | others | keys go without regard to what that lets pass | never |
//!
//! **Persistence** is not needed: a server that restarts without it has forgotten all usage, and each quota begins anew.
//! Where that is too dear for quotas of a day, `appendonly yes` with `appendfsync everysec` loses a second.
//!
//! **Permissions.** This user may do what the store does, and nothing else. `asking` and `cluster|slots` are for a Cluster
//! only, `role` for Sentinels only, the last line for sorted sets only. It is one command; `redis-cli` takes it in one line. A
//! URL that names a database needs `+select` as well:
//!
//! ```text
//! ACL SETUSER tollgate on >password ~tollgate:* -@all
//!     +eval +evalsha +info +time +cluster|slots +asking +role
//!     +mget +psetex +incrby +del +pttl +pexpire
//!     +lindex +llen +lpush +lrange +lset +ltrim +rpush
//!     +zadd +zcard +zcount +zrange +zrem +zremrangebyrank
//! ```
//!
//! # Features
//!
//! | feature | default | for |
//! |---|---|---|
//! | `tls` | no | `rediss://` URLs; `RedisStoreBuilder::root_certificates` and `client_certificate` |
//! | `test-util` | no | a store that goes by the clock of a test: `RedisStoreBuilder::clock` |

#![cfg_attr(docsrs, feature(doc_cfg))]

// From top to bottom: each module uses those below it only.
mod builder;
mod commit;
mod error;
mod link;
mod set;
mod store;
mod trial;
mod wire;

pub use builder::RedisStoreBuilder;
pub use error::Error;
pub use store::{Acquire, Done, RedisStore};
pub use wire::layout::SlidingLogLayout;
