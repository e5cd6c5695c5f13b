//! `tollgate check`: every mistake of a file, or what its rules mean.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tollgate::layer::RuleChange;

use super::RulesText;
use super::changes::changes;
use super::names::application_names;
use super::warnings::warnings;
use super::words::in_words;
use crate::output::{print, printable};

pub(crate) const AFTER_HELP: &str = "\
Without a mistake, this prints each rule in words, the names that the application must provide, and
warnings. The exit code is 1 if there are mistakes; warnings do not change it.

Examples:
  tollgate check rules.toml
  tollgate check rules.toml --before deployed.toml";

/// `tollgate check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Rules in TOML, or in JSON if the name ends in .json
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The file that FILE replaces: shows which rules change, and which start again
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
}

/// Prints what is wrong with a file, or what it says.
pub(crate) fn check(args: &CheckArgs) -> Result<ExitCode, String> {
    let text = RulesText::read(&args.file)?;
    let mistakes = text.mistakes();
    if !mistakes.is_empty() {
        let path = args.file.display();
        print_lines(mistakes.iter().map(|mistake| format!("{path}: {mistake}")))?;
        return Ok(ExitCode::FAILURE);
    }
    let (file, mut lines) = (text.rules()?, Vec::new());
    lines.extend(file.rules().iter().map(|rule| format!("{}: {}", rule.name, in_words(rule))));
    let names: BTreeSet<_> = file.rules().iter().flat_map(application_names).collect();
    let names: Vec<String> = names.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
    if !names.is_empty() {
        lines.push(format!("names of the application: {}", names.join(", ")));
    }
    lines.extend(warnings(&file).iter().map(|warning| format!("warning: {warning}")));
    if let Some(before) = &args.before {
        let changes = changes(&RulesText::read(before)?.rules()?, &file)?;
        lines.extend(changes.iter().map(|(name, change)| match change {
            RuleChange::StartsAgain => {
                format!("warning: rule {name:?} starts again: what keys have used of it is forgotten")
            }
            _ => format!("rule {name:?} is {change}"),
        }));
    }
    print_lines(lines).map(|()| ExitCode::SUCCESS)
}

/// Prints lines that may quote the file.
fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<(), String> {
    print(&lines.into_iter().map(|line| printable(&line) + "\n").collect::<String>())
}
