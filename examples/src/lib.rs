//! Nothing to see here: a package needs a library to hold examples.
//!
//! - `axum.rs`: the shortest server, to be copied. `cargo run --release --example axum`
//! - `redis.rs`: the same for a fleet, with its counts in Redis. `cargo run --release --example redis`
//! - `playground/`: a server with every knob. `cargo run --release --example playground -- --help`
//! - `tests/`: starts them and talks to them over the network.
