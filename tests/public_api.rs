//! The tests of the public API that change nothing of their process, and need a server at most in
//! passing: one binary, so that the dependencies are linked once, and tests that wait do so side by
//! side.

mod axum_server;
mod failure;
mod grpc;
mod guide;
mod memory_store;
mod observe;
mod programs;
mod regressions;
mod service;
mod stacks;

/// A process of its own: see `process.rs` in the folder of that name.
fn process_of(folder: &str) -> std::process::Command {
    let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate-test-process"));
    process.arg(folder);
    process
}
