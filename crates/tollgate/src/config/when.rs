//! Which requests a rule applies to.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, Method};
use serde::{Deserialize, Serialize};

use super::values::{AsText, InText, OneOrMany};
use crate::extract::Head;
use crate::rule::path_index::received;

/// The requests to which a rule applies: those that meet each of these conditions.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(remote = "Self", deny_unknown_fields)]
pub(super) struct When {
    /// A path, or the beginning of paths before `*`; or a list of them. It is compared with the
    /// path as received: undecoded, and without the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<OneOrMany<PathPattern>>,
    /// A method, or a list of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<OneOrMany<MethodName>>,
    /// The name of a header that the request has. Callers choose whether they send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<AsText<HeaderText>>,
}

#[derive(Clone, Debug, PartialEq)]
struct HeaderText(HeaderName);

impl InText for HeaderText {
    const EXAMPLE: &'static str = "x-beta";
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
        self.path.as_ref().is_none_or(|patterns| patterns.0.iter().any(|pattern| pattern.matches(path)))
            && self.method.as_ref().is_none_or(|methods| methods.0.iter().any(|each| each.is_of(head)))
            && self.header.as_ref().is_none_or(|name| head.headers().contains_key(&name.0.0))
    }

    pub(super) fn paths(&self) -> Option<impl Iterator<Item = &str>> {
        self.path.as_ref().map(|paths| paths.0.iter().map(|path| path.0.as_str()))
    }

    pub(super) fn header(&self) -> Option<&HeaderName> {
        self.header.as_ref().map(|name| &name.0.0)
    }

    /// Whether each request that meets `when` meets this too, if it has the header of this.
    pub(super) fn includes(&self, when: Option<&When>) -> bool {
        type List<T> = Option<OneOrMany<T>>;
        fn all<T>(these: &List<T>, others: Option<&List<T>>, includes: impl Fn(&T, &T) -> bool) -> bool {
            let is_in = |these: &OneOrMany<T>, other| these.0.iter().any(|each| includes(each, other));
            let others = others.and_then(Option::as_ref);
            these.as_ref().is_none_or(|these| {
                others.is_some_and(|others| others.0.iter().all(|other| is_in(these, other)))
            })
        }
        all(&self.path, when.map(|when| &when.path), PathPattern::includes)
            && all(&self.method, when.map(|when| &when.method), |each, other| each.matches(&other.0))
    }

    /// Completes "10 per minute …".
    pub(super) fn in_words(&self) -> String {
        fn any<T: fmt::Display>(values: &[T]) -> String {
            values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
        }
        let path = self.path.as_ref().map(|paths| format!("of {}", any(&paths.0)));
        let method = self.method.as_ref().map(|methods| format!("by {}", any(&methods.0)));
        let header = self.header.as_ref().map(|name| format!("with the header {}", name.0));
        [path, method, header].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// A whole path, or the beginning of one before `*`.
#[derive(Clone, Debug, PartialEq)]
struct PathPattern(String);

impl PathPattern {
    fn matches(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => path == self.0,
        }
    }
}

impl PathPattern {
    /// Whether it matches each path that the other matches.
    fn includes(&self, other: &PathPattern) -> bool {
        self.0.ends_with('*') && self.matches(other.0.trim_end_matches('*')) || self == other
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

#[derive(Clone, Debug, PartialEq)]
struct MethodName(Method);

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
