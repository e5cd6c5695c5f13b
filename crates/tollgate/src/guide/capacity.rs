//! How many decisions a second one Redis, a Cluster and a leased fleet make.
//!
//! All figures are from one virtual machine with **two cores**, with Redis 7.0 and the client on
//! the same two cores. Use their ratios, and measure on your own machines before you plan capacity.
//! `benches/peers` in the repository measures one process, one Redis and a Cluster. The figures of
//! leased fleets are simulated.
//!
//! # One process
//!
//! 512 requests in flight, whole layer, no header fields, thousands of decisions a second:
//!
//! | state | 10,000 keys evenly | 10,000 keys by Zipf's law | one key |
//! |---|--:|--:|--:|
//! | in memory | 3,683 to 6,577 | 6,796 | 7,100 |
//! | in Redis, exact | 487 | 617 | 1,418 |
//!
//! # One Redis
//!
//! A Redis decides on one thread, and its processor time is the limit of an exact fleet. A decision
//! takes 2.4 µs of it with 64 requests in flight, and 1.4 to 1.7 µs with 512: calls carry more
//! checks when more requests wait. More decisions a second come from:
//!
//! - more requests in flight in one process: they share calls;
//! - more requests for one key: identical checks are merged;
//! - more denials: they write nothing.
//!
//! More processes add none. All rules of a key are one call.
//!
//! # A Cluster
//!
//! Keys are spread over the masters by their slot. **One key is on one master:** more masters do
//! not help a hot key. Rules with different keys in one request may take a call for each slot, and
//! a refund if one of them refuses.
//!
//! **Checks of different slots cannot share a call.** One Redis gets many keys in one call, a
//! Cluster gets a call for each slot. With many keys it therefore takes more time of its servers.
//! The store alone, 512 requests in flight, all servers and the client on two cores that other
//! programs used too:
//!
//! | keys | servers | | k decisions/s | calls for each decision | server µs, of all servers |
//! |---|---|---|--:|--:|--:|
//! | 10,000 evenly | one | exact | 192 | 0.008 | 2.90 |
//! | | | leased | 97 | 0.009 | 4.87 |
//! | | three masters | exact | 25 | 0.980 | 26.4 |
//! | | | leased | 19 | 1.297 | 27.7 |
//! | 10,000 by Zipf's law | one | exact | 185 | 0.008 | 2.89 |
//! | | | leased | 237 | 0.004 | 2.00 |
//! | | three masters | exact | 33 | 0.612 | 15.6 |
//! | | | leased | 51 | 0.463 | 11.6 |
//! | one | one | exact | 652 | 0.009 | 0.52 |
//! | | | leased | 1,154 | 0.004 | 0.21 |
//! | | three masters | exact | 800 | 0.003 | 0.19 |
//! | | | leased | 1,110 | 0.001 | 0.09 |
//!
//! In this run a decision for one of many keys cost a Cluster nine times the server time, so three
//! masters decide less than one Redis. Choose a Cluster for its memory and its failover. How it
//! grows with masters on machines of their own is not measured.
//!
//! Leases help keys with many requests. With 10,000 keys evenly a key has two to five requests in
//! the life of a lease. Such a lease costs a fetch and often a refund, and saves nothing.
//!
//! # A leased fleet
//!
//! A lease takes one round trip for many decisions, so Redis does less for each. What Redis sees is
//! *decisions × round trips for each decision*. The simulator counts those: for a limit of 20,000 a
//! second with 80 % load on 20 processes they are 0.016, so Redis sees 251 calls a second for
//! 16,000 decisions. Above the limit most requests are denials, which leases do not save: with 150
//! % load they are 0.62. Add [`deny_cache`](crate::StoreExt::deny_cache) for those.
//!
//! In that fleet a process has 200 requests of the key in the life of a lease (250 ms), on average.
//! Fewer requests in a life save fewer round trips. A key with up to two is not leased.
//!
//! # Which to choose
//!
//! | decisions a second | keys | choose |
//! |---|---|---|
//! | as many as your Redis makes with a third of its thread | any | one Redis, exact |
//! | more, most of them denied | any | one Redis with `deny_cache` |
//! | more | few and busy | one Redis with `leased`: a Cluster does not help one key |
//! | more | many, and some of them busy | one Redis with `leased` |
//! | more | many and each with few requests | several Redis servers with a part of the callers each: measure a Cluster first |
//!
//! See [`scale`](super::scale) for what leases and the cache change.
