//! Files of rules that are followed.

use std::path::PathBuf;

use super::WatchedFile;
use crate::config::{Registry, RuleFile};
use crate::errors::SetupError;

impl Registry {
    /// Opens a file of rules: JSON if its name ends in `.json`, otherwise TOML. A layer can
    /// [follow](WatchedFile::watch) it.
    ///
    /// # Errors
    /// [`SetupError::File`] if the file cannot be read, or if a rule in it is not valid.
    ///
    /// ```
    /// use tollgate::RateLimitLayer;
    /// use tollgate::config::Registry;
    ///
    /// # let path = std::env::temp_dir().join(format!("rules-{}.toml", std::process::id()));
    /// # std::fs::write(&path, "[[rule]]\nname = \"api\"\nquota = \"100/min\"\nby = \"ip\"\n")?;
    /// let file = Registry::new().open(&path)?;
    /// let layer = RateLimitLayer::try_new(file.rules())?;
    /// // The layer follows the file for as long as the watcher lives.
    /// let watcher = file.watch(&layer);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self, path: impl Into<PathBuf>) -> Result<WatchedFile, SetupError> {
        let (registry, path) = (self.clone(), path.into());
        let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        WatchedFile::open(path, move |text| {
            let file = if is_json { RuleFile::from_json(text) } else { RuleFile::from_toml(text) };
            file.and_then(|file| registry.rules(&file))
        })
    }
}
