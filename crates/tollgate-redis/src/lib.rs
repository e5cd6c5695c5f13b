//! The store of [tollgate](https://docs.rs/tollgate) that a fleet shares.

mod batch;
mod builder;
mod commit;
mod error;
mod link;
mod names;
mod numbers;
mod script;
mod spread;
mod store;
mod terms;
mod topology;

pub use builder::{RedisStoreBuilder, SlidingLogLayout};
pub use error::Error;
pub use store::{Acquire, Done, RedisStore};
