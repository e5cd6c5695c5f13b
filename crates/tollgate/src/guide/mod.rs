//! A guide: a chapter for each question that comes up between the first `.layer()` and production.
//!
//! | chapter | it answers |
//! |---|---|
//! | [`algorithms`] | which algorithm keeps the promise that you want to make |
//! | [`keys`] | whom a request is charged to, behind which proxies, and whom to believe |
//! | [`layers`] | where among the other layers the limit stands |
//! | [`outages`] | what happens to requests while the store is away |
//! | [`tiers`] | how some callers get another quota, and some requests none |
//! | [`grpc`] | what gRPC clients are told, and where the layer stands in a server of tonic |
//! | [`testing`] | how to test limits without waiting for them |
//! | [`writing_a_store`] | how to keep the state in a place of your own |
//! | [`from_tower_governor`] | what becomes of a service that is limited by tower_governor |
//!
//! The examples are tests of this crate: what they assert holds.

pub mod algorithms;
pub mod from_tower_governor;
pub mod grpc;
pub mod keys;
pub mod layers;
pub mod outages;
pub mod testing;
pub mod tiers;
pub mod writing_a_store;
