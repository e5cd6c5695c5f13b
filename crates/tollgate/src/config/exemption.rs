//! Requests that a rule ignores, in text.

use std::fmt;
use std::str::FromStr;

use super::name::is_name;
use super::values::InText;
use crate::extract::Networks;

/// An entry of the field `exempt`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExemptionText {
    /// Preflights of browsers.
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
    type Err = String;

    fn from_str(text: &str) -> Result<ExemptionText, String> {
        match text {
            "cors-preflight" => Ok(ExemptionText::CorsPreflight),
            _ if Networks::parse([text]).is_ok() => Ok(ExemptionText::Network(text.to_owned())),
            _ if is_name(text) => Ok(ExemptionText::Named(text.to_owned())),
            _ => Err(format!(
                "{text:?} is not a network, an address, cors-preflight or the name of an exemption: a to z, 0 to 9, - \
                 and _"
            )),
        }
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
