//! Runs the command.

use std::process::{Command, Output};

/// What a command that has ended has printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn tollgate(arguments: &[&str]) -> Ran {
    Ran::from(command(arguments).output().unwrap())
}

/// The command, without options from the environment, and with time for a busy machine.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.env_remove("TOLLGATE_PASSWORD").env_remove("TOLLGATE_SECRET").env("TOLLGATE_TIMEOUT", "60s");
    command.args(arguments);
    command
}

/// Runs `tollgate load`, which must succeed.
#[track_caller]
pub(crate) fn load(arguments: &[&str]) -> Ran {
    let ran = tollgate(&[&["load"], arguments].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}: {}", ran.stdout);
    ran
}

/// Returns the output of a command that succeeds.
#[track_caller]
pub(crate) fn shown(arguments: &[&str]) -> String {
    let ran = tollgate(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}: {}", ran.stdout);
    ran.stdout
}

/// Returns the cells of the row that begins with this name. Two spaces or more separate them.
#[track_caller]
pub(crate) fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let cells = |line: &'a str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let mut rows = table.lines().map(cells);
    rows.find(|row: &Vec<_>| row[0] == name).unwrap_or_else(|| panic!("no row of {name}: {table}"))
}

impl From<Output> for Ran {
    fn from(Output { status, stdout, stderr }: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl Ran {
    /// The cells of the line that begins with this word.
    #[track_caller]
    pub(crate) fn row(&self, name: &str) -> Vec<u64> {
        let mut lines = self.stdout.lines().map(str::split_whitespace);
        let mut row = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words));
        let words = row.as_mut().unwrap_or_else(|| panic!("no line of {name}: {}", self.stdout));
        words.map(|word| word.replace(',', "").parse().unwrap()).collect()
    }

    /// The numbers of requests that were allowed, denied, and failed.
    #[track_caller]
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.row("allowed")[0], self.row("denied")[0], self.row("failed")[0])
    }
}
