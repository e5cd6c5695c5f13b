//! Starts the playground on a free port, and kills it at the end of the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

pub(crate) struct Playground {
    child: Child,
    /// Kept open, so that the server can continue to write.
    stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Playground {
    pub(crate) fn start(rule: &str) -> Playground {
        Playground::start_with(&["--rule", rule])
    }

    /// Starts it. Cargo builds all programs before it runs the tests of the workspace.
    pub(crate) fn start_with(options: &[&str]) -> Playground {
        let test = std::env::current_exe().unwrap();
        let name = format!("playground{}", std::env::consts::EXE_SUFFIX);
        let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
        assert!(
            program.exists(),
            "{} does not exist: first run `cargo build --example playground` in the same profile",
            program.display()
        );
        let mut command = Command::new(program);
        let mut child =
            command.args(["--listen", "127.0.0.1:0"]).args(options).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(',').next());
        let address = address.unwrap_or_else(|| panic!("{options:?}: it does not listen: {line:?}"));
        Playground { child, address: address.trim().parse().unwrap(), stdout }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What the only policy has left for this address.
    pub(crate) fn remaining(&self) -> u64 {
        let answer = get(self.address, "/me");
        let digits = answer
            .split("\"remaining\":")
            .nth(1)
            .map(|rest| rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    /// The address of its metrics, which it prints after the others. It needs `--metrics`.
    pub(crate) fn metrics(&mut self) -> SocketAddr {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "no address of metrics");
            if let Some(address) = line.strip_prefix("http://").and_then(|line| line.split_once("/metrics "))
            {
                return address.0.parse().unwrap();
            }
        }
    }
}

/// Returns the whole response to a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Drop for Playground {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
