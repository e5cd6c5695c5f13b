//! Reads the command line of the process, and prints results and errors.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

/// Returns the arguments. If there are none to act on, prints the help or an error of one line, and
/// returns the exit code.
pub(crate) fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|error| {
        if error.use_stderr() {
            return fail(&one_line(&error.to_string()), 2);
        }
        print(&error.to_string());
        ExitCode::SUCCESS
    })
}

/// Returns the first paragraph of clap's message in one line, without advice and usage. It quotes
/// the user's input, so this replaces control characters.
fn one_line(message: &str) -> String {
    let first: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = first.join(" ").replace(char::is_control, "\u{fffd}");
    format!("{} (see --help)", line.strip_prefix("error: ").unwrap_or(&line))
}

/// Unlike `println!`, does not panic if standard output is closed.
pub(crate) fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

pub(crate) fn fail(error: &str, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {error}");
    ExitCode::from(code)
}
