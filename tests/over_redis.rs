//! What a store in Redis and Valkey promises, and what processes share through it. Apart from
//! `public_api`, so that a change of one is not compiled with the other.

mod calendar;
mod pairs;
mod redis;
mod redis_docs;
mod rules;
mod scale;
mod usage;

/// A process of its own: see `process.rs` in the folder of that name.
fn process_of(folder: &str) -> std::process::Command {
    let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate-test-process"));
    process.arg(folder);
    process
}
