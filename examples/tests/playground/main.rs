//! Drives the examples as their users do: by a command line and over the network.
//!
//! Tests assert what was answered and that waits were at least as long as they had to be, never that something was
//! fast. Where an answer depends on requests coming close together, the quota leaves them a second or more.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod addresses;
mod algorithms;
mod arguments;
mod axum_example;
mod client;
mod client_example;
mod costs;
mod fields;
mod fleet;
mod grpc;
mod hyper_example;
mod keys;
mod outage;
mod redis_example;
mod server;
mod several_rules;
mod stack_example;
mod tiers_example;
mod tonic_example;

// An example's own unit tests are not run by `cargo test` unless it is no longer built as a program: they run here.
#[path = "../../playground/key_spec.rs"]
mod key_spec;
#[path = "../../playground/rule_spec.rs"]
mod rule_spec;
#[path = "../../playground/span.rs"]
mod span;
