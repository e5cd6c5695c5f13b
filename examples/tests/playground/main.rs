//! Uses the examples as their users do: by command line and over the network.
//!
//! Tests assert answers, and that a wait was long enough, but never that something was fast. If an
//! answer depends on requests that follow each other closely, the quota leaves a second or more.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod addresses;
mod algorithms;
mod arguments;
mod axum_example;
mod behind_proxy_example;
mod browser;
mod client;
mod client_example;
mod costs;
mod dashboard;
mod fields;
mod fleet;
mod grpc;
mod hyper_example;
mod keys;
mod login_example;
mod metrics;
mod ops;
mod outage;
mod readme;
mod redis_example;
mod reqwest_example;
mod server;
mod several_rules;
mod stack_example;
mod tiers_example;
mod tonic_example;

// `cargo test` does not run the unit tests of an example, so these modules are part of this binary.
#[path = "../../playground/key_spec.rs"]
mod key_spec;
#[path = "../../playground/rule_spec.rs"]
mod rule_spec;
#[path = "../../playground/span.rs"]
mod span;
