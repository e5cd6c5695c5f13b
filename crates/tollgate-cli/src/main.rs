//! The command `tollgate`: see the README of this crate.

#![allow(clippy::float_arithmetic, clippy::cast_precision_loss, reason = "figures of a report")]

// From top to bottom; imports run down this list only: this module, cli, load, replay, blocks,
// rules, keys, store, usage, and then the others.
mod blocks;
mod chart;
mod cli;
mod codes;
mod keys;
mod load;
mod output;
mod redis_args;
mod replay;
mod rules;
mod store;
mod table;
mod usage;
mod values;

use std::process::ExitCode;

use crate::cli::{Command, Parsed};
use crate::output::{complain, print};

#[tokio::main]
async fn main() -> ExitCode {
    let done = match cli::parse() {
        Ok(Parsed::Run(command)) => run(*command).await,
        Ok(Parsed::Print(text)) => print(&text).map(|()| ExitCode::SUCCESS),
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
        Command::Credit(args) => keys::credit(args).await,
        Command::Block(args) => blocks::block(&args).await,
        Command::Unblock(args) => blocks::unblock(&args).await,
        Command::Blocked(args) => blocks::blocked(&args).await,
        Command::Check(args) => rules::check(&args),
        Command::Explain(args) => rules::explain(&args).await,
        Command::Store(args) => store::run(args).await,
        Command::Code(args) => codes::show(&args),
        Command::Usage(args) => usage::run(args).await,
        Command::Replay(args) => replay::run(&args).await,
    }
}
