//! Where a key comes from: functions of a request's head.
//!
//! | extractor | the key is |
//! |---|---|
//! | [`PeerIp`] | the address of the connection |
//! | [`ClientIp`] | the address of the client, behind proxies that you name |
//! | [`extension`] | what an outer layer left, such as the authenticated user |
//! | [`bearer`] | the token of `Authorization: Bearer` |
//! | [`basic_user`] | the user id of `Authorization: Basic` |
//! | [`header`] | the value of a header, such as an API key |
//! | [`cookie`] | the value of a cookie, such as a session |
//! | [`method`] | the request's method |
//! | [`matched_path`] | the route that matched (feature `axum`) |
//! | [`global`] | the same for all |
//! | a closure | what it returns |
//! | `(a, b)` | both together |
//! | [`a.or(b)`](KeyExtractor::or) | the first that the request has |
//!
//! # Whom to believe
//! Count by the authenticated identity: [`extension`], inside the authentication layer. It has
//! checked who the caller is, and it knows one name for each caller.
//!
//! [`bearer`], [`basic_user`], [`header`] and [`cookie`] are second best. They read what the caller
//! wrote:
//!
//! - **Before authentication an attacker can invent credentials.** Each invented one has a fresh
//!   quota. Add a second rule by address, or put the rule inside a layer that answers 401 to
//!   unknown credentials.
//! - **One identity can have several credentials.** A user with ten tokens has ten quotas.
//!
//! # Addresses
//! [`PeerIp`] and [`ClientIp`] count an IPv4 address as one caller, and an IPv6 address by its /64.
//! Some IPv6 addresses stand for an IPv4 address and count as that address, also in the lists of
//! [`PeerIp::is_in`] and [`ClientIp::is_in`]:
//!
//! | addresses | are | the IPv4 address |
//! |---|---|---|
//! | `::ffff:0:0/96` | IPv4-mapped, from a socket that accepts both | the last 32 bits |
//! | `64:ff9b::/96` | behind NAT64 (RFC 6052) | the last 32 bits |
//! | `2002::/16` | 6to4 (RFC 3056) | bits 16 to 47 |
//! | `2001::/32` | Teredo (RFC 4380) | the last 32 bits, inverted |
//!
//! By its /64, all of the IPv4 internet behind a NAT64 translator would be one caller. So would all
//! users of one Teredo server. A host with 6to4 could use 65,536 networks.
//!
//! `64:ff9b:1::/48`, the local-use prefix of NAT64 (RFC 8215), is not in the table. Each network
//! chooses the length of its prefix there, so the place of the IPv4 address is unknown. Behind such
//! a translator use [`ipv6_prefix(128)`](PeerIp::ipv6_prefix), or a closure that knows the prefix.
//!
//! [`ClientIp::trusting`](ClientIpHeader::trusting) compares addresses without this table: see
//! there.
//!
#![cfg_attr(feature = "axum", doc = "[`matched_path`]: matched_path()")]
#![cfg_attr(not(feature = "axum"), doc = "[`matched_path`]: crate::extract")]

mod authorization;
mod client_ip;
mod cookie;
mod extension;
mod head;
mod header;
mod networks;
mod peer_ip;

use std::sync::Arc;

use http::Method;
use http::request::Parts;
use tollgate_core::Key;

pub use authorization::{basic_user, bearer};
pub use client_ip::{ClientIp, ClientIpHeader};
pub use cookie::{Cookie, cookie};
pub use extension::extension;
#[doc(hidden)]
pub use head::Head;
pub use header::{Header, header};
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

    #[test]
    fn invented_methods_share_a_key() {
        let key = |name: &str| method().extract(&parts(|b| b.method(name))).unwrap();
        assert_eq!(key("BREW"), key("WHEN"));
        assert_ne!(key("GET"), key("POST"));
    }
}
