//! A guide, with a chapter for each question between the first `.layer()` and production.
//!
//! | chapter | it answers |
//! |---|---|
//! | [`recipes`] | what to copy: log-ins, JWT, WebSockets, GraphQL, well-known proxies, JSON errors, tests |
//! | [`algorithms`] | which algorithm fits your limit |
//! | [`keys`] | which caller a request is charged to, behind which proxies, and which headers to trust |
//! | [`layers`] | where to put the limit among other layers |
//! | [`outages`] | what happens to requests while the store fails |
//! | [`scale`] | how to decide most requests without a round trip: leases and the cache of denials |
//! | [`capacity`] | how many decisions a second one Redis, a Cluster and a leased fleet make |
//! | [`watching`] | how to see what the limiter does: metrics, span fields, closures |
//! | [`tiers`] | how to give some callers another quota, and exempt some requests |
//! | [`grpc`] | what gRPC and Connect clients see, and where to put the layer in a tonic server |
//! | [`testing`] | how to test limits without waiting |
//! | [`writing_a_store`] | how to keep the state in a store of your own |
//! | [`from_tower_governor`] | how to move a service from tower_governor |
//! | [`from_axum_governor`] | how to move a service from axum-governor |
//! | [`from_governor`] | how to move a program from governor, used without a layer |
//! | [`from_tower`] | how to move a service from tower's own rate limit |
//! | [`from_redis_script`] | how to move a service from a hand-written Redis script, and which bugs such scripts have |
//!
//! The examples are tests of this crate: what they assert holds.

pub mod algorithms;
pub mod capacity;
pub mod from_axum_governor;
pub mod from_governor;
pub mod from_redis_script;
pub mod from_tower;
pub mod from_tower_governor;
pub mod grpc;
pub mod keys;
pub mod layers;
pub mod outages;
pub mod recipes;
pub mod scale;
pub mod testing;
pub mod tiers;
pub mod watching;
pub mod writing_a_store;
