//! Finds and starts the programs of this package.

use std::process::Command;

use tollgate_examples::testing::Program;

/// Returns the program of an example. Cargo builds it before it runs the tests of the package.
pub(crate) fn program(example: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.exists(),
        "{} does not exist: first run `cargo build -p tollgate-examples --examples` in the same profile",
        program.display()
    );
    let mut command = Command::new(program);
    // Logs without colors: some test dependencies switch these on.
    command.env("NO_COLOR", "1");
    command
}

/// Starts an example that is a server.
#[track_caller]
pub(crate) fn start(example: &str, arguments: &[&str]) -> Program {
    Program::start(program(example).args(arguments))
}
