//! Starts the playground on a free port, and kills it at the end of the test.

use std::ops::{Deref, DerefMut};
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

    /// Sends the signal to stop, and waits for the end of the process.
    pub(crate) fn stop(self) {
        self.0.stop();
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
