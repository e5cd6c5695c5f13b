//! Uses the command `tollgate` as its users do: against a playground, and against a Redis.
//!
//! Tests assert counts and exit codes, never that something was fast.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod arguments;
mod blocks;
mod check;
mod codes;
mod explain;
mod forecast;
mod http;
mod keys;
mod playground;
mod redis;
mod replay;
mod rules;
mod run;
mod store_check;
mod tls;
mod usage;
mod windows;
