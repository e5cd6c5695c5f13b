//! The test servers: they start, stop, and live as long as the other tests expect.

mod cluster;
mod fetch;
mod lifetime;
mod sentinel;
mod server;

use std::process::Command;
use std::thread;
use std::time::Duration;

use tollgate_test_servers::Kind;

/// Runs a test for every kind of server at once, each on a thread with the kind's name.
fn of_every_kind(test: impl Fn(Kind) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for &kind in Kind::EVERY {
            let named = thread::Builder::new().name(kind.to_string());
            named.spawn_scoped(scope, move || test(kind)).expect("a thread");
        }
    });
}

/// Waits until the condition holds, for a minute at most.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("not in a minute: {what}");
}

/// A process that runs `process.rs` with these arguments.
fn process_of(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-server-process"));
    command.args(words);
    command
}
