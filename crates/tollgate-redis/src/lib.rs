//! The store of [tollgate](https://docs.rs/tollgate) that a fleet shares: exact limits over all its
//! processes, in Redis or Valkey, on one server, behind Sentinels or in a Cluster.
//!
//! ```no_run
//! use std::time::Duration;
//! use tollgate::{CircuitBreaker, MemoryStore, Quota, RateLimitLayer, Share, StoreExt};
//! use tollgate_redis::RedisStore;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::connect("redis://127.0.0.1/")
//!     .await?
//!     .timeout(Duration::from_millis(250))
//!     .circuit_breaker(CircuitBreaker::default())
//!     // While Redis fails, each of 3 processes grants a third of every quota. Or `.fail_closed()`.
//!     // Behind `.fail_open()`, a caller that can make Redis late switches all limits off.
//!     .fall_back_to(MemoryStore::new(), Share::new(1, 3));
//!
//! let layer = RateLimitLayer::per_ip(Quota::per_minute(100)).store(store);
//! # Ok(())
//! # }
//! ```
//!
//! Redis can be down, so a layer accepts this store only behind a failure policy. `timeout`,
//! `circuit_breaker`, `fall_back_to`, `fail_closed` and `fail_open` are
//! [wrappers of the crate `tollgate`](https://docs.rs/tollgate/latest/tollgate/failure/). That page
//! says what each of them does in each kind of outage.
//!
//! [`RedisStore::connect`] lists the URLs, and [`RedisStoreBuilder`] all settings. Services that
//! share a Redis but not their limits take different [prefixes](RedisStoreBuilder::prefix). With a
//! [secret](RedisStoreBuilder::secret), Redis stores no address and no API key. Passwords that
//! change, such as tokens of a cloud, come from a [source](RedisStoreBuilder::credentials).
//!
//! # What is exact
//!
//! The fleet never admits a unit more than the limit, however many requests arrive at once:
//!
//! - **One step.** A check is one call of a script, and Redis runs nothing else meanwhile. It looks
//!   at all rules of a request, and charges all or none. The scripts hold the same algorithms as
//!   the store in memory, compute in integers, and are tested against the same oracles.
//! - **One clock**, the server's. A process with a wrong clock changes nothing.
//! - **One round trip** for each check, on a server or a hash slot of a Cluster. A request that
//!   finds a free connection is sent at once. While all have a call in flight, checks gather, and
//!   the next call carries them: there is no timer and no added wait.
//!
//! A call carries at most 128 different requests. It also carries a bounded amount of work, about
//! 8 ms of the server's time: each request counts by what its algorithm costs at worst. While the
//! server is slow, calls carry less. Identical checks are merged into one grant, which is handed
//! out in the order of arrival: each caller's report says what was left after its own turn.
//!
//! A failover can lose charges, since replication is asynchronous. The units that a master granted
//! in its last moment may not have reached the replica that takes over. These units, and no others,
//! can be granted again. If the new master's clock is behind, a state that lies too far ahead
//! counts as a bucket used up or a full window. No caller waits longer for that, but in the queue
//! of a leaky bucket, which waits for the clock.
//!
//! # Refunds, releases and renewals
//!
//! The releases of slots, their renewals, and refunds together with resets travel apart from
//! checks and from each other. Each kind has a queue and calls of its own, one in flight for each
//! server or hash slot. On a server each has a connection, too. While a call is in flight, others
//! gather for the next. So refunds hold up neither a check nor a slot, and renewals hold up no
//! release.
//!
//! - A call carries about 2 ms of work: up to 100 renewals, or the refunds of up to 128 requests.
//!   One request with more is sent in parts, one after another.
//! - A refund in a log of 1,000 runs can take 1 to 3 ms alone. So if the limit of a log is 1,000 or
//!   more, a call carries one of its refunds: a process gives back one grant in a round trip.
//! - Once requested, they are sent even if the caller leaves or its `timeout` ends. Their failures
//!   never count for a circuit breaker.
//! - A renewal that the server executes late, after the slot was released, claims nothing. Only a
//!   holder that waits for the answer claims again a slot that the server has lost. That takes
//!   another round trip.
//!
//! # In a Cluster
//!
//! All rules of one key share a hash slot, so they are decided in one step, as on a single server.
//! Rules **with different keys** in one request (an address and a user, say) may be on different
//! nodes. Such a set takes two round trips, for any number of hash slots:
//!
//! 1. All hash slots are looked at, at the same time. If one refuses, the request is denied, and
//!    nothing was reserved anywhere.
//! 2. All hash slots are charged, at the same time. One may refuse now, because another caller took
//!    the units since the look. Then the units that the others granted are given back.
//!
//! So the order of the rules does not matter: a caller that is always refused holds no quota of
//! others. Only in the race of step 2 may others be refused units that come back a moment later.
//! The limit is never exceeded.
//!
//! Some units cannot be given back, and stay charged: those on a node that fails in between, and a
//! place in a leaky bucket's queue if later places were taken meanwhile.
//!
//! Slots of requests in flight are renewed by calls for each node. So a node that stalls costs no
//! hash slot of the others.
//!
//! While a hash slot moves, its callers are decided as before, with one exception. If several rules
//! of one key are charged together and some are new, no node decides them until the hash slot has
//! moved. A rule that tracks usage counts as two. After a quarter of a second of retries they fail
//! with an error.
//!
//! With TLS, a node's certificate must be for the name that `CLUSTER SLOTS` reports. That is its
//! address, or its host name with `cluster-preferred-endpoint-type hostname`.
//!
//! **Nodes behind NAT**, in containers or behind a tunnel announce inner addresses.
//! [`node_addresses`](RedisStoreBuilder::node_addresses) says where they are reached. Without it,
//! `connect` fails and names such an address: it asks a node of the URL for the address that it
//! announces (`CLUSTER MYID`, left out without that permission), and connects there.
//!
//! **Servers that name no nodes** are reached by a `redis-cluster://` URL, too: Redis Enterprise
//! without the OSS Cluster API, and Azure Managed Redis with the clustering policy "Enterprise".
//! They divide keys into hash slots behind one address, and answer `CLUSTER` with an error. All
//! calls then go through one connection, each with keys of one hash slot. This is tested with a
//! Redis whose `CLUSTER` is renamed, not with these services.
//!
//! A Cluster that has lost a master and its replicas answers no key at all once it has noticed,
//! unless `cluster-require-full-coverage` is `no`. With that setting, the keys of the other masters
//! are decided as before. Then configure the circuit breaker to tolerate the lost part:
//! `CircuitBreaker::default().failures_in_a_row(70).failures_of(70, 100)`. With the default and one
//! of three masters lost, five failures in a row occur by chance within seconds, and the circuit is
//! shared by all keys.
//!
//! # Connections and failures
//!
//! - **At start**, [`connect`](RedisStoreBuilder::connect) tries once. If Redis is down, the
//!   service starts anyway, and the store connects later. Only what a retry cannot fix is an
//!   error: a bad URL, a wrong password, a permission that buckets need, a proxy that cannot work.
//!   (A name that does not resolve is no error, since it may resolve later.) To learn whether Redis
//!   answers, ask the store for [`Times::LOOK`](tollgate_core::Times::LOOK), which charges nothing.
//! - **Connection pool.** Up to four connections to a server carry checks
//!   ([configurable](RedisStoreBuilder::connections)). Refunds and resets have one more, and so
//!   have releases, renewals and the checks of rules in shadow. Up to four carry questions about
//!   usage, one each. Each master of a Cluster has one connection.
//!   While connecting fails, checks fail at once. The store tries again after 5 ms to half a
//!   second, with jitter so that a fleet does not return in step.
//! - **Questions about usage** are asked four at a time. If four have no answer, another one waits
//!   for the [response timeout](RedisStoreBuilder::response_timeout) at most, and then fails with
//!   the kind [`Overloaded`](tollgate_core::ErrorKind::Overloaded).
//! - **Replacement.** A connection that ends, or that leaves three calls in a row unanswered, is
//!   replaced. All connections to a server are replaced at once in two cases: the server turns out
//!   to be a replica; or more calls in a row are left unanswered, over all connections, than there
//!   are for anything but questions about usage (at least three).
//! - **A connection that works is kept.** If a name or a load balancer moves to another server,
//!   stop the old server. Processes that are connected to it stay, and would count apart.
//! - **The masters of a Cluster fail apart.** No caller waits for a master that has none of its
//!   keys. New owners of hash slots are looked up in the background, from a node that answers.
//! - **No call is sent again that may have been executed.** Only answers that rule that out
//!   (`NOSCRIPT`, `MOVED`, `ASK`, `TRYAGAIN`, `READONLY`, `MASTERDOWN`) cause a retry. After a lost
//!   connection or a timeout the check is an error. It may have been charged, once.
//! - **A failed call counts once.** All callers that shared a call fail with it, also if there is
//!   no connection for it. A circuit breaker counts that as one failure.
//! - **A stall counts once.** While a node forks or runs a slow command of another client, many
//!   callers are late. That is one failure, whatever the load. A silence of twice a caller's limit
//!   or more is one failure after another, so that a circuit breaker opens.
//! - **A hash slot that moves is not an outage.** While its keys are on two nodes, both refuse some
//!   sets. After retries these fail with the kind [`Moving`](tollgate_core::ErrorKind::Moving),
//!   which no circuit breaker counts.
//! - **A long key costs its caller.** It is hashed in the task of its caller, before any lock. What
//!   follows is the same for each key: at most 128 bytes of text, and no more than 128 sets are
//!   written at a time.
//! - **Our own queue is not an outage.** If a check's deadline passes in the queue of this process
//!   while Redis answers others, the error has the kind
//!   [`Overloaded`](tollgate_core::ErrorKind::Overloaded). No circuit breaker counts it, and
//!   nothing was charged. The same holds if the queue is [full](RedisStoreBuilder::most_waiting).
//! - **Callers that leave** before their check was sent are charged nothing. The same holds if
//!   their `timeout` ends before. The exception is a set over several hash slots of a Cluster: it
//!   is brought to its end also if its caller leaves, and if its timeout ends after all hash slots
//!   were found to have room.
//! - **A slot that is granted too late is given back.** If a set with a
//!   [slot](tollgate_core::Policy::in_flight) was sent and its caller has left or timed out, the
//!   answer is awaited until the time to live of the slot would end. What it grants is refunded at
//!   once, with the rates of the set. If the connection ends before the answer, the slot may be
//!   taken for one time to live: see [`claims_lost`](RedisStore::claims_lost).
//! - **A `timeout` directly around the store** needs no timer for each check. One task ends the
//!   waits of all checks, in the runtime in which the store was connected. Callers in another
//!   runtime have a timer each, so that they do not depend on the store's runtime.
//!
//! # Protocols and proxies
//!
//! The store speaks RESP3, which reports the end of an idle connection. It speaks RESP2 with
//! servers and proxies that have no `HELLO`, and if the URL ends in `?protocol=resp2`. RESP2 does
//! not report that end, so a connection that was idle for a second is tried with a `PING` before it
//! is used.
//!
//! RESP3 connections have the name `tollgate:<version>` in `CLIENT LIST`.
//!
//! A proxy works if it stands in front of one server and knows `EVALSHA`. This is tested with
//! twemproxy in front of one server. A proxy that spreads keys over several servers cannot work: it
//! routes a call by the first key, so that each server would keep its own counts and limits would
//! multiply. Such are twemproxy and predixy with several servers, and Envoy's Redis proxy with
//! several upstreams. They are refused by `connect`, or once their servers come up. To find out,
//! the first connection writes sixteen keys named `<prefix>:sharding-check:…`, reads each, and
//! deletes them. With a `redis-cluster://` URL these are keys of one hash slot, and only a server
//! that names no nodes gets them. Reach a Cluster by its nodes, not through a proxy.
//!
//! # What Redis stores
//!
//! A key is named like `tollgate:2:{@192.0.2.1}:api~gcra~1m`: the
//! [prefix](RedisStoreBuilder::prefix), the version of the stored form, the key, and the policy
//! with its algorithm and window. Keys of more than 128 bytes are hashed (SHA-256, of
//! [`Key::as_encoded`](tollgate_core::Key::as_encoded)). With a
//! [secret](RedisStoreBuilder::secret) all keys are, so that Redis stores no address and no API
//! key. Every key expires when its state means nothing more. Keys of `Gcra` and `LeakyBucket`
//! expire within a second of that.
//!
//! A limit or a burst can be changed in place. So can the boundaries of a calendar, the time to
//! live of slots and the time of a block: what runs ends when it would have. With another name,
//! algorithm or window, counting starts again. While old and new processes run at the same time,
//! each decides by its own policy.
//!
//! A window then admits at most the larger of both limits. A bucket admits at most both bursts and,
//! in a time *t*, the faster rate × *t*. A refusal and a look change no state.
//!
//! | bytes a key | Redis 6.2 | Redis 7.0 | Redis 8.2 | Valkey 9.1 |
//! |---|--:|--:|--:|--:|
//! | a counter that expires, to compare | 112 (174) | 104 (172) | 96 (143) | 88 (120) |
//! | `Gcra`, `LeakyBucket` | 112 (178) | 104 (170) | 96 (142) | 88 (118) |
//! | `FixedWindow`, `CalendarWindow` | 112 (178) | 104 (170) | 96 (152) | 104 (134) |
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
//! The number in parentheses is the growth of `used_memory` with each of 10,000 such keys. It
//! includes their share of the tables of keys and expiry times. A name of 56 bytes is part of each
//! number. `cargo test -p tollgate-tests --test redis_docs -- --nocapture` prints the table. Valkey
//! needs up to 32 bytes more for some `Gcra` keys: those charged once, and those whose limit does
//! not divide the window into whole microseconds.
//!
//! A `SlidingLog` stores a run for each charge, whatever its cost: a time and a running count.
//! Charges of the same microsecond share a run. `SlidingBuckets` stores the same for each
//! sub-window with a charge. A [sorted set](SlidingLogLayout::SortedSet) can be searched by time,
//! and needs more memory than a [list](SlidingLogLayout::List) from 129 runs on.
//!
//! # What a check costs the server
//!
//! The table lists the commands that a check runs at worst, alone in its call. In parentheses are
//! the entries that they read: a time and a text of a log, or the value of another algorithm. The
//! limit is 100,000, all of it in use, and the costs are 1, 50,000 and 100,000. A test counts them:
//!
//! | commands (entries read), at most | charge | denial | look | refund |
//! |---|--:|--:|--:|--:|
//! | `Gcra` | 3 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `LeakyBucket` | 3 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `FixedWindow` | 2 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `CalendarWindow` | 3 (2) | 2 (1) | 1 (1) | 2 (1) |
//! | `SlidingWindow` | 2 (1) | 2 (1) | 1 (1) | 2 (1) |
//! | `SlidingBuckets` of 10 | 12 (8) | 9 (8) | 12 (12) | 13 (14) |
//! | `SlidingBuckets` of 1,000 | 25 (21) | 15 (14) | 31 (31) | 26 (357) |
//! | `SlidingLog`, 10 runs | 12 (8) | 9 (8) | 12 (12) | 13 (14) |
//! | `SlidingLog`, 100,000 runs | 39 (35) | 22 (21) | 52 (52) | 39 (1060) |
//! | the same as a sorted set, 10 runs | 9 (4) | 9 (8) | 9 (8) | 8 (9) |
//! | the same as a sorted set, 100,000 runs | 9 (4) | 22 (21) | 23 (22) | 8 (1028) |
//!
//! Each call adds a `TIME`. In a call of many checks, the first denial of `Gcra` runs 4 commands,
//! since its key was charged optimistically. The first charge of a `CalendarWindow` also reads the
//! name that earlier versions of this crate gave the key. These are the worst states. Usually a
//! charge runs 5 to 9 commands, and a denial of cost 1 runs 4 or 5.
//!
//! - `Gcra`, `LeakyBucket`, `FixedWindow`, `CalendarWindow`, `SlidingWindow`: constant.
//! - `SlidingBuckets` and `SlidingLog` with n runs: a check runs O(log n) commands, each of at most
//!   two entries. Neither the cost nor the number of buckets multiplies that.
//! - A refund runs O(log n) commands, and writes all runs again that are newer than the grant, at
//!   1 to 3 µs each. It reaches back [1,024
//!   runs](tollgate_core::Algorithm::REFUNDABLE_TIMES), which is more than a ring has. What an
//!   older run of a log has charged stays charged.
//! - A charge drops all runs whose window has ended with one command. That takes linear time, but
//!   each run is dropped once, so a charge pays for one run on average.
//!
//! # What tracked usage costs
//!
//! For a policy with [`Policy::track_usage`](tollgate_core::Policy::track_usage) the script that
//! decides also writes the last use and the total of the key. A call adds one `MGET` for all keys
//! of a rule, and a `PSETEX` for each key that was granted something. A set of several rules adds
//! an `MGET` for each key. Calls without such a policy have a script without this. The
//! server's time for a check, as a multiple of the same check untracked, on Redis 7.0 and 8.2:
//!
//! | server's time, tracked / untracked | alone in its call | in calls of 127 |
//! |---|--:|--:|
//! | `Gcra` | 1.5 to 1.7 × | 2.2 to 2.4 × |
//! | `FixedWindow` | 1.3 × | 1.6 to 1.8 × |
//! | `SlidingLog` | 1.3 × | 1.3 × |
//!
//! That is about 2 to 4 µs for a check. `Gcra` in large calls takes a single `INCRBY`, so a second
//! write doubles it. `cargo bench -p tollgate-benches --bench usage` prints the table.
//!
//! **Memory**: 165 to 200 bytes for each key with a name of 50 bytes, until it was not used for [30
//! days](RedisStoreBuilder::keep_usage_for). Requests that are refused store nothing, so a rule by
//! address in the same layer bounds what one address can invent.
//!
//! **Questions** scan all key names, in steps of 1,000, which other calls pass between. A page over
//! 1,000,000 tracked keys among 2,000,000 names takes 6 s, of which the server works 3 s. There is
//! no index. In a Cluster the script of a key cannot write to an index that other keys share. On a
//! server an index would add two sorted sets to each decision, without an end for its entries.
//!
//! # Advice for operators
//!
//! **Servers.** Redis 6.2 or later, or Valkey. The tests run on Redis 6.2, 7.0 and 8.2 and on
//! Valkey 9.1.
//!
//! **Use a separate Redis**, with room for all keys that live at once. In a Redis that is also a
//! cache, the cache decides when limits are evicted, and an evicted caller has the whole quota
//! again. Set `maxmemory-policy` to `volatile-lru` or `noeviction`: see [when memory is
//! full](#when-memory-is-full).
//!
//! **Persistence** is not needed. A server that restarts without it has lost all usage, and each
//! quota starts full. If that costs too much, as with quotas of a day, `appendonly yes` with
//! `appendfsync everysec` loses one second.
//!
//! **Permissions.** This user may do what the store does, and nothing else. It is one command; type
//! it as one line in `redis-cli`:
//!
//! ```text
//! ACL SETUSER tollgate on >password ~tollgate:* -@all
//!     +eval +evalsha +info +time +cluster|slots +asking +role
//!     +client|setname +ping
//!     +mget +psetex +incrby +del +pttl +pexpire
//!     +lindex +llen +lpush +lrange +ltrim +rpush
//!     +zadd +zcard +zcount +zrange +zrem
//!     +zremrangebyrank +zremrangebyscore +zscore
//!     +hset +hscan +hget +hdel
//!     +scan
//! ```
//!
//! - `cluster|slots` and `asking` are for a Cluster only, and `role` for Sentinels only. The last
//!   line but two is for sorted sets only, and the last two are for
//!   [usage](https://docs.rs/tollgate/latest/tollgate/usage/) only: `scan` for questions about
//!   tracked usage, and for [`RedisStore::stored_policies`]. `hget` and `hdel` are for
//!   [jobs](https://docs.rs/tollgate/latest/tollgate/jobs/) only, which also use `hset` and sorted
//!   sets.
//! - `client|setname` names connections. Without it they have no name.
//! - `ping` is for RESP2 only.
//! - If the URL names a database, add `+select`.
//!
//! **Other servers** that speak the protocol (Dragonfly, Garnet, KeyDB, Kvrocks) are not tested.
//! They need the commands above, also in scripts, and these functions of Lua 5.1: `error`,
//! `math.ceil`, `math.floor`, `math.max`, `math.min`, `redis.call`, `redis.pcall`, `string.find`,
//! `string.format`, `string.match`, `string.rep`, `string.sub`, `struct.pack`, `struct.unpack`,
//! `table.concat`, `table.remove`, `tonumber`, `type`, `unpack`. The command `tollgate store check`
//! of `tollgate-cli` tells whether a server decides as it must.
//!
//! # When memory is full
//!
//! Each `maxmemory-policy` forgets something else first. The numbers are those of 12 seconds on
//! Redis 7.0, with room for about 6,000 keys, while 12,000 keys of a daily quota were invented. In
//! each second 20 tenants with 2 slots, 10 of 20 blocked keys and 10 callers with a quota of 3
//! asked.
//!
//! | `maxmemory-policy` | most slots of a tenant (2) | blocks of 15 minutes, asking and silent (10, 10) | most units of a caller (3) | forgets first | choose it |
//! |---|--:|--:|--:|---|---|
//! | `volatile-lru` | 2 | 10, 0 | 3 | keys that were not asked for the longest time | by default |
//! | `noeviction` | 2 | 10, 10 | 3 | nothing: charges and new blocks fail, and the failure policy decides | with `fail_closed` and an alarm, if a limit or a block must hold even then |
//! | `volatile-ttl` | 4 | 0, 0 | 18 to 23 | keys that end soonest: slots, short quotas, then blocks | never |
//! | `volatile-lfu` | 2 | 10, 6 | 3 | keys that were asked rarely, so new callers and blocked ones | never |
//! | `volatile-random`, `allkeys-random` | 4 | 4 to 7, 1 to 3 | 9 to 12 | any key | never |
//! | `allkeys-lru`, `allkeys-lfu` | 2 | 10, 0 | 3 | the same as `volatile-…`, and keys of other programs that never expire | never |
//!
//! - **With `volatile-lru`** a key that is asked again keeps its state, if the memory holds all
//!   keys that callers use or invent between its requests, and in a second at least. Slots in use
//!   are renewed after a third of their time to live, and that counts as a request.
//! - **A silent guesser's block** is what `volatile-lru` forgets first. A guesser that waits until
//!   other keys have filled the memory has the rule's quota again, and is blocked again after as
//!   many denials as before. Only `noeviction`, or memory for all keys of that time, keeps the
//!   block.
//! - **With `volatile-ttl`** an attacker that invents keys of a long quota lifts short ones: slots
//!   live for seconds, blocks for minutes, quotas of a day for hours, and tracked usage for 30
//!   days.
//! - **With `noeviction`** slots in use are renewed and released as before. Only the first slot of
//!   a key fails.
//!
//! If the server has a `maxmemory` and another policy than the first two, the store writes warnings
//! to the log: one when it connects, and one for each rule of slots, with blocks or with tracked
//! usage, when a layer or a limiter is made.
//!
//! # Features
//!
//! | feature | default | for |
//! |---|---|---|
//! | `tracing` | yes | a warning if the server [evicts](#when-memory-is-full) limits in use |
//! | `tls` | no | `rediss://` URLs; `RedisStoreBuilder::root_certificates` and `client_certificate` |
//! | `test-util` | no | a store that uses a test's clock: `RedisStoreBuilder::clock` |
//!
//! # Modules
//!
//! From top to bottom, each imports only those below it: `builder`, `startup_check`,
//! `stored_policies`, `jobs`, `usage_log`, `usage_totals`, `store`, `usage`, `question`, `set`,
//! `commit`, `eviction`, `link`, `wire`, `error`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer_in_time;
mod builder;
mod commit;
mod error;
mod eviction;
mod jobs;
mod link;
mod question;
mod renewals;
mod set;
mod startup_check;
mod store;
mod stored_policies;
mod usage;
mod usage_log;
mod usage_totals;
mod wire;

pub use builder::RedisStoreBuilder;
pub use error::Error;
pub use link::Credentials;
pub use store::{AcquireFuture, RedisStore};
pub use stored_policies::StoredPolicies;
pub use wire::layout::SlidingLogLayout;
