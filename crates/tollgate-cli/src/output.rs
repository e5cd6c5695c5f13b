//! What the command prints.

use std::io::{self, Write};

/// Unlike `println!`, does not panic if standard output is closed.
pub(crate) fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Prints one error line. The text may quote the user's input, so this replaces control characters.
pub(crate) fn complain(error: &str) {
    let _ = writeln!(io::stderr(), "error: {}", printable(error));
}

/// Replaces control characters, which a page in Redis or an argument may contain.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
