//! The key of a rule in text: `header:x-api-key | ip`.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use tollgate_core::Key;

use super::registry::Registry;
use super::values::InText;
use crate::extract::{
    Cookie, Head, Header, KeyExtractor, PeerIp, basic_user, bearer, cookie, first_mistake, global, method,
};
use crate::reason::Reason;

/// Alternatives: the first that a request has is its key. Each alternative is a list of parts, and
/// the request needs all of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyExpression(Vec<Vec<KeyPart>>);

/// A single source of a key.
#[derive(Clone, Debug, PartialEq)]
enum KeyPart {
    Ip,
    Bearer,
    BasicUser,
    Header(HeaderName),
    Cookie(String),
    Global,
    Path,
    Method,
    /// That of the registry with this name.
    Named(String),
}

/// How many alternatives a key has at most, and how many parts each of them.
const MOST: usize = 16;

const ALLOWED: &str = "ip, bearer, basic-user, header:NAME, cookie:NAME, path, method, global, joined with + or |, or \
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

/// Whether a file can name a key or an exemption of the registry so. A number is none: it may be a
/// part of an address.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |sign: u8| sign.is_ascii_lowercase() || sign.is_ascii_digit() || matches!(sign, b'-' | b'_');
    let has_letter = text.bytes().any(|sign| sign.is_ascii_lowercase());
    !matches!(text, "header" | "cookie") && has_letter && text.bytes().all(plain)
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

impl KeyExpression {
    /// Makes the extractor. It takes the peer's address, unless the registry has a client address.
    pub(super) fn extractor(&self, registry: &Registry) -> Result<Box<dyn KeyExtractor>, String> {
        let all_of = |parts: &Vec<KeyPart>| -> Result<Box<dyn KeyExtractor>, String> {
            let mut all = parts.iter().map(|part| part.extractor(registry)).collect::<Result<Vec<_>, _>>()?;
            match (all.pop(), all.is_empty()) {
                (Some(only), true) => Ok(only),
                (last, _) => {
                    all.extend(last);
                    Ok(Box::new(AllOf(all)))
                }
            }
        };
        let alternatives = self.0.iter().map(all_of).collect::<Result<Vec<_>, String>>()?;
        let first_of = |first: Box<dyn KeyExtractor>, next| Box::new(first.or(next)) as Box<dyn KeyExtractor>;
        Ok(alternatives.into_iter().reduce(first_of).unwrap_or_else(|| Box::new(global())))
    }

    /// What only the application knows: names of the registry, and the route that matched.
    pub(super) fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().flatten().filter_map(|part| match part {
            KeyPart::Named(name) => Some(("key", name.as_str())),
            KeyPart::Path => Some(("route", "path")),
            _ => None,
        })
    }

    /// The first part that callers write, in words, unless each request has an alternative before
    /// it.
    pub(super) fn invented(&self) -> Option<String> {
        let always = |part: &KeyPart| matches!(part, KeyPart::Ip | KeyPart::Global | KeyPart::Method);
        let used = self.0.iter().take_while(|parts| !parts.iter().all(always));
        used.flatten().find(|part| part.is_secret()).map(KeyPart::in_words)
    }

    /// Completes "10 per minute for …".
    pub(super) fn in_words(&self) -> String {
        let one =
            |parts: &Vec<KeyPart>| parts.iter().map(KeyPart::in_words).collect::<Vec<_>>().join(" and ");
        match self.0.as_slice() {
            [parts] if parts.as_slice() == [KeyPart::Global] => "all callers together".to_owned(),
            all => format!("each {}", all.iter().map(one).collect::<Vec<_>>().join(", else ")),
        }
    }
}

impl KeyPart {
    /// Whether it is what callers write, and may have to keep to themselves.
    fn is_secret(&self) -> bool {
        matches!(self, KeyPart::Bearer | KeyPart::BasicUser | KeyPart::Header(_) | KeyPart::Cookie(_))
    }

    fn extractor(&self, registry: &Registry) -> Result<Box<dyn KeyExtractor>, String> {
        let extractor = self.plain_extractor(registry)?;
        let is_hidden = registry.hides_secrets && (self.is_secret() || matches!(self, KeyPart::Named(_)));
        Ok(if is_hidden { Box::new(Hidden(extractor)) } else { extractor })
    }

    fn plain_extractor(&self, registry: &Registry) -> Result<Box<dyn KeyExtractor>, String> {
        Ok(match (self, registry.address()) {
            (KeyPart::Ip, None) => Box::new(PeerIp::new()),
            (KeyPart::Ip, Some(client_ip)) => Box::new(client_ip.clone()),
            (KeyPart::Header(name), _) => Box::new(Header::from(name.clone())),
            (KeyPart::Bearer, _) => Box::new(bearer()),
            (KeyPart::BasicUser, _) => Box::new(basic_user()),
            (KeyPart::Cookie(name), None) => Box::new(cookie(name)),
            (KeyPart::Cookie(name), Some(client_ip)) => Box::new(cookie(name).client_ip(client_ip.clone())),
            (KeyPart::Global, _) => Box::new(global()),
            #[cfg(feature = "axum")]
            (KeyPart::Path, _) => Box::new(crate::extract::matched_path()),
            #[cfg(not(feature = "axum"))]
            (KeyPart::Path, _) if registry.any_name => Box::new(global()),
            #[cfg(not(feature = "axum"))]
            (KeyPart::Path, _) => return Err("\"path\" needs the feature axum of tollgate".to_owned()),
            (KeyPart::Method, _) => Box::new(method()),
            (KeyPart::Named(name), _) => match registry.find_key(name) {
                Ok(extractor) => Box::new(extractor),
                Err(names) => {
                    return Err(format!("{name:?} is not a key: use {ALLOWED} (which has {names})"));
                }
            },
        })
    }

    fn in_words(&self) -> String {
        match self {
            KeyPart::Ip => "client address".to_owned(),
            KeyPart::Bearer => "bearer token".to_owned(),
            KeyPart::BasicUser => "user of basic credentials".to_owned(),
            KeyPart::Header(name) => format!("value of the header {name}"),
            KeyPart::Cookie(name) => format!("value of the cookie {name}"),
            KeyPart::Global => "all callers".to_owned(),
            KeyPart::Path => "route".to_owned(),
            KeyPart::Method => "method".to_owned(),
            KeyPart::Named(name) => name.clone(),
        }
    }
}

/// The same keys for output. That of requests that are counted together stays.
struct Hidden(Box<dyn KeyExtractor>);

impl KeyExtractor for Hidden {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        let key = self.0.extract(head)?;
        Some(if key.is_empty() || key == Key::global() { key } else { Key::from("hidden") })
    }
}

/// All of these together, as a tuple of extractors is.
struct AllOf(Vec<Box<dyn KeyExtractor>>);

impl KeyExtractor for AllOf {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        let keys: Option<Vec<Key>> = self.0.iter().map(|each| each.extract(head)).collect();
        Some(Key::join(keys?))
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        first_mistake(self.0.iter().map(|each| &**each), head)
    }
}
