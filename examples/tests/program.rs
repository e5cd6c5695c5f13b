//! Starts the programs of this package.

use tollgate_examples::testing::{Program, program};

/// Starts an example that is a server.
#[track_caller]
pub(crate) fn start(example: &str, arguments: &[&str]) -> Program {
    Program::start(program(example).args(arguments))
}
