//! Starts the playground on a free port, and kills it at the end of the test.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use tollgate_examples::testing::{Program, Response, program};

/// A running playground.
pub(crate) struct Server(Program);

impl Server {
    /// Starts the playground with these rules.
    #[track_caller]
    pub(crate) fn with_rules(rules: &[&str]) -> Server {
        Server::playground(&rules.iter().flat_map(|rule| ["--rule", rule]).collect::<Vec<_>>())
    }

    /// Starts the playground with these options.
    #[track_caller]
    pub(crate) fn playground(options: &[&str]) -> Server {
        Server(Program::start(playground().args(["--listen", "127.0.0.1:0"]).args(options)))
    }

    /// Starts the playground with these options. Its log is in a file.
    #[track_caller]
    pub(crate) fn with_log(options: &[&str], log: &Path) -> Server {
        let log = File::create(log).unwrap();
        Server(Program::start(playground().args(["--listen", "127.0.0.1:0"]).args(options).stderr(log)))
    }

    /// Sends the signal to stop, and waits for the end of the process.
    pub(crate) fn stop(self) {
        self.0.stop();
    }

    pub(crate) fn transfer(&self, amount: &str) -> Response {
        self.connect().request("POST", &format!("/transfer/{amount}"), &[])
    }

    /// Sends a method and a path, and returns the lines of the answer's body as they come.
    #[track_caller]
    pub(crate) fn stream(&self, request: &str) -> impl Iterator<Item = String> + use<> {
        let mut connection = TcpStream::connect(self.address()).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // HTTP/1.0 has no chunks of its own: the body ends with the connection.
        connection.write_all(format!("{request} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
        let status = lines.next().unwrap();
        assert!(status.contains(" 200 "), "{status}");
        lines.skip_while(|line| !line.is_empty()).skip(1)
    }

    /// Returns a value of a policy in the answer of `/me`, or `None` if it is absent.
    pub(crate) fn me(&self, policy: &str, value: &str) -> Option<u64> {
        let me = self.get("/me").json();
        let policies = me["policies"].as_array().unwrap();
        policies.iter().find(|each| each["name"] == policy).unwrap_or_else(|| panic!("{me}"))[value].as_u64()
    }
}

impl Deref for Server {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.0
    }
}

/// Returns the command that starts the playground.
pub(crate) fn playground() -> Command {
    program("playground")
}

/// Waits until a condition holds, for 30 seconds or more.
#[track_caller]
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let mut turns = 0;
    while !condition() {
        assert!(turns < 3_000, "the condition does not become true");
        turns += 1;
        sleep(Duration::from_millis(10));
    }
}
