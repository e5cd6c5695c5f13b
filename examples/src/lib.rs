//! Nothing to see here: a package needs a library to hold examples.
//!
//! - `axum.rs`: the shortest server, to be copied. `cargo run --release --example axum`
//! - `redis.rs`: the same for a fleet, with its counts in Redis. `cargo run --release --example redis`
//! - `tiers.rs`: quotas by the caller's plan, costs by route, and what is left. `cargo run --release --example tiers`
//! - `stack.rs`: among the layers that one has in production. `cargo run --release --example stack`
//! - `hyper.rs`: a server without axum. `cargo run --release --example hyper`
//! - `client.rs`: keeps to the limit of somebody's API. `cargo run --release --example client`
//! - `playground/`: a server with every knob. `cargo run --release --example playground -- --help`
//! - `tests/`: starts them and talks to them over the network.
