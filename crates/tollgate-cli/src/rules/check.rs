//! `tollgate check`: every mistake of a file, or what its rules mean.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tollgate::RuleChange;

use super::RulesText;
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
        print(&mistakes.iter().map(|mistake| line(format!("{path}: {mistake}"))).collect::<String>());
        return Ok(ExitCode::FAILURE);
    }
    let file = text.rules()?;
    let mut lines: Vec<String> =
        file.rules().iter().map(|rule| line(format!("{}: {}", rule.name(), rule.in_words()))).collect();
    let names: BTreeSet<_> = file.rules().iter().flat_map(|rule| rule.registry_names()).collect();
    if !names.is_empty() {
        let names: Vec<String> = names.iter().map(|(kind, name)| format!("{kind} {name}")).collect();
        lines.push(line(format!("names of the application: {}", names.join(", "))));
    }
    lines.extend(file.warnings().iter().map(|warning| line(format!("warning: {warning}"))));
    if let Some(before) = &args.before {
        let changes = file.changes_since(&RulesText::read(before)?.rules()?);
        for (name, change) in changes.map_err(|error| error.to_string())? {
            lines.push(line(match change {
                RuleChange::StartsAgain => {
                    format!("warning: rule {name:?} starts again: what keys have used of it is forgotten")
                }
                _ => format!("rule {name:?}: {change}"),
            }));
        }
    }
    print(&lines.concat());
    Ok(ExitCode::SUCCESS)
}

/// A line of a text that may quote the file.
fn line(text: impl Display) -> String {
    format!("{}\n", printable(&text.to_string()))
}
