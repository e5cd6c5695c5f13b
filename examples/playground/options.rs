//! What the options that describe rules share: `NAME=LIMIT[,OPTION=VALUE]...`.

use std::time::Duration;

use tollgate::Quota;

use crate::span;

/// The options after the limit. Each may be given once.
pub(crate) struct Options<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Options<'a> {
    /// Parses the fields of a text. Others than the known options are errors.
    pub(crate) fn parse(
        fields: impl Iterator<Item = &'a str>,
        known: &[&str],
    ) -> Result<Options<'a>, String> {
        let mut options = Options(Vec::new());
        for field in fields {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            if !known.contains(&name) {
                return Err(format!("{name:?} is not an option: use {}", known.join(", ")));
            }
            if options.get(name).is_some() {
                return Err(format!("{name} is given twice"));
            }
            options.0.push((name, value));
        }
        Ok(options)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(each, _)| *each == name).map(|(_, value)| *value)
    }

    /// Returns an option that is a span of time.
    pub(crate) fn span(&self, name: &str) -> Result<Option<Duration>, String> {
        self.get(name).map(parse_span).transpose()
    }
}

/// Parses a limit or a burst.
pub(crate) fn parse_units(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let units = text.parse().ok().filter(|units| digits && (1..=Quota::MAX_UNITS).contains(units));
    units.ok_or_else(|| format!("{text:?} is not a whole number from 1 to {}", Quota::MAX_UNITS))
}

pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    span::parse(text).ok_or_else(|| format!("{text:?} is not a time such as s, 10s, 500ms, 5m, h or d"))
}
