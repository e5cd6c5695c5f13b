//! Rules from a file.

mod build;
mod error;
mod exemption;
mod fields;
mod file;
mod key;
mod open;
mod place;
mod registry;
mod rule;
mod values;
mod when;

pub use error::ConfigError;
pub use file::RuleFile;
pub use registry::Registry;
pub use rule::RuleConfig;

#[cfg(test)]
mod tests;
