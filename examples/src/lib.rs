//! Nothing to see here: a package needs a library to hold examples.
//!
//! - `axum.rs`: the shortest server, to be copied. `cargo run --release --example axum`
//! - `playground/`: a server with every knob. `cargo run --release --example playground -- --help`
//! - `tests/`: starts both and talks to them over the network.
