//! The key of a rule: `ip`, `bearer`, `basic-user`, `header:NAME`, `cookie:NAME`, `global`, `path`,
//! joined with `+` and `|`.

use std::str::FromStr;

use http::HeaderName;
use tollgate::extract::{
    ClientIp, Cookie, Header, KeyExtractor, PeerIp, basic_user, bearer, cookie, global, matched_path,
};
use tollgate::{Head, Key};

/// Alternatives: the first that a request has is its key. Each alternative is a list of parts, and
/// the request needs all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpec(Vec<Vec<Part>>);

/// A single source of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Ip,
    Bearer,
    BasicUser,
    Header(HeaderName),
    Cookie(String),
    Global,
    Path,
}

/// By address.
impl Default for KeySpec {
    fn default() -> KeySpec {
        KeySpec(vec![vec![Part::Ip]])
    }
}

impl FromStr for KeySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<KeySpec, String> {
        let alternatives = text.split('|').map(|all| all.split('+').map(Part::from_str).collect());
        alternatives.collect::<Result<_, _>>().map(KeySpec)
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        match (text, text.split_once(':')) {
            ("ip", _) => Ok(Part::Ip),
            ("bearer", _) => Ok(Part::Bearer),
            ("basic-user", _) => Ok(Part::BasicUser),
            ("global", _) => Ok(Part::Global),
            ("path", _) => Ok(Part::Path),
            (_, Some(("header", name))) => HeaderName::try_from(name)
                .map(Part::Header)
                .map_err(|_| format!("{name:?} is not the name of a header")),
            (_, Some(("cookie", name))) => match Cookie::try_new(name) {
                Some(_) => Ok(Part::Cookie(name.to_owned())),
                None => Err(format!("{name:?} is not the name of a cookie")),
            },
            _ => Err(format!(
                "{text:?} is not a key: use ip, bearer, basic-user, header:NAME, cookie:NAME, global, path, joined with \
                 + or |"
            )),
        }
    }
}

impl KeySpec {
    /// Returns the extractor. It takes the peer's address, unless there is a `client_ip`.
    pub(crate) fn extractor(&self, client_ip: Option<&ClientIp>) -> Box<dyn KeyExtractor> {
        let alternatives = self.0.iter().map(|parts| all_of(parts, client_ip));
        // A fixed key is simpler: `extension(..).or(PeerIp::new())`.
        let first_of = |first: Box<dyn KeyExtractor>, next| Box::new(first.or(next)) as Box<dyn KeyExtractor>;
        alternatives.reduce(first_of).unwrap_or_else(|| Box::new(global()))
    }

    /// Completes "10 per minute for …".
    pub(crate) fn in_words(&self) -> String {
        let one = |parts: &Vec<Part>| parts.iter().map(Part::in_words).collect::<Vec<_>>().join(" and ");
        match self.0.as_slice() {
            [parts] if parts.as_slice() == [Part::Global] => "all callers together".to_owned(),
            [first, rest @ ..] => {
                let rest = rest.iter().map(|parts| format!(", else {}", one(parts)));
                format!("each {}{}", one(first), rest.collect::<String>())
            }
            [] => String::new(),
        }
    }

    /// Whether any alternative uses the address.
    pub(crate) fn uses_addresses(&self) -> bool {
        self.0.iter().flatten().any(|part| *part == Part::Ip)
    }

    /// Returns the headers of the alternative that needs the fewest.
    pub(crate) fn needed_headers(&self) -> Vec<String> {
        let needed = |parts: &Vec<Part>| parts.iter().filter_map(Part::needed_header).collect::<Vec<_>>();
        self.0.iter().map(needed).min_by_key(Vec::len).unwrap_or_default()
    }
}

impl Part {
    fn extractor(&self, client_ip: Option<&ClientIp>) -> Box<dyn KeyExtractor> {
        match (self, client_ip) {
            (Part::Ip, None) => Box::new(PeerIp::new()),
            (Part::Ip, Some(client_ip)) => Box::new(client_ip.clone()),
            (Part::Header(name), _) => Box::new(Header::from(name.clone())),
            (Part::Bearer, _) => Box::new(bearer()),
            (Part::BasicUser, _) => Box::new(basic_user()),
            (Part::Cookie(name), None) => Box::new(cookie(name)),
            (Part::Cookie(name), Some(client_ip)) => Box::new(cookie(name).client_ip(client_ip.clone())),
            (Part::Global, _) => Box::new(global()),
            (Part::Path, _) => Box::new(matched_path()),
        }
    }

    fn in_words(&self) -> String {
        match self {
            Part::Ip => "client address".to_owned(),
            Part::Bearer => "bearer token".to_owned(),
            Part::BasicUser => "user of basic credentials".to_owned(),
            Part::Header(name) => format!("value of the header {name}"),
            Part::Cookie(name) => format!("value of the cookie {name}"),
            Part::Global => "all callers".to_owned(),
            Part::Path => "route".to_owned(),
        }
    }

    fn needed_header(&self) -> Option<String> {
        match self {
            Part::Bearer => Some("authorization: Bearer demo".to_owned()),
            // User `demo`, with an empty password.
            Part::BasicUser => Some("authorization: Basic ZGVtbzo=".to_owned()),
            Part::Header(name) => Some(format!("{name}: demo")),
            Part::Cookie(name) => Some(format!("cookie: {name}=demo")),
            Part::Ip | Part::Global | Part::Path => None,
        }
    }
}

/// Returns an extractor of all parts together. For a fixed key, a tuple does the same.
fn all_of(parts: &[Part], client_ip: Option<&ClientIp>) -> Box<dyn KeyExtractor> {
    let mut extractors: Vec<_> = parts.iter().map(|part| part.extractor(client_ip)).collect();
    match extractors.pop() {
        Some(only) if extractors.is_empty() => only,
        last => {
            extractors.extend(last);
            Box::new(move |head: &Head<'_>| {
                let keys: Option<Vec<Key>> = extractors.iter().map(|each| each.extract(head)).collect();
                Some(Key::join(keys?))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(spec: &str, headers: &[(&'static str, &str)]) -> Option<Key> {
        let mut request = http::Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let extractor = spec.parse::<KeySpec>().unwrap().extractor(None);
        extractor.extract(&Head::from(&request)).filter(|key| !key.is_empty())
    }

    #[test]
    fn plus_needs_all_and_binds_tighter_than_bar() {
        let spec = "header:a+header:b|header:c";
        let both = key(spec, &[("a", "1"), ("b", "2"), ("c", "3")]).unwrap();
        assert_eq!(key(spec, &[("a", "1"), ("b", "2")]), Some(both.clone()));
        let fallback = key(spec, &[("a", "1"), ("c", "3")]).unwrap();
        assert_ne!(both, fallback);
        assert_eq!(key(spec, &[("c", "3")]), Some(fallback));
        assert_eq!(key(spec, &[("a", "1")]), None);
    }

    #[test]
    fn many_parts_and_many_alternatives() {
        let all = [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("e", "5")];
        assert!(key("header:a+header:b+header:c+header:d+header:e", &all).is_some());
        assert!(key("header:a+header:b+header:c+header:d+header:e", &all[..4]).is_none());
        let any = "header:a|header:b|header:c|header:d|header:e";
        let keys: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| key(any, &[(name, "same")])).into();
        for (n, key) in keys.iter().enumerate() {
            assert!(key.is_some() && !keys[..n].contains(key), "alternative {n} poses as another");
        }
    }

    #[test]
    fn a_single_part_has_the_key_of_its_extractor() {
        assert_eq!(key("header:a", &[("a", "1")]), Some(Key::from("1")));
        assert_eq!(key("cookie:s", &[("cookie", "s=1")]), Some(Key::from("1")));
        assert_eq!(key("global", &[]), Some(Key::global()));
        assert_eq!(key("bearer", &[("authorization", "bearer  tok")]), Some(Key::from("tok")));
        assert_eq!(key("basic-user", &[("authorization", "Basic ZGVtbzo=")]), Some(Key::from("demo")));
    }

    #[test]
    fn junk_is_refused() {
        for text in [
            "",
            "ip+",
            "|ip",
            "ip||ip",
            "IP",
            "header",
            "header:",
            "header:x y",
            "cookie:",
            "cookie:a b",
            "user",
            " ip",
            "ip:1",
            "Bearer",
            "bearer:x",
            "basic",
            "global:x",
            "path/x",
        ] {
            assert!(text.parse::<KeySpec>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_and_needed_headers() {
        let spec = |text: &str| text.parse::<KeySpec>().unwrap();
        assert_eq!(spec("ip").in_words(), "each client address");
        assert_eq!(spec("global").in_words(), "all callers together");
        assert_eq!(
            spec("header:x-key+path|ip").in_words(),
            "each value of the header x-key and route, else client address"
        );
        assert_eq!(spec("header:x-key+cookie:s").needed_headers(), ["x-key: demo", "cookie: s=demo"]);
        assert_eq!(spec("bearer|basic-user").in_words(), "each bearer token, else user of basic credentials");
        assert_eq!(spec("bearer").needed_headers(), ["authorization: Bearer demo"]);
        assert!(spec("header:x-key|ip").needed_headers().is_empty());
        assert!(spec("header:x-key|ip").uses_addresses() && !spec("header:x-key+path").uses_addresses());
    }
}
