//! Which requests a rule applies to.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, Method};
use serde::{Deserialize, Deserializer, Serialize};

#[cfg(test)]
use super::values::{AsText, OneOrMany};
use super::values::{InText, one_or_many, text, text_if_any};
use crate::extract::{Head, received};

/// The requests to which a rule applies: those that meet each of these conditions.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct When {
    /// A path, or the beginning of paths before `*`; or a list of them. It begins with `/`, and `*`
    /// is its end. It is compared with the path as received: undecoded, and without the query.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_many")]
    #[cfg_attr(test, schemars(with = "OneOrMany<PathPattern>"))]
    pub path: Vec<PathPattern>,
    /// A method, or a list of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_many")]
    #[cfg_attr(test, schemars(with = "OneOrMany<MethodName>"))]
    pub method: Vec<MethodName>,
    /// The name of a header that the request has. Callers choose whether they send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "header", serialize_with = "text_if_any")]
    #[cfg_attr(test, schemars(with = "AsText<HeaderText>"))]
    pub header: Option<HeaderName>,
}

struct HeaderText(HeaderName);

impl InText for HeaderText {
    const EXAMPLE: &'static str = "x-beta";
}

fn header<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HeaderName>, D::Error> {
    text::deserialize(deserializer).map(|HeaderText(name)| Some(name))
}

impl FromStr for HeaderText {
    type Err = String;

    fn from_str(text: &str) -> Result<HeaderText, String> {
        let name = HeaderName::from_str(text);
        name.map(HeaderText).map_err(|_| format!("{text:?} is not the name of a header"))
    }
}

impl fmt::Display for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

impl When {
    pub(super) fn is_met_by(&self, head: &Head<'_>) -> bool {
        let path = received(head).path();
        (self.path.is_empty() || self.path.iter().any(|pattern| pattern.matches(path)))
            && (self.method.is_empty() || self.method.iter().any(|each| each.is_of(head)))
            && self.header.as_ref().is_none_or(|name| head.headers().contains_key(name))
    }
}

/// A whole path, or the beginning of one before `*`, parsed from text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathPattern(String);

impl PathPattern {
    /// Returns the pattern as it is written, such as `/api/*`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn matches(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => path == self.0,
        }
    }
}

impl InText for PathPattern {
    const EXAMPLE: &'static str = "/api/*";
}

impl FromStr for PathPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<PathPattern, String> {
        let beginning = text.strip_suffix('*').unwrap_or(text);
        let is_path = beginning.starts_with('/') && beginning.bytes().all(|sign| sign.is_ascii_graphic());
        if is_path && !beginning.contains(['*', '?', '#']) {
            return Ok(PathPattern(text.to_owned()));
        }
        Err(format!(
            "{text:?} is not a path such as /api/*: it begins with /, has * only at its end, and no query"
        ))
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A method, parsed from text in capitals. `GET` includes `HEAD`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MethodName(pub Method);

impl MethodName {
    /// Routers answer `HEAD` by what answers `GET`.
    fn matches(&self, method: &Method) -> bool {
        self.0 == method || (self.0 == Method::GET && method == Method::HEAD)
    }

    /// Over HTTP/1.1, a WebSocket begins with `GET`. Over HTTP/2 and HTTP/3 it begins with
    /// `CONNECT` (RFC 8441), which has a path then; that of a tunnel has none.
    fn is_of(&self, head: &Head<'_>) -> bool {
        let is_extended = head.method() == Method::CONNECT && head.uri().path().starts_with('/');
        self.matches(head.method()) || (self.0 == Method::GET && is_extended)
    }
}

impl InText for MethodName {
    const EXAMPLE: &'static str = "GET";
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<MethodName, String> {
        let method =
            Method::from_str(text).ok().filter(|_| !text.bytes().any(|sign| sign.is_ascii_lowercase()));
        method
            .map(MethodName)
            .ok_or_else(|| format!("{text:?} is not a method such as GET or POST, in capitals"))
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
