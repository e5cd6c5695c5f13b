//! Uses the playground as its users do: by command line and over the network.
//!
//! Tests assert answers, and that a wait was long enough, but never that something was fast. If an
//! answer depends on requests that follow each other closely, the quota leaves a second or more.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod addresses;
mod algorithms;
mod arguments;
mod browser;
mod classes;
mod costs;
mod dashboard;
mod fields;
mod fleet;
mod grpc;
mod in_flight;
mod jobs;
mod keys;
mod login;
mod metrics;
mod ops;
mod outage;
mod rules_file;
mod server;
mod several_rules;
mod stress;
mod tokens;
