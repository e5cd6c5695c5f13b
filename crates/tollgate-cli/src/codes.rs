//! `tollgate code`: what a code in the log means.

use std::process::ExitCode;

use clap::Args;
use tollgate_core::LogCode;

use crate::output::print;

pub(crate) const AFTER_HELP: &str = "\
Example:
  tollgate code TOLLGATE_E01";

/// `tollgate code`.
#[derive(Debug, Args)]
pub(crate) struct CodeArgs {
    /// The code as it stands in the log; without it all codes are listed
    #[arg(value_name = "CODE")]
    code: Option<LogCode>,
}

pub(crate) fn show(args: &CodeArgs) -> Result<ExitCode, String> {
    let codes = args.code.map_or(LogCode::ALL.to_vec(), |code| vec![code]);
    let line = |code: LogCode| format!("{code}: {}\n  do: {}\n", code.meaning(), code.fix());
    print(&codes.into_iter().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
