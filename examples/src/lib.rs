//! What the examples have in common: the messages of a gRPC service. A package needs a library to hold examples.
//!
//! - `axum.rs`: the shortest server, to be copied. `cargo run --release --example axum`
//! - `tonic.rs`: the same with gRPC. `cargo run --release --example tonic`
//! - `redis.rs`: the same for a fleet, with its counts in Redis. `cargo run --release --example redis`
//! - `tiers.rs`: quotas by the caller's plan, costs by route, and what is left. `cargo run --release --example tiers`
//! - `stack.rs`: among the layers that one has in production. `cargo run --release --example stack`
//! - `hyper.rs`: a server without axum. `cargo run --release --example hyper`
//! - `client.rs`: keeps to the limit of somebody's API. `cargo run --release --example client`
//! - `playground/`: a server with every knob. `cargo run --release --example playground -- --help`
//! - `tests/`: starts them and talks to them over the network.

/// `helloworld.Greeter`, as `build.rs` compiles it from `proto/helloworld.proto`.
#[allow(missing_docs, reason = "generated")]
pub mod helloworld {
    tonic::include_proto!("helloworld");

    /// What reflection tells of it.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("helloworld");
}
