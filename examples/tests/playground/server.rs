//! Starts example programs on a free port, and kills them at the end of the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::client::{Connection, Response};

/// A running server.
pub(crate) struct Server {
    child: Child,
    /// Kept open, so that the server can continue to write.
    stdout: BufReader<ChildStdout>,
    /// The first line of its output.
    pub(crate) first_line: String,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts the playground with these rules.
    pub(crate) fn with_rules(rules: &[&str]) -> Server {
        Server::playground(&rules.iter().flat_map(|rule| ["--rule", rule]).collect::<Vec<_>>())
    }

    /// Starts the playground with these options.
    pub(crate) fn playground(options: &[&str]) -> Server {
        Server::start("playground", &[&["--listen", "127.0.0.1:0"], options].concat())
    }

    /// Starts an example whose first line of output contains its address.
    pub(crate) fn start(example: &str, arguments: &[&str]) -> Server {
        let mut child = program(example).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address =
            line.split_once("http://").map(|(_, rest)| rest.trim().split(',').next().unwrap_or(rest));
        let address = address.unwrap_or_else(|| panic!("{example} {arguments:?} does not listen: {line:?}"));
        let address = address.parse().unwrap();
        Server { child, stdout, first_line: line, address }
    }

    /// Returns the lines of standard output after the first, up to one that begins with `last`.
    pub(crate) fn says_until(&mut self, last: &str) -> String {
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
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.get_with(path, &[])
    }

    /// Sends header lines in the given order.
    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        self.connect().request("GET", path, headers)
    }

    pub(crate) fn transfer(&self, amount: &str) -> Response {
        self.connect().request("POST", &format!("/transfer/{amount}"), &[])
    }

    /// Returns a value of a policy in the answer of `/me`, or `None` if it is absent.
    pub(crate) fn me(&self, policy: &str, value: &str) -> Option<u64> {
        let me = self.get("/me").json();
        let policies = me["policies"].as_array().unwrap();
        policies.iter().find(|each| each["name"] == policy).unwrap_or_else(|| panic!("{me}"))[value].as_u64()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program of an example. Cargo builds it before it runs the tests of the package.
pub(crate) fn program(example: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program: PathBuf =
        profile.join("examples").join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
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
