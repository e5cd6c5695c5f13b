//! Requests that a rule ignores, in text.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use super::values::InText;
use crate::extract::Networks;

/// An entry of the field `exempt`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExemptionText {
    CorsPreflight,
    /// A network in CIDR notation, or an address.
    Network(String),
    /// That of the registry with this name.
    Named(String),
}

impl InText for ExemptionText {
    const EXAMPLE: &'static str = "10.0.0.0/8";
}

impl FromStr for ExemptionText {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ExemptionText, Infallible> {
        Ok(match text {
            "cors-preflight" => ExemptionText::CorsPreflight,
            _ if Networks::parse([text]).is_ok() => ExemptionText::Network(text.to_owned()),
            _ => ExemptionText::Named(text.to_owned()),
        })
    }
}

impl fmt::Display for ExemptionText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExemptionText::CorsPreflight => "cors-preflight",
            ExemptionText::Network(text) | ExemptionText::Named(text) => text,
        })
    }
}
