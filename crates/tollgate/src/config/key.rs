//! The key of a rule in text: `header:x-api-key | ip`.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use super::name::is_name;
use super::values::InText;
use crate::extract::Cookie;

/// The key of a rule, parsed from text such as `header:x-api-key | ip`.
///
/// It is a list of alternatives: the first that a request has is its key. Each alternative is a
/// list of parts, and the request needs all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyExpression(pub Vec<Vec<KeyPart>>);

/// A single source of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// The address of the client.
    Ip,
    /// The token of `Authorization`.
    Bearer,
    /// The user of `Authorization`.
    BasicUser,
    /// The value of this header.
    Header(HeaderName),
    /// The value of the cookie with this name.
    Cookie(String),
    /// The same for all requests.
    Global,
    /// The route that matched (feature `axum`).
    Path,
    /// The request's method.
    Method,
    /// That of the registry with this name.
    Named(String),
}

/// How many alternatives a key has at most, and how many parts each of them.
const MOST: usize = 16;

pub(super) const ALLOWED: &str = "ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or \
                       a name of the registry";

impl InText for KeyExpression {
    const EXAMPLE: &'static str = "header:x-api-key | ip";
}

impl FromStr for KeyExpression {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyExpression, String> {
        let most = |joined: usize, what: &str| match joined {
            0..=MOST => Ok(()),
            more => Err(format!("a key of {more} {what} is too long: use at most {MOST}")),
        };
        let all_of = |parts: &str| {
            most(parts.split('+').count(), "parts")?;
            parts.split('+').map(|part| part.trim().parse()).collect()
        };
        most(text.split('|').count(), "alternatives")?;
        text.split('|').map(all_of).collect::<Result<_, _>>().map(KeyExpression)
    }
}

impl fmt::Display for KeyExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, parts) in self.0.iter().enumerate() {
            let all: Vec<String> = parts.iter().map(ToString::to_string).collect();
            write!(f, "{}{}", if at == 0 { "" } else { " | " }, all.join(" + "))?;
        }
        Ok(())
    }
}

impl FromStr for KeyPart {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyPart, String> {
        match (text, text.split_once(':')) {
            ("ip", _) => Ok(KeyPart::Ip),
            ("bearer", _) => Ok(KeyPart::Bearer),
            ("basic-user", _) => Ok(KeyPart::BasicUser),
            ("global", _) => Ok(KeyPart::Global),
            ("path", _) => Ok(KeyPart::Path),
            ("method", _) => Ok(KeyPart::Method),
            (_, Some(("header", name))) => HeaderName::try_from(name)
                .map(KeyPart::Header)
                .map_err(|_| format!("{name:?} is not the name of a header")),
            (_, Some(("cookie", name))) => match Cookie::try_new(name) {
                Some(_) => Ok(KeyPart::Cookie(name.to_owned())),
                None => Err(format!("{name:?} is not the name of a cookie")),
            },
            _ if is_name(text) => Ok(KeyPart::Named(text.to_owned())),
            _ => Err(format!("{text:?} is not a key: use {ALLOWED}")),
        }
    }
}

/// Whether this name is one of the keys that need no registry.
pub(super) fn is_own_name(text: &str) -> bool {
    !matches!(text.parse(), Ok(KeyPart::Named(_)))
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyPart::Ip => "ip",
            KeyPart::Bearer => "bearer",
            KeyPart::BasicUser => "basic-user",
            KeyPart::Header(name) => return write!(f, "header:{name}"),
            KeyPart::Cookie(name) => return write!(f, "cookie:{name}"),
            KeyPart::Global => "global",
            KeyPart::Path => "path",
            KeyPart::Method => "method",
            KeyPart::Named(name) => name,
        })
    }
}

impl KeyPart {
    /// Returns whether callers write it, and may have to keep it to themselves.
    pub fn is_secret(&self) -> bool {
        matches!(self, KeyPart::Bearer | KeyPart::BasicUser | KeyPart::Header(_) | KeyPart::Cookie(_))
    }
}
