//! A program that runs for the time of a test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::{Connection, Response};

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Kept open, so that the server can continue to write.
    stdout: BufReader<ChildStdout>,
    first_line: String,
    address: SocketAddr,
}

impl Program {
    /// Starts a program whose first line of output contains its address.
    #[track_caller]
    pub fn start(command: &mut Command) -> Program {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).unwrap();
        let address = first_line
            .split_once("http://")
            .map(|(_, rest)| rest.trim().split(',').next().unwrap_or(rest))
            .unwrap_or_else(|| panic!("{command:?} does not listen: {first_line:?}"));
        let address = address.parse().unwrap();
        Program { child, stdout, first_line, address }
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the first line of its standard output.
    pub fn first_line(&self) -> &str {
        &self.first_line
    }

    /// Returns the lines of standard output after the first, up to one that begins with `last`.
    #[track_caller]
    pub fn says_until(&mut self, last: &str) -> String {
        let mut said = String::new();
        loop {
            let start = said.len();
            assert_ne!(self.stdout.read_line(&mut said).unwrap(), 0, "no line begins with {last:?}: {said}");
            if said[start..].starts_with(last) {
                return said;
            }
        }
    }

    /// Sends the signal to stop, and waits for the end of the process.
    pub fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Opens a connection.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends a GET on a connection of its own.
    pub fn get(&self, path: &str) -> Response {
        self.get_with(path, &[])
    }

    /// Sends a GET with header lines in the given order.
    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.connect().request("GET", path, headers)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program of an example. `cargo test --workspace` builds it first.
pub fn program(example: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.exists(),
        "{} does not exist: first run `cargo build --examples` in the same profile",
        program.display()
    );
    let mut command = Command::new(program);
    // Logs without colors: some test dependencies switch these on.
    command.env("NO_COLOR", "1");
    command
}
