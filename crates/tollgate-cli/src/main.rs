//! The command `tollgate`: see the README of this crate.

#![allow(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "figures of a report")]

mod chart;
mod cli;
mod found;
mod key_spec;
mod keys;
mod load;
mod policy_spec;
mod redis_args;
mod span;
mod table;
mod usage;

use std::io::{self, Write};
use std::process::ExitCode;

use crate::cli::{Command, Parsed};

#[tokio::main]
async fn main() -> ExitCode {
    let done = match cli::parse() {
        Ok(Parsed::Run(command)) => run(*command).await,
        Ok(Parsed::Print(text)) => {
            print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error),
    };
    done.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::from(2)
    })
}

async fn run(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Load(args) => load::run(args).await,
        Command::Look(args) => keys::look(&args).await,
        Command::Reset(args) => keys::reset(&args).await,
        Command::Usage(args) => usage::run(args).await,
    }
}

/// Unlike `println!`, does not panic if standard output is closed.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Prints one error line. The text may quote the user's input, so this replaces control characters.
fn complain(error: &str) {
    let _ = writeln!(io::stderr(), "error: {}", error.replace(char::is_control, "\u{fffd}"));
}
