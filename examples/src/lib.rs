//! The messages of the gRPC examples. (A package needs a library to hold examples.)
//!
//! `cargo run --release --example NAME` runs an example:
//!
//! | name | what it shows |
//! |---|---|
//! | `axum` | the shortest server, to copy |
//! | `tonic` | the same with gRPC |
//! | `redis` | the same for a fleet, with its state in Redis |
//! | `tiers` | a quota for each plan, a cost for each route, and what is left |
//! | `login` | failed log-ins by address and by name |
//! | `behind_proxy` | the client's address behind proxies |
//! | `stack` | the limit among the layers of a production server |
//! | `hyper` | a server without axum |
//! | `client` | a client that stays within the limit of another API |
//! | `reqwest` | a reqwest client that stays within the limit of another API |
//! | `fleet` | a simulated fleet: exact decisions, leases and local shares compared |
//! | `playground` | a server with every option; `-- --help` lists them |
//!
//! The tests in `tests/` start the examples and talk to them over the network.

/// `helloworld.Greeter`, as `build.rs` compiles it from `proto/helloworld.proto`.
#[allow(missing_docs, reason = "generated")]
pub mod helloworld {
    tonic::include_proto!("helloworld");

    /// The description that the reflection service sends.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("helloworld");
}

/// The code blocks of these documents are tests: published crates cannot include them.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../../README.md")]
    mod repository {}
    #[doc = include_str!("../../crates/tollgate/README.md")]
    mod tollgate {}
    #[doc = include_str!("../../crates/tollgate-redis/README.md")]
    mod tollgate_redis {}
}
