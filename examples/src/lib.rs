//! What the example programs and their tests share: the messages of the gRPC examples, and how a
//! test starts a program and talks to it.
//!
//! Each file of this directory is a program to copy. `cargo run --release -p tollgate-examples
//! --example NAME` runs it:
//!
//! | name | what it shows |
//! |---|---|
//! | `tonic` | the same with gRPC |
//! | `redis` | the same for a fleet, with its state in Redis |
//! | `tiers` | a quota for each plan, a cost for each route, and what is left |
//! | `login` | failed log-ins by address and by name |
//! | `llm_gateway` | a budget of tokens, charged as a language model streams them |
//! | `exports` | two long exports at a time for each API key |
//! | `polled_limits` | a limit of its own for each customer, from a table that changes |
//! | `job_queue` | jobs of a customer, taken by one worker and ended by any |
//! | `behind_proxy` | the client's address behind proxies |
//! | `stack` | the limit among the layers of a production server |
//! | `hyper` | a server without axum |
//! | `client` | a client that stays within the limit of another API |
//! | `reqwest` | a reqwest client that stays within the limit of another API |
//!
//! Three directories are packages of their own:
//!
//! | command | what it runs |
//! |---|---|
//! | `cargo run --example hello` | the shortest server, to copy |
//! | `cargo run --release -p playground --example playground` | a server with every option; `-- --help` lists them |
//! | `cargo run --release -p fleet` | a simulated fleet: exact decisions, leases and local shares compared |
//!
//! The directory `tests` of each package starts its programs and talks to them over the network.

pub mod testing;

/// `helloworld.Greeter`, generated from `proto/helloworld.proto` by the test in `tests/generated`.
#[allow(missing_docs, reason = "generated")]
pub mod helloworld {
    include!("../proto/helloworld.rs");
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
