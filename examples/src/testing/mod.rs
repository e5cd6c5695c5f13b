//! For tests: starts a program and talks to it over the network. Panics where a test would fail.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod client;
mod program;

pub use client::{Connection, Response};
pub use program::{Program, program};
