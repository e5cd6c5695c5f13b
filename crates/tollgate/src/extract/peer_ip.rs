//! The address at the other end of the connection.

use std::net::{IpAddr, SocketAddr};

use http::Extensions;
use http::request::Parts;
use tollgate_core::Key;

use super::networks::{Networks, TrustError};
use super::{Head, KeyExtractor};
use crate::exempt::Addresses;
use crate::problem::Reason;

/// The peer's address, for servers that leave it nowhere this crate looks: insert it into the extensions of each
/// request that a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// The key of the peer: the IP address at the other end of the connection. IPv6 addresses are
/// grouped by their /64: a customer is given at least that, and could otherwise rotate through 2^64
/// addresses. IPv6 addresses that stand for an IPv4 address count as that address (IPv4-mapped,
/// NAT64, 6to4, Teredo): see [Addresses](super#addresses).
///
/// The address is taken from a [`PeerAddr`] in the request's extensions, or with the feature `axum`
/// from its `ConnectInfo<SocketAddr>`, which is there if the server was started with
/// `into_make_service_with_connect_info::<SocketAddr>()`; or with the feature `tonic` from the
/// `TcpConnectInfo` that tonic's own server leaves, with or without TLS. Where it is missing there
/// is no key. Requests are answered 500 unless [`on_missing_key`](crate::Rule::on_missing_key) says
/// otherwise, and the log says once which call is missing.
///
/// **Behind a proxy all requests come from the proxy**, and share its quota: use [`ClientIp`](super::ClientIp) there.
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    v6_prefix: u8,
}

impl PeerIp {
    /// By address; IPv6 by /64.
    pub fn new() -> PeerIp {
        PeerIp { v6_prefix: 64 }
    }

    /// Groups IPv6 addresses by their first `bits` bits instead of 64: 56 or 48 where customers are given more, 128
    /// for single addresses (and more is 128).
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> PeerIp {
        self.v6_prefix = bits.min(128);
        self
    }

    /// Requests from these networks, in CIDR notation (`10.0.0.0/8`, `fd00::/8`) or single
    /// addresses, for [`Rule::exempt`](crate::Rule::exempt). A whole address is compared, however
    /// addresses are grouped as keys. One that stands for an [IPv4 address](super#addresses)
    /// matches by either. A request without a peer address is not exempt.
    ///
    /// **Behind a proxy the peer is the proxy**: to list it, or the network or the `::1` that it
    /// calls from, exempts every request. Use [`ClientIp::is_in`](super::ClientIp::is_in) there.
    ///
    /// # Errors
    /// [`TrustError`] for the first that is neither a network nor an address.
    ///
    /// ```
    /// use tollgate::extract::PeerIp;
    ///
    /// # fn main() -> Result<(), tollgate::extract::TrustError> {
    /// let of_the_office = PeerIp::new().is_in(["203.0.113.0/24", "2001:db8:1::/48"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_in<N: AsRef<str>>(
        self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Addresses, TrustError> {
        Ok(Addresses::of_peers(self, Networks::parse(networks)?))
    }

    pub(crate) fn address_from(self, head: &Head<'_>) -> Option<IpAddr> {
        peer(head.extensions).map(|address| address.to_canonical())
    }

    #[inline(never)]
    fn key_of_other(&self, peer: Option<IpAddr>) -> Option<Key> {
        if peer.is_none() {
            say_once_that_it_is_missing();
        }
        peer.map(|address| Key::network(address, self.v6_prefix))
    }
}

impl Default for PeerIp {
    fn default() -> PeerIp {
        PeerIp::new()
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        match peer_if_known(head.extensions) {
            // Written where the caller wants it: a key that is copied on the way is copied in other pieces than it was written
            // in, which processors are slow at.
            Some(IpAddr::V4(address)) => Some(Key::network(address.into(), 128)),
            other => self.key_of_other(other),
        }
    }

    fn needs_parts(&self) -> bool {
        false
    }

    fn why_missing(&self, _: &Head<'_>) -> Reason {
        Reason::NoPeerAddress
    }
}

/// The peer's address, as the server left it; says once in the log where it is missing.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let peer = peer_if_known(extensions);
    if peer.is_none() {
        say_once_that_it_is_missing();
    }
    peer
}

pub(super) fn peer_if_known(extensions: &Extensions) -> Option<IpAddr> {
    // First, since it was inserted by hand: by who reads the PROXY protocol, for one, and knows better than the socket.
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
        // What axum's own extractor falls back to in tests.
        if let Some(MockConnectInfo(address)) = extensions.get::<MockConnectInfo<SocketAddr>>() {
            return Some(address.ip());
        }
    }
    #[cfg(feature = "tonic")]
    {
        use tonic::transport::server::TcpConnectInfo;
        // Of a connection with TLS, tonic's server leaves this as well.
        if let Some(address) = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr) {
            return Some(address.ip());
        }
    }
    None
}

fn say_once_that_it_is_missing() {
    #[cfg(feature = "tracing")]
    {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| {
            tracing::error!(
                "requests carry no peer address, so that none can be limited by it: with axum, serve \
                 `app.into_make_service_with_connect_info::<SocketAddr>()` and enable tollgate's feature `axum`; \
                 with tonic's own server, enable tollgate's feature `tonic`; \
                 with another server, insert `tollgate::extract::PeerAddr` into each request's extensions"
            );
        });
    }
}

/// Behind trusted hops, of which the nearest may be on a Unix socket.
pub(super) fn say_once_that_nobody_tells_it() {
    #[cfg(feature = "tracing")]
    {
        static SAID: std::sync::Once = std::sync::Once::new();
        SAID.call_once(|| {
            tracing::warn!(
                "a request has no client address: the header that was trusted tells none, and neither does the server                  (unless it listens on a Unix socket, let it tell its peers': with axum, serve                  `app.into_make_service_with_connect_info::<SocketAddr>()`)"
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_customer_is_one_key() {
        let key = |address: &str| {
            let mut request = http::Request::new(());
            request.extensions_mut().insert(PeerAddr(address.parse().unwrap()));
            PeerIp::new().extract(&request.into_parts().0).unwrap()
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
        assert!(PeerIp::new().extract(&http::Request::new(()).into_parts().0).is_none());
    }
}
