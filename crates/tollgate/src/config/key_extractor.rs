//! The extractor of a key that a file names.

use tollgate_core::Key;

use super::key::{ALLOWED, KeyExpression, KeyPart};
use super::registry::Registry;
use crate::errors::Reason;
use crate::extract::{
    Cookie, Head, Header, KeyExtractor, PeerIp, basic_user, bearer, first_mistake, global, method,
};

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
}

impl KeyPart {
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
            (KeyPart::Cookie(name), client_ip) => {
                let cookie =
                    Cookie::try_new(name).ok_or_else(|| format!("{name:?} is not the name of a cookie"))?;
                match client_ip {
                    None => Box::new(cookie),
                    Some(client_ip) => Box::new(cookie.client_ip(client_ip.clone())),
                }
            }
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
