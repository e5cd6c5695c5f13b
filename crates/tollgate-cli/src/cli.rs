//! The command line for clap. The arguments of a command stand with it.

use clap::{Parser, Subcommand};

use crate::blocks::{self, BlockArgs, FoundArgs};
use crate::codes::{self, CodeArgs};
use crate::keys::{self, CreditArgs, KeyArgs};
use crate::load::{self, LoadArgs};
use crate::replay::{self, ReplayArgs};
use crate::rules::{self, CheckArgs, ExplainArgs};
use crate::store::StoreArgs;
use crate::usage::UsageArgs;

/// Loads rate limiters, explains their rules, tries rules on a log, and shows how keys stand in
/// them.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, arg_required_else_help = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Loads a server, or a Redis, and counts what is admitted
    #[command(next_line_help = true, after_help = load::AFTER_HELP, override_usage = load::USAGE)]
    Load(LoadArgs),

    /// Shows how a key stands in the policies of a Redis
    #[command(next_line_help = true, after_help = keys::LOOK_AFTER_HELP)]
    Look(KeyArgs),

    /// Forgets what a key has used in the policies of a Redis
    #[command(next_line_help = true, after_help = keys::RESET_AFTER_HELP)]
    Reset(KeyArgs),

    /// Gives units of a policy in a Redis back to a key
    #[command(next_line_help = true, after_help = keys::CREDIT_AFTER_HELP)]
    Credit(CreditArgs),

    /// Blocks a key in a Redis for the time of a policy
    #[command(next_line_help = true, after_help = blocks::BLOCK_AFTER_HELP)]
    Block(BlockArgs),

    /// Lifts the blocks of a key in a Redis
    #[command(next_line_help = true, after_help = blocks::FOUND_AFTER_HELP)]
    Unblock(FoundArgs),

    /// Shows which policies of a Redis block a key, and for how long
    #[command(next_line_help = true, after_help = blocks::FOUND_AFTER_HELP)]
    Blocked(FoundArgs),

    /// Lists every mistake in a file of rules, or says what the rules mean
    #[command(next_line_help = true, after_help = rules::CHECK_AFTER_HELP)]
    Check(CheckArgs),

    /// Shows what a file of rules does with a request
    #[command(next_line_help = true, after_help = rules::EXPLAIN_AFTER_HELP)]
    Explain(ExplainArgs),

    /// Shows which keys are allowed and denied most often, or use most, and when
    #[command(arg_required_else_help = false)]
    Usage(UsageArgs),

    /// Checks whether a server can be the store of a fleet
    #[command(arg_required_else_help = false)]
    Store(StoreArgs),

    /// Says what a code in the log of a service means, and what to do
    #[command(after_help = codes::AFTER_HELP, arg_required_else_help = false)]
    Code(CodeArgs),

    /// Shows what rules would have refused of the requests in a log
    #[command(next_line_help = true, after_help = replay::AFTER_HELP)]
    Replay(ReplayArgs),
}

/// The result of a command line without errors.
#[derive(Debug)]
pub(crate) enum Parsed {
    Run(Box<Command>),
    /// The help, or the version.
    Print(String),
}

/// Reads the command line of the process. Errors are one line.
pub(crate) fn parse() -> Result<Parsed, String> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Parsed::Run(Box::new(cli.command))),
        Err(error) if !error.use_stderr() => Ok(Parsed::Print(error.to_string())),
        Err(error) => Err(one_line(&error.to_string())),
    }
}

/// Returns the first paragraph of clap's message in one line, without advice and usage.
fn one_line(message: &str) -> String {
    let first: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = first.join(" ");
    format!("{} (see --help)", line.strip_prefix("error: ").unwrap_or(&line))
}
