//! What the command prints.

use std::io::{self, Write};

/// Prints text. Fails if standard output does not take it, such as on a full disk. A reader that
/// has closed its pipe, as `head` does, is no error.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut output = io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

/// Prints one error line. The text may quote the user's input, so this replaces control characters.
pub(crate) fn complain(error: &str) {
    let _ = writeln!(io::stderr(), "error: {}", printable(error));
}

/// Replaces control characters, which a page in Redis or an argument may contain.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}
