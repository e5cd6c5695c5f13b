//! Tests that count allocations, and tests that each have a process of their own, since they
//! measure or change something of a whole process.

#![expect(clippy::unwrap_used, reason = "this is how a test fails")]

mod allocations;
mod crypto_provider;
mod each_decision;
mod log_codes;
mod long_keys;
mod memory_per_key;
mod missing_extension;
mod missing_hop;
mod missing_peer;
mod no_clock;
mod slow_senders;
mod stopped_server;

use std::any::type_name;
use std::env;
use std::process::Command;

/// In the process of a test, the name of that test.
const ALONE: &str = "TOLLGATE_TEST_ALONE";

/// Runs that test in a process of its own, and returns true. In that process, returns false.
fn ran_in_own_process<F: Fn()>(_: F) -> bool {
    let (_, test) = type_name::<F>().split_once("::").unwrap();
    if env::var(ALONE).is_ok_and(|alone| alone == test) {
        return false;
    }
    let mut process = Command::new(env::current_exe().unwrap());
    let run = process.args([test, "--exact", "--nocapture"]).env(ALONE, test).output().unwrap();
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    println!("{output}{errors}");
    assert!(run.status.success() && output.contains("1 passed"), "{test} failed in its process");
    true
}
