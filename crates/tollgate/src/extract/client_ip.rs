//! The address of the client behind trusted proxies.
//!
//! A proxy appends the address that it saw to the right of the header. The caller may have written
//! everything to the left. So the list is read from the right, as long as trusted proxies wrote it.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use tollgate_core::Key;
#[cfg(feature = "tracing")]
use tollgate_core::LogCode;

use super::extractor::{AddressExtractor, KeyExtractor};
use super::head::Head;
use super::networks::Networks;
use super::peer_ip::{log_missing_client, peer, peer_if_known};
use crate::errors::{Reason, SetupError, or_panic};

/// The client's address from one header, as far as trusted proxies wrote it.
///
/// All lines of the header are one list, read from the right. The walk starts at the peer and moves
/// left as long as the writer of an entry is trusted. The first address that is not trusted is the
/// client; if all are trusted, the leftmost is. If the peer is not trusted, the header is ignored
/// and the peer is the client. An entry that is no address (garbage, `unknown`, an obfuscated name)
/// ends the walk at the last valid address.
///
/// Entries may be `ip`, `ip:port`, `[ipv6]` and `[ipv6]:port`, with or without quotes. In the
/// header `forwarded` (RFC 7239), the `for` parameters are read. IPv6 addresses are grouped by /64.
/// Those that stand for an IPv4 address count as that address: see [Addresses](super#addresses).
///
/// No extractor guesses which header to trust; you name it. A proxy that sets one header passes the
/// others on as the client wrote them.
///
/// ```
/// use tollgate::extract::ClientIp;
///
/// // The load balancers in this network append to `x-forwarded-for`.
/// let by_client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8", "fd00::/8"]);
///
/// // Their addresses change, but there are always two of them.
/// let by_client = ClientIp::from_header("x-forwarded-for").trusting_hops(2);
/// ```
#[doc(alias("SmartIp", "real_ip", "x-forwarded-for"))]
#[derive(Clone, Debug)]
pub struct ClientIp {
    header: HeaderName,
    trust: Trust,
    v6_prefix: u8,
}

#[derive(Clone, Debug)]
enum Trust {
    Networks(Networks),
    Hops(usize),
}

/// A header with addresses, before you name the trusted proxies: see [`ClientIp::from_header`].
#[derive(Clone, Debug)]
#[must_use = "name the trusted proxies: the client can write the header itself"]
pub struct ClientIpHeader(HeaderName);

impl ClientIp {
    /// Names the header that the nearest proxy sets. Complete it with
    /// [`trusting`](ClientIpHeader::trusting) or [`trusting_hops`](ClientIpHeader::trusting_hops).
    ///
    /// # Panics
    /// If `name` is not a header name. [`ClientIpHeader::from`] takes a [`HeaderName`] parsed at
    /// run time.
    #[track_caller]
    pub fn from_header(name: &str) -> ClientIpHeader {
        match HeaderName::try_from(name) {
            Ok(name) => ClientIpHeader(name),
            Err(_) => panic!("{name:?} is not a header name"),
        }
    }

    /// Groups IPv6 addresses by their first `bits` bits instead of 64. More than 128 counts as 128.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> ClientIp {
        self.v6_prefix = bits.min(128);
        self
    }

    fn trusts(&self, address: Option<IpAddr>, hops: usize) -> bool {
        match &self.trust {
            Trust::Networks(networks) => address.is_some_and(|address| networks.contain(address)),
            Trust::Hops(trusted) => hops < *trusted,
        }
    }
}

impl AddressExtractor for ClientIp {
    /// `None` without a peer address; with [`trusting_hops`](ClientIpHeader::trusting_hops), only
    /// if the header's last entry is no address either.
    fn address(&self, head: &Head<'_>) -> Option<IpAddr> {
        let peer = match &self.trust {
            Trust::Networks(_) => Some(peer(head.extensions())?),
            // A proxy on a Unix socket has no address but is a hop.
            Trust::Hops(_) => peer_if_known(head.extensions()),
        };
        let mut client = peer.map(|peer| peer.to_canonical());
        let is_forwarded = self.header == http::header::FORWARDED;
        let lines = head.headers().get_all(&self.header).iter().rev();
        let mut entries = lines.flat_map(|line| EntriesFromTheRight { rest: Some(line.as_bytes()) });
        let mut hops = 0;
        while self.trusts(client, hops) {
            // Empty list elements do not count (RFC 9110, section 5.6.1).
            let Some(entry) = entries.find(|entry| !entry.is_empty()) else { break };
            let node = if is_forwarded { forwarded_for(entry) } else { Some(unquoted(entry)) };
            let Some(address) = node.and_then(parse_node) else { break };
            client = Some(address);
            hops += 1;
        }
        if client.is_none() {
            log_missing_client();
        }
        client
    }
}

impl ClientIpHeader {
    /// Trusts the proxies in these networks, in CIDR notation (`10.0.0.0/8`, `fd00::/8`) or as
    /// single addresses. The header is only read if the peer is among them.
    ///
    /// Trust only your proxies: callers in a trusted network can forge their address. The log says
    /// once if a network covers every address.
    ///
    /// Addresses are compared as the server sees them; only IPv4-mapped ones are unmapped. A 6to4
    /// or NAT64 address does *not* match the IPv4 address in it: every host behind a 6to4 router
    /// has the router's IPv4 address in its own, and could pose as a proxy at that address. If
    /// proxies reach the server through NAT64, list them as the server sees them, such as
    /// `64:ff9b::192.0.2.0/120`.
    ///
    /// # Panics
    /// If [`ClientIpHeader::try_trusting`] would return an error.
    #[track_caller]
    pub fn trusting<N: AsRef<str>>(self, networks: impl IntoIterator<Item = N>) -> ClientIp {
        or_panic(self.try_trusting(networks))
    }

    /// [`ClientIpHeader::trusting`] for networks that are known only at run time.
    ///
    /// # Errors
    /// [`SetupError`] for the first text that is neither a network nor an address, or if there are
    /// none.
    pub fn try_trusting<N: AsRef<str>>(
        self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<ClientIp, SetupError> {
        let networks = Networks::parse(networks)?;
        if networks.is_empty() {
            return Err(SetupError::NoNetworks);
        }
        #[cfg(feature = "tracing")]
        if networks.cover_all() && LogCode::TrustsAll.is_first() {
            tracing::warn!(
                code = %LogCode::TrustsAll,
                "`ClientIp` trusts `{}` from every address: each caller chooses its own; trust the networks of your \
                 proxies",
                self.0
            );
        }
        Ok(ClientIp { header: self.0, trust: Trust::Networks(networks), v6_prefix: 64 })
    }

    /// Trusts a fixed number of proxies at any address. With 1, the rightmost entry is the client.
    /// With 0, the header is not read.
    ///
    /// Safe only if *every* request passes that many proxies: a caller that reaches the server
    /// directly can forge the entries.
    pub fn trusting_hops(self, proxies: usize) -> ClientIp {
        ClientIp { header: self.0, trust: Trust::Hops(proxies), v6_prefix: 64 }
    }
}

impl From<HeaderName> for ClientIpHeader {
    fn from(name: HeaderName) -> ClientIpHeader {
        ClientIpHeader(name)
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &Head<'_>) -> Option<Key> {
        self.address(head).map(|address| Key::network(address, self.v6_prefix))
    }

    /// Without an address in the header, the peer's is missing too.
    fn why_missing(&self, _: &Head<'_>) -> Reason {
        Reason::NoPeerAddress
    }
}

/// The trimmed elements of a comma-separated list, last one first. Commas in quoted strings do not
/// separate.
///
/// Read from the right: an unbalanced quote of the client must not swallow a trusted proxy's entry.
struct EntriesFromTheRight<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for EntriesFromTheRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut quoted = false;
        let comma = (0..rest.len()).rev().find(|at| {
            // An escaped quote in a quoted string is content.
            if rest[*at] == b'"' && !(quoted && at.checked_sub(1).is_some_and(|before| rest[before] == b'\\'))
            {
                quoted = !quoted;
            }
            rest[*at] == b',' && !quoted
        });
        let entry = match comma {
            Some(comma) => {
                self.rest = Some(&rest[..comma]);
                &rest[comma + 1..]
            }
            None => self.rest.take()?,
        };
        Some(entry.trim_ascii())
    }
}

/// The `for` parameter of one element of `forwarded` (RFC 7239, section 4).
fn forwarded_for(element: &[u8]) -> Option<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    // A semicolon in a quoted string does not separate: otherwise the client's `host` could contain
    // a `for`.
    let mut pairs = element.split(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => return *byte == b';' && !quoted,
        }
        false
    });
    pairs.find_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        name.trim_ascii().eq_ignore_ascii_case(b"for").then(|| unquoted(value.trim_ascii()))
    })
}

fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(text)
}

/// Parses `ip`, `ip:port`, `[ipv6]`, `[ipv6]:port` or a bare IPv6 address. An obfuscated port (RFC
/// 7239, section 6) does not invalidate the address.
fn parse_node(node: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(node).ok()?.trim();
    let is_obfuscated = |port: &str| {
        let name = port.strip_prefix('_').unwrap_or_default();
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let text =
        text.rsplit_once(':').filter(|(_, port)| is_obfuscated(port)).map_or(text, |(address, _)| address);
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse::<IpAddr>().ok().or_else(with_port).or_else(bracketed).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::super::PeerAddr;
    use super::*;
    use crate::rule::exempt::try_from_networks;

    fn address_by(extractor: &ClientIp, peer: &str, header: &str, lines: &[&str]) -> String {
        let mut request = http::Request::new(());
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 4)));
        for line in lines {
            let name = HeaderName::try_from(header).unwrap();
            request.headers_mut().append(name, http::HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        extractor.address(&Head::from(&request)).unwrap().to_string()
    }

    /// For the peer 10.0.0.1 in the trusted network.
    fn client(lines: &[&str]) -> String {
        let extractor = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
        address_by(&extractor, "10.0.0.1", "x-forwarded-for", lines)
    }

    #[test]
    fn forged_entries_on_the_left_change_nothing() {
        assert_eq!(client(&["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client(&["1.1.1.1, 2.2.2.2, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(client(&["10.0.0.9, 198.51.100.7, 10.0.0.2"]), "198.51.100.7");
    }

    #[test]
    fn several_lines_are_one_list() {
        assert_eq!(client(&["1.1.1.1", "198.51.100.7", "10.0.0.2"]), "198.51.100.7");
        assert_eq!(client(&["1.1.1.1, 2.2.2.2", "198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_its_header() {
        let extractor = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
        assert_eq!(address_by(&extractor, "192.0.2.9", "x-forwarded-for", &["1.1.1.1"]), "192.0.2.9");
    }

    /// Every host behind a 6to4 router has the router's IPv4 address in its own.
    #[test]
    fn an_address_with_a_proxys_ipv4_address_in_it_is_not_trusted() {
        for stranger in ["2002:a00:1::5", "64:ff9b::a00:1", "2001:0:1:2:0:1:f5ff:fffe"] {
            let extractor = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
            assert_eq!(address_by(&extractor, stranger, "x-forwarded-for", &["1.1.1.1"]), stranger);
            assert_eq!(client(&[&format!("1.1.1.1, {stranger}")]), stranger);
        }
        let as_seen = ClientIp::from_header("x-forwarded-for").trusting(["64:ff9b::10.0.0.0/104"]);
        assert_eq!(address_by(&as_seen, "64:ff9b::10.0.0.1", "x-forwarded-for", &["1.1.1.1"]), "1.1.1.1");
    }

    #[test]
    fn ports_brackets_and_quotes() {
        for (entry, address) in [
            ("198.51.100.7:4711", "198.51.100.7"),
            ("\"198.51.100.7:4711\"", "198.51.100.7"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
        ] {
            assert_eq!(client(&[entry]), address, "{entry}");
        }
    }

    #[test]
    fn an_empty_list_of_proxies_is_refused_at_construction() {
        let trusted: [&str; 0] = [];
        let error = ClientIp::from_header("x-forwarded-for").try_trusting(trusted).unwrap_err();
        assert_eq!(error, SetupError::NoNetworks);
        // A list of exemptions may be empty.
        let client = ClientIp::from_header("x-forwarded-for").trusting_hops(1);
        assert!(try_from_networks(client, trusted).is_ok());
    }

    #[test]
    fn garbage_stops_the_walk_at_the_last_valid_address() {
        for entry in
            ["unknown", "_hidden", "1.2.3", "1.2.3.4.5", "[::1", "::1]", "1.2.3.4:port", "\u{fffd}", "-"]
        {
            assert_eq!(client(&[&format!("1.1.1.1, {entry}")]), "10.0.0.1", "{entry}");
            assert_eq!(client(&[&format!("1.1.1.1, {entry}, 10.0.0.3")]), "10.0.0.3", "{entry}");
        }
    }

    #[test]
    fn all_trusted_gives_the_leftmost() {
        assert_eq!(client(&["10.9.9.9, 10.0.0.3", "10.0.0.2"]), "10.9.9.9");
        assert_eq!(client(&[]), "10.0.0.1");
        assert_eq!(client(&["", " , ,"]), "10.0.0.1");
        assert_eq!(client(&["198.51.100.7, ,"]), "198.51.100.7");
    }

    #[test]
    fn hops_are_counted_from_the_peer() {
        let by = |hops, lines: &[&str]| {
            let extractor = ClientIp::from_header("x-forwarded-for").trusting_hops(hops);
            address_by(&extractor, "10.0.0.1", "x-forwarded-for", lines)
        };
        assert_eq!(by(0, &["1.1.1.1"]), "10.0.0.1");
        assert_eq!(by(1, &["1.1.1.1, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(by(2, &["1.1.1.1, 198.51.100.7, 10.0.0.2"]), "198.51.100.7");
        assert_eq!(by(2, &["198.51.100.7"]), "198.51.100.7");
        let mut request = http::Request::new(());
        request.headers_mut().insert("x-forwarded-for", http::HeaderValue::from_static("198.51.100.7"));
        let on_a_unix_socket = ClientIp::from_header("x-forwarded-for").trusting_hops(1);
        let address = on_a_unix_socket.address(&Head::from(&request));
        assert_eq!(address, Some("198.51.100.7".parse().unwrap()));
    }

    #[test]
    fn forwarded_is_read_by_its_for_parameters() {
        let extractor = ClientIp::from_header("forwarded").trusting(["10.0.0.0/8", "2001:db8:a::/48"]);
        let by = |lines: &[&str]| address_by(&extractor, "10.0.0.1", "forwarded", lines);
        assert_eq!(by(&["for=198.51.100.7"]), "198.51.100.7");
        assert_eq!(by(&["for=1.1.1.1, by=10.0.0.1;For=\"198.51.100.7:8080\";proto=https"]), "198.51.100.7");
        assert_eq!(by(&["for=198.51.100.7, for=\"[2001:db8:a::17]:4711\""]), "198.51.100.7");
        assert_eq!(by(&["for=1.1.1.1, for=_hidden"]), "10.0.0.1");
        assert_eq!(by(&["for=1.1.1.1, for=\"198.51.100.7:_p1\""]), "198.51.100.7");
        assert_eq!(by(&["for=1.1.1.1, for=\"[2001:db8::1]:_x.y-z\""]), "2001:db8::1");
        for garbage in ["_", "_a b", "_ä", "a_"] {
            let entry = format!("for=1.1.1.1, for=\"198.51.100.7:{garbage}\"");
            assert_eq!(by(&[&entry]), "10.0.0.1", "{garbage}");
        }
        assert_eq!(by(&["for=1.1.1.1, proto=https"]), "10.0.0.1");
        assert_eq!(by(&["for=198.51.100.7;note=\"a, b \\\" c\""]), "198.51.100.7");
        assert_eq!(by(&["proto=http;host=\"x;for=6.6.6.6;y\";for=198.51.100.7"]), "198.51.100.7");
        assert_eq!(by(&["host=\"x\\\";for=6.6.6.6;\";for=198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn an_unbalanced_quote_of_the_client_does_not_swallow_the_proxys_entry() {
        assert_eq!(client(&["\"1.1.1.1, 198.51.100.7"]), "198.51.100.7");
        assert_eq!(client(&["\\\", 198.51.100.7"]), "198.51.100.7");
    }

    #[test]
    fn networks_are_checked_at_construction() {
        let trusting = |text| ClientIp::from_header("x-forwarded-for").try_trusting([text]);
        for good in ["10.0.0.0/8", "10.0.0.1", "fd00::/8", "::1", " 10.0.0.0/8 ", "0.0.0.0/0"] {
            assert!(trusting(good).is_ok(), "{good}");
        }
        for bad in ["", "10.0.0.0/33", "10.0.0", "everyone", "fd00::/129"] {
            assert!(trusting(bad).is_err(), "{bad}");
        }
        let mapped = trusting("::ffff:10.0.0.0/104").unwrap();
        assert_eq!(address_by(&mapped, "10.0.0.1", "x-forwarded-for", &["1.1.1.1"]), "1.1.1.1");
    }
}
