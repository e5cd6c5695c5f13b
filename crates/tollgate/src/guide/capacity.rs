//! How many decisions a second one Redis, a Cluster and a leased fleet make.
//!
//! All figures are from one virtual machine with **two cores**, with Redis 7.0 and the client on
//! the same two cores. Use their ratios, and measure on your own machines before you plan capacity.
//! `benches/peers` in the repository measures one process and one Redis. The figures of leased
//! fleets are simulated.
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
//! checks when more requests wait. Adding processes adds requests in flight, and no capacity of
//! Redis.
//!
//! | it grows with | it does not grow with |
//! |---|---|
//! | requests in flight in one process: they share calls | the number of processes |
//! | requests for one key: identical checks are merged | the number of rules of a key: they are one call |
//! | denials: they write nothing | |
//!
//! # A Cluster
//!
//! Keys are spread over the masters by their slot, so the load of many keys is too. **One key is on
//! one master:** a hot key gets no faster. Rules with different keys in one request may take a call
//! for each slot, and a refund if one of them refuses.
//!
//! How many decisions a Cluster of three masters makes was not measured: on two cores the masters
//! and the client would share the processors. Measure yours.
//!
//! # A leased fleet
//!
//! A lease takes one round trip for many decisions, so Redis does less for each. What Redis sees is
//! *decisions × round trips for each decision*. The simulator counts those: for a limit of 20,000 a
//! second with 80 % load on 20 processes they are 0.017, so Redis sees 272 calls a second for
//! 16,000 decisions. Above the limit most requests are denials, which leases do not save: with 150
//! % load they are 0.62. Add [`deny_cache`](crate::ScaleExt::deny_cache) for those.
//!
//! The rate of a fleet then grows with its processes, as if the state were in memory. This holds
//! for keys with many requests in one process. Fewer than two in the life of a lease (250 ms) are
//! not leased.
//!
//! # Which to choose
//!
//! | decisions a second | keys | choose |
//! |---|---|---|
//! | as many as your Redis makes with a third of its thread | any | one Redis, exact |
//! | more, most of them denied | any | one Redis with `deny_cache` |
//! | more | few and busy | one Redis with `leased`: a Cluster does not help one key |
//! | more | many and each with few requests | a Cluster |
//! | more | many, and some of them busy | a Cluster with `leased` |
//!
//! See [`scale`](super::scale) for what leases and the cache change.
