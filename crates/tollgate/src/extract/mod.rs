//! Where a key comes from: functions of a request's head.
//!
//! | extractor | the key is |
//! |---|---|
//! | [`PeerIp`] | the address of the connection |
//! | [`ClientIp`] | the address of the client, behind proxies that are trusted by name |
//! | [`header`] | the value of a header, such as an API key |
//! | [`cookie`] | the value of a cookie, such as a session |
//! | [`extension`] | something an outer layer left, such as the authenticated user |
//! | [`method`] | the request's method |
//! | [`matched_path`] | the route that matched (feature `axum`) |
//! | [`global`] | the same for all |
//! | a closure | whatever it returns |
//! | `(a, b)` | both together |
//! | [`a.or(b)`](KeyExtractor::or) | the first that is there |
//!
//! # Whom to believe
//! A header or a cookie is what the caller wrote. Limit by it only behind something that has checked it (an
//! authentication layer that answers 401 to unknown API keys), or beside a limit by address: whoever invents values
//! otherwise gets a fresh quota with each.
//!
#![cfg_attr(feature = "axum", doc = "[`matched_path`]: matched_path()")]
#![cfg_attr(not(feature = "axum"), doc = "[`matched_path`]: crate::extract")]

mod client_ip;
mod cookie;
mod extension;
mod head;
mod networks;
mod peer_ip;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, Method};
use tollgate_core::Key;

pub use client_ip::{ClientIp, ClientIpHeader};
pub use cookie::{Cookie, cookie};
pub use extension::extension;
#[doc(hidden)]
pub use head::Head;
pub use networks::TrustError;
pub use peer_ip::{PeerAddr, PeerIp};

pub(crate) use head::ByHead;
pub(crate) use networks::Networks;

use crate::problem::Reason;

/// Derives a [`Key`] from a request's head. Closures of type `Fn(&Parts) -> Option<Key>` are extractors.
///
/// `None`, or an empty key, means that the request has none; what happens then is the rule's
/// [`MissingKey`](crate::MissingKey).
///
/// ```
/// use http::request::Parts;
/// use tollgate::extract::{KeyExtractor, PeerIp, header};
/// use tollgate::Key;
///
/// // Left by an authentication layer outside.
/// #[derive(Clone)]
/// struct Tenant { id: u64 }
///
/// let tenant = |parts: &Parts| parts.extensions.get::<Tenant>().map(|tenant| Key::from(tenant.id));
/// let tenant_and_device = (tenant, header("x-device"));
/// let tenant_or_address = tenant.or(PeerIp::new());
/// # fn check(_: impl KeyExtractor) {}
/// # check(tenant_and_device);
/// # check(tenant_or_address);
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// The key of this request, if it has one.
    fn extract(&self, parts: &Parts) -> Option<Key>;

    /// The same of a request that need not have been taken apart, for extractors of this crate.
    #[doc(hidden)]
    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        self.extract(head.parts?)
    }

    /// Whether [`extract_from`](KeyExtractor::extract_from) finds nothing in a head without parts.
    #[doc(hidden)]
    fn needs_parts(&self) -> bool {
        true
    }

    /// Why a request that is refused for want of a key has none: [`Reason::NoKey`], or the mistake
    /// of the server. Where the likely cause is in the server's code, this logs it once.
    #[doc(hidden)]
    fn why_missing(&self, _head: &Head<'_>) -> Reason {
        Reason::NoKey
    }

    /// This extractor's key, or where there is none the other's.
    ///
    /// The two are told apart: a header that says `192.0.2.1` is not the same caller as that address. But whoever has the first
    /// is not asked for the second: a `header(..).or(PeerIp::new())` limits nobody who invents a header for each request. Let the
    /// first be something that was checked, such as an [`extension`]; or limit by address in a rule of its own, beside it.
    fn or<E: KeyExtractor>(self, other: E) -> Or<Self, E>
    where
        Self: Sized,
    {
        Or(self, other)
    }
}

impl<F> KeyExtractor for F
where
    F: Fn(&Parts) -> Option<Key> + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self(parts)
    }
}

/// See [`KeyExtractor::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B>(A, B);

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for Or<A, B> {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        let present = |key: &Key| !key.is_empty();
        let first = self.0.extract_from(head).filter(present).map(|key| key.of_branch(0));
        first.or_else(|| self.1.extract_from(head).filter(present).map(|key| key.of_branch(1)))
    }

    fn needs_parts(&self) -> bool {
        self.0.needs_parts() || self.1.needs_parts()
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        first_mistake([&self.0, &self.1], head)
    }
}

/// The mistake of the server among the reasons why these extractors find no key.
fn first_mistake<const N: usize>(extractors: [&dyn KeyExtractor; N], head: &Head<'_>) -> Reason {
    let finds_none = |extractor: &&dyn KeyExtractor| extractor.extract_from(head).is_none();
    let mut reasons = extractors.into_iter().filter(finds_none).map(|extractor| extractor.why_missing(head));
    reasons.find(|reason| *reason != Reason::NoKey).unwrap_or(Reason::NoKey)
}

impl<A: KeyExtractor, B: KeyExtractor> KeyExtractor for (A, B) {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        Some(Key::join([self.0.extract_from(head)?, self.1.extract_from(head)?]))
    }

    fn needs_parts(&self) -> bool {
        self.0.needs_parts() || self.1.needs_parts()
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        first_mistake([&self.0, &self.1], head)
    }
}

impl<A: KeyExtractor, B: KeyExtractor, C: KeyExtractor> KeyExtractor for (A, B, C) {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        let [a, b, c] = [self.0.extract_from(head)?, self.1.extract_from(head)?, self.2.extract_from(head)?];
        Some(Key::join([a, b, c]))
    }

    fn needs_parts(&self) -> bool {
        self.0.needs_parts() || self.1.needs_parts() || self.2.needs_parts()
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        first_mistake([&self.0, &self.1, &self.2], head)
    }
}

impl KeyExtractor for Box<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        (**self).extract(parts)
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        (**self).extract_from(head)
    }

    fn needs_parts(&self) -> bool {
        (**self).needs_parts()
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        (**self).why_missing(head)
    }
}

impl KeyExtractor for Arc<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        (**self).extract(parts)
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        (**self).extract_from(head)
    }

    fn needs_parts(&self) -> bool {
        (**self).needs_parts()
    }

    fn why_missing(&self, head: &Head<'_>) -> Reason {
        (**self).why_missing(head)
    }
}

/// The value of a header: see [`header`].
#[derive(Clone, Debug)]
pub struct Header(HeaderName);

/// The value of the header `name`, byte for byte. Requests with several lines of it that differ share one key: whoever checks
/// the header may read another line than would be counted here, and a second line must win nobody a quota of his own, nor let
/// him pass as one who sent none.
///
/// Where something has checked it that is less exact (about upper and lower case, or space), one caller could write it in many
/// ways, each with a quota: count by what the check left in the [extensions](extension) then.
///
/// # Panics
/// If `name` is not a header name. [`Header::from`] takes a [`HeaderName`] that was parsed at run time.
///
/// ```
/// use tollgate::extract::header;
///
/// let by_api_key = header("x-api-key");
/// ```
pub fn header(name: &str) -> Header {
    match HeaderName::try_from(name) {
        Ok(name) => Header(name),
        Err(_) => panic!("{name:?} is not a header name"),
    }
}

impl From<HeaderName> for Header {
    fn from(name: HeaderName) -> Header {
        Header(name)
    }
}

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        let mut lines = head.headers.get_all(&self.0).iter();
        let value = lines.next()?;
        Some(if lines.all(|other| other == value) {
            Key::from_bytes(value.as_bytes())
        } else {
            Key::global()
        })
    }

    fn needs_parts(&self) -> bool {
        false
    }
}

/// The request's method. Those that HTTP does not define share one key, since anybody can invent more.
pub fn method() -> impl KeyExtractor {
    ByHead(|head: &Head<'_>| {
        let standard = [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
            Method::CONNECT,
            Method::PATCH,
            Method::TRACE,
        ];
        let known = standard.contains(head.method);
        Some(if known { Key::from(head.method.as_str()) } else { Key::from("(other)") })
    })
}

/// One key for all requests.
pub fn global() -> impl KeyExtractor {
    ByHead(|_: &Head<'_>| Some(Key::global()))
}

/// The route that matched, such as `/users/{id}`, as axum's `Router` left it. What matches none shares one key, since
/// invented paths must not mint quota.
///
/// Routes are known to layers added with `Router::layer` or `Router::route_layer`; a layer wrapped around a whole
/// `Router` runs before it.
#[cfg(feature = "axum")]
pub fn matched_path() -> impl KeyExtractor {
    ByHead(|head: &Head<'_>| {
        let matched = head.extensions.get::<axum::extract::MatchedPath>();
        Some(Key::from(matched.map_or("(unmatched)", axum::extract::MatchedPath::as_str)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(build: impl FnOnce(http::request::Builder) -> http::request::Builder) -> Parts {
        build(Request::builder()).body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_header_cannot_pose_as_an_address() {
        let extractor = header("x-user").or(PeerIp::new());
        let address = "192.0.2.1:5".parse::<std::net::SocketAddr>().unwrap();
        let by_address = extractor.extract(&parts(|b| b.extension(PeerAddr(address))));
        let by_header = extractor.extract(&parts(|b| b.header("x-user", "192.0.2.1")));
        assert!(by_address.is_some() && by_header.is_some());
        assert_ne!(by_address, by_header);
    }

    #[test]
    fn an_empty_header_is_no_key() {
        let both = header("a").or(header("b"));
        let key = both.extract(&parts(|b| b.header("a", "").header("b", "x")));
        assert_eq!(key, Some(Key::from("x").of_branch(1)));
        assert!((header("a"), header("b")).extract(&parts(|b| b.header("a", ""))).is_none());
        let key = (header("a"), header("b")).extract(&parts(|b| b.header("a", "").header("b", "x")));
        assert!(key.unwrap().is_empty());
    }

    /// Who checks the value may take the last, and a caller would have a quota with each first one that he invents. Nor is it as
    /// if there were none, or whoever adds a line would leave a rule that is for those who send one.
    #[test]
    fn lines_that_differ_share_a_key() {
        let by_key = |lines: &[&str]| {
            let lines = lines.iter();
            header("x-key").extract(&parts(|b| lines.fold(b, |b, line| b.header("x-key", *line))))
        };
        assert_eq!(by_key(&["invented", "real"]), Some(Key::global()));
        assert_eq!(by_key(&["real", "real", ""]), Some(Key::global()));
        assert_eq!(by_key(&["", "real"]), Some(Key::global()));
        assert_eq!(by_key(&["real", "real"]), Some(Key::from("real")));
    }

    #[test]
    fn invented_methods_share_a_key() {
        let key = |name: &str| method().extract(&parts(|b| b.method(name))).unwrap();
        assert_eq!(key("BREW"), key("WHEN"));
        assert_ne!(key("GET"), key("POST"));
    }

    #[test]
    fn header_values_need_not_be_utf8() {
        let value = http::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
        let key = header("x").extract(&parts(|b| b.header("x", value)));
        assert_eq!(key, Some(Key::from_bytes(b"\xff\xfe")));
    }

    #[test]
    #[should_panic(expected = "is not a header name")]
    fn a_bad_header_name_is_refused_at_construction() {
        header("x y");
    }
}
