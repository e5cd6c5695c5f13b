//! The address at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;
use tollgate_core::Key;
#[cfg(feature = "tracing")]
use tollgate_core::LogCode;

use super::extractor::{AddressExtractor, KeyExtractor};
use super::head::Head;
#[cfg(feature = "tracing")]
use crate::errors::FirstOnes;
use crate::errors::Reason;

/// The peer's address, for servers that this crate does not know: insert it into the extensions of
/// each request of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// The IP address of the peer, at the other end of the connection.
///
/// IPv6 addresses are grouped by their /64. A customer has at least that many, and could otherwise
/// rotate through 2^64 addresses. IPv6 addresses that stand for an IPv4 address count as that
/// address (IPv4-mapped, NAT64, 6to4, Teredo): see [Addresses](super#addresses).
///
/// The address is the first of these in the request's extensions:
///
/// - a [`PeerAddr`];
/// - with the feature `axum`, `ConnectInfo<SocketAddr>`: start the server with
///   `into_make_service_with_connect_info::<SocketAddr>()`;
/// - with the feature `tonic`, the `TcpConnectInfo` of tonic's own server, with or without TLS.
///
/// Without any of them there is no key. Requests are answered 500 unless
/// [`on_missing_key`](crate::Rule::on_missing_key) says otherwise, and the log says once which call
/// is missing.
///
/// **Behind a proxy all requests come from the proxy** and share its quota: use
/// [`ClientIp`](super::ClientIp) there. The log says once if one of the first requests has a field
/// that proxies write.
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    v6_prefix: u8,
}

impl PeerIp {
    /// Counts by address, IPv6 by /64.
    pub fn new() -> PeerIp {
        PeerIp { v6_prefix: 64 }
    }

    /// Groups IPv6 addresses by their first `bits` bits instead of 64: 56 or 48 if customers have
    /// larger networks, 128 for single addresses. More than 128 counts as 128.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> PeerIp {
        self.v6_prefix = bits.min(128);
        self
    }
}

impl Default for PeerIp {
    fn default() -> PeerIp {
        PeerIp::new()
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        #[cfg(feature = "tracing")]
        look_at_first_ones(head);
        peer(head.extensions()).map(|address| Key::network(address, self.v6_prefix))
    }

    fn why_missing(&self, _: &Head<'_>) -> Reason {
        Reason::NoPeerAddress
    }
}

impl AddressExtractor for PeerIp {
    fn address(&self, head: &Head<'_>) -> Option<IpAddr> {
        peer(head.extensions()).map(|address| address.to_canonical())
    }
}

/// The peer's address, as the server inserted it. Logs once if it is missing.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = peer_if_known(extensions);
    if peer.is_none() {
        log_missing_peer();
    }
    peer
}

pub(super) fn peer_if_known(extensions: &Extensions) -> Option<IpAddr> {
    // First: code that inserts it, such as a reader of the PROXY protocol, knows more than the
    // socket does.
    if let Some(PeerAddr(address)) = extensions.get::<PeerAddr>() {
        return Some(address.ip());
    }
    #[cfg(feature = "axum")]
    {
        use axum::extract::ConnectInfo;
        use axum::extract::connect_info::MockConnectInfo;
        if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
        // The fallback of axum's own extractor, for tests.
        if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
    }
    #[cfg(feature = "tonic")]
    {
        use tonic::transport::server::TcpConnectInfo;
        // Also present on a connection with TLS.
        if let Some(address) = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr) {
            return Some(address.ip());
        }
    }
    None
}

/// The fields in which proxies name the client.
#[cfg(feature = "tracing")]
const PROXY_FIELDS: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

/// Logs once if one of the first requests came through a proxy.
#[cfg(feature = "tracing")]
#[inline]
fn look_at_first_ones(head: &Head<'_>) {
    static FIRST: FirstOnes = FirstOnes::new(1_000);
    if FIRST.is_one() {
        look_for_proxy(head);
    }
}

#[cfg(feature = "tracing")]
#[cold]
fn look_for_proxy(head: &Head<'_>) {
    let field = PROXY_FIELDS.iter().find(|field| head.headers().contains_key(**field));
    if let Some(field) = field
        && LogCode::ProxyField.is_first()
    {
        tracing::warn!(
            code = %LogCode::ProxyField,
            "a request has `{field}`, and a rule counts by peer address: behind a proxy all callers share one quota; \
             count by `ClientIp` there"
        );
    }
}

fn log_missing_peer() {
    #[cfg(feature = "tracing")]
    {
        if LogCode::NoPeerAddress.is_first() {
            tracing::error!(
                code = %LogCode::NoPeerAddress,
                "requests have no peer address to be limited by: with axum, serve \
                 `app.into_make_service_with_connect_info::<SocketAddr>()` and enable tollgate's feature `axum`; \
                 with tonic's own server, enable tollgate's feature `tonic`; \
                 with another server, insert `tollgate::extract::PeerAddr` into each request's extensions"
            );
        }
    }
}

/// For a request behind trusted hops, the nearest of which may be on a Unix socket.
pub(super) fn log_missing_client() {
    #[cfg(feature = "tracing")]
    {
        if LogCode::NoClientAddress.is_first() {
            tracing::warn!(
                code = %LogCode::NoClientAddress,
                "a request has no client address: neither the trusted header nor the server has one; unless the server \
                 listens on a Unix socket, let it insert its peers' addresses: with axum, serve \
                 `app.into_make_service_with_connect_info::<SocketAddr>()`"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_one_customer_are_one_key() {
        let key = |address: &str| {
            let mut request = http::Request::new(());
            request.extensions_mut().insert(PeerAddr(address.parse().unwrap()));
            PeerIp::new().extract(&Head::from(&request)).unwrap()
        };
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::ffff:2]:9"));
        assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
        assert_eq!(key("192.0.2.1:1"), key("[::ffff:192.0.2.1]:9"));
        assert_ne!(key("192.0.2.1:1"), key("192.0.2.2:1"));
        assert_eq!(key("192.0.2.1:1"), key("[64:ff9b::192.0.2.1]:9"));
        assert_eq!(key("192.0.2.1:1"), key("[2002:c000:201:7::1]:9"));
    }

    #[test]
    fn no_address_is_no_key() {
        assert!(PeerIp::new().extract(&Head::from(&http::Request::new(()))).is_none());
    }
}
