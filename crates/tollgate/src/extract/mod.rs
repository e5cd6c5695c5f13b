//! Extractors: where the key of a request comes from.
//!
//! | extractor | the key is |
//! |---|---|
//! | [`PeerIp`] | the address of the connection |
//! | [`ClientIp`] | the address of the client, behind proxies that you name |
//! | [`extension`], [`extension_ref`] | a value from an outer layer, such as the authenticated user |
//! | [`bearer`] | the token of `Authorization: Bearer` |
//! | [`basic_user`] | the user id of `Authorization: Basic` |
//! | [`header`] | the value of a header, such as an API key |
//! | [`cookie`] | the value of a cookie, such as a session |
//! | [`method`] | the request's method |
//! | [`matched_path`] | the route that matched (feature `axum`) |
//! | [`global`] | the same for all requests |
//! | a closure | what it returns |
//! | `(a, b)` | both together |
//! | [`a.or(b)`](KeyExtractor::or) | the first that the request has |
//!
//! # Which values to believe
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
//! Some IPv6 addresses stand for an IPv4 address and count as that address, also in
//! [lists of exempt networks](crate::exempt::from_networks):
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
mod extractor;
pub(crate) mod grpc_type;
mod head;
mod header;
mod networks;
mod peer_ip;
#[cfg(test)]
mod strangers;

use http::Method;
use tollgate_core::Key;

pub use authorization::{basic_user, bearer};
pub use client_ip::{ClientIp, ClientIpHeader};
pub use cookie::{Cookie, cookie};
pub use extension::{extension, extension_ref};
pub use extractor::{AddressExtractor, KeyExtractor};
pub use head::Head;
pub use header::{Header, header};
pub use peer_ip::{PeerAddr, PeerIp};

#[cfg(feature = "config")]
pub(crate) use extractor::first_mistake;
pub(crate) use head::received;
pub(crate) use networks::Networks;

/// The request's method. All methods that HTTP does not define share one key, since callers can
/// invent more.
pub fn method() -> impl KeyExtractor {
    |head: &Head<'_>| {
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
        let known = standard.contains(head.method());
        Some(if known { Key::from(head.method().as_str()) } else { Key::from("(other)") })
    }
}

/// One key for all requests.
#[doc(alias = "GlobalKeyExtractor")]
pub fn global() -> impl KeyExtractor {
    |_: &Head<'_>| Some(Key::global())
}

/// The matched route of axum's `Router`, such as `/users/{id}`. Requests that match none share one
/// key: otherwise each invented path would have a fresh quota.
///
/// Only layers added with `Router::layer` or `Router::route_layer` see the route. A layer wrapped
/// around a whole `Router` runs before it.
#[cfg(feature = "axum")]
pub fn matched_path() -> impl KeyExtractor {
    |head: &Head<'_>| {
        let matched = head.extensions().get::<axum::extract::MatchedPath>();
        Some(Key::from(matched.map_or("(unmatched)", axum::extract::MatchedPath::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key_of(
        extractor: &dyn KeyExtractor,
        build: impl FnOnce(http::request::Builder) -> http::request::Builder,
    ) -> Option<Key> {
        extractor.extract(&Head::from(&build(Request::builder()).body(()).unwrap()))
    }

    #[test]
    fn a_header_value_is_never_the_key_of_an_address() {
        let extractor = header("x-user").or(PeerIp::new());
        let address = "192.0.2.1:5".parse::<std::net::SocketAddr>().unwrap();
        let by_address = key_of(&extractor, |b| b.extension(PeerAddr(address)));
        let by_header = key_of(&extractor, |b| b.header("x-user", "192.0.2.1"));
        assert!(by_address.is_some() && by_header.is_some());
        assert_ne!(by_address, by_header);
    }

    #[test]
    fn an_empty_header_is_no_key() {
        let both = header("a").or(header("b"));
        let key = key_of(&both, |b| b.header("a", "").header("b", "x"));
        assert_eq!(key, Some(Key::from("x").of_branch(1)));
        assert!(key_of(&(header("a"), header("b")), |b| b.header("a", "")).is_none());
        let key = key_of(&(header("a"), header("b")), |b| b.header("a", "").header("b", "x"));
        assert!(key.unwrap().is_empty());
    }

    #[test]
    fn invented_methods_share_a_key() {
        let key = |name: &str| key_of(&method(), |b| b.method(name)).unwrap();
        assert_eq!(key("BREW"), key("WHEN"));
        assert_ne!(key("GET"), key("POST"));
    }
}
