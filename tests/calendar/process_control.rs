//! Starts processes with clocks of their own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tollgate_test_servers::libfaketime;

/// An answer of a process, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The end of the window.
    Granted(u64),
    /// The wait.
    Denied(u64),
}

pub(crate) struct Process {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// A process whose wall clock is `ahead` seconds ahead.
    pub(crate) fn start(url: &str, limit: u64, boundaries: &[u64], ahead: i64) -> Process {
        Process::with(url, limit, boundaries, |command| {
            if ahead != 0 {
                set_clock(command).env("FAKETIME", format!("{ahead:+}"));
            }
        })
    }

    /// A process whose wall clock steps when this file changes. It has seconds that the clock is
    /// ahead, such as `+0`.
    pub(crate) fn following(url: &str, limit: u64, boundaries: &[u64], file: &Path) -> Process {
        Process::with(url, limit, boundaries, |command| {
            set_clock(command).env("FAKETIME_TIMESTAMP_FILE", file).env("FAKETIME_NO_CACHE", "1");
        })
    }

    fn with(url: &str, limit: u64, boundaries: &[u64], set: impl FnOnce(&mut Command)) -> Process {
        let mut command = crate::process_of("calendar");
        command.arg(url).arg(limit.to_string()).args(boundaries.iter().map(u64::to_string));
        set(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Process { child, answers }
    }

    pub(crate) fn ask(&mut self) -> Answer {
        self.ask_for("ada")
    }

    pub(crate) fn ask_for(&mut self, key: &str) -> Answer {
        writeln!(self.child.stdin.as_mut().unwrap(), "{key}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        match line.trim_end().split_once(' ') {
            Some(("granted", start)) => Answer::Granted(start.parse().unwrap()),
            Some(("denied", wait)) => Answer::Denied(wait.parse().unwrap()),
            _ => panic!("a process said {line:?}"),
        }
    }
}

/// Lets the process have a wall clock of its own. Timers stay right.
fn set_clock(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", libfaketime().unwrap()).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
