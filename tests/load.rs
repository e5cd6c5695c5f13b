//! Fleets and faults: tests that load the machine, or kill and stop servers under load. A binary of
//! its own, so that they do not run next to other tests.

mod attacks;
mod faults;
mod gateways;
mod log_ins;
mod rows;
mod slots;
mod stalls;

/// A process of its own: see `process.rs` in the folder of that name.
fn process_of(folder: &str) -> std::process::Command {
    let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_tollgate-test-process"));
    process.arg(folder);
    process
}
