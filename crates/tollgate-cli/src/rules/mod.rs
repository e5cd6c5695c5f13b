//! `tollgate check` and `tollgate explain`: what a file of rules says.

mod changes;
mod check;
mod explain;
mod names;
mod request;
#[cfg(test)]
mod tests;
mod warnings;
mod words;

use std::path::{Path, PathBuf};

use tollgate::config::{ConfigError, Registry, RuleFile};
use tollgate::watch::read_file;

pub(crate) use self::check::{AFTER_HELP as CHECK_AFTER_HELP, CheckArgs, check};
pub(crate) use self::explain::{AFTER_HELP as EXPLAIN_AFTER_HELP, ExplainArgs, explain};

/// A file of rules: JSON if its name ends in `.json`, otherwise TOML.
pub(crate) struct RulesText {
    path: PathBuf,
    text: String,
}

impl RulesText {
    pub(crate) fn read(path: &Path) -> Result<RulesText, String> {
        let text = read_file(path).map_err(|error| error.to_string())?;
        Ok(RulesText { path: path.to_owned(), text })
    }

    fn is_json(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
    }

    fn mistakes(&self) -> Vec<ConfigError> {
        let mistakes = if self.is_json() { RuleFile::mistakes_in_json } else { RuleFile::mistakes_in_toml };
        mistakes(&self.text)
    }

    /// The rules, or an error that names the first mistake. Whether their names are known is not
    /// checked.
    pub(crate) fn rules(&self) -> Result<RuleFile, String> {
        let read = if self.is_json() { RuleFile::from_json } else { RuleFile::from_toml };
        let checked = |file: RuleFile| Registry::of_any_name().rules(&file).map(|_| file);
        read(&self.text).and_then(checked).map_err(|mistake| format!("{}: {mistake}", self.path.display()))
    }
}
