//! The address of the client behind proxies that are trusted by name.
//!
//! A proxy appends the address that it saw to the right of what it was sent. What stands to the left of that was written
//! by whoever sent the request, so that the list is read from the right, and only as far as trusted proxies vouch for it.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use http::request::Parts;
use tollgate_core::Key;

use super::networks::{Networks, TrustError};
use super::peer_ip::{peer, peer_if_known, say_once_that_nobody_tells_it};
use super::{Head, KeyExtractor};
use crate::exempt::Addresses;
use crate::problem::Reason;

/// The client's address as one header tells it, believed as far as trusted proxies vouch for it.
///
/// All lines of the header are one list, walked from the right: the peer first, then entry by entry, for as long as the
/// one that wrote an entry is trusted. The first address that is not trusted is the client; where all are, the leftmost
/// is. An entry that is no address (garbage, `unknown`, an obfuscated name) ends the walk at the nearest address that
/// was vouched for. Where the peer itself is not trusted, the header is ignored and the peer is the client.
///
/// Entries may be `ip`, `ip:port`, `[ipv6]` and `[ipv6]:port`, in quotes or not; of the header
/// `forwarded` (RFC 7239) the `for` parameters are read. IPv6 addresses are grouped by /64. Those
/// that stand for an IPv4 address count as that address: see [Addresses](super#addresses).
///
/// There is no extractor that guesses among several headers: a proxy that sets one passes the others on as the client
/// wrote them.
///
/// ```
/// use tollgate::extract::ClientIp;
///
/// # fn main() -> Result<(), tollgate::extract::TrustError> {
/// // The load balancers of this network append to `x-forwarded-for`.
/// let by_client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8", "fd00::/8"])?;
///
/// // Their addresses change, but there are always two of them.
/// let by_client = ClientIp::from_header("x-forwarded-for").trusting_hops(2);
/// # Ok(())
/// # }
/// ```
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

/// A header that tells addresses, of which nothing is believed yet: see [`ClientIp::from_header`].
#[derive(Clone, Debug)]
#[must_use = "say whom to trust: a header alone is what the client wrote"]
pub struct ClientIpHeader(HeaderName);

impl ClientIp {
    /// Begins with the header that the nearest proxy sets. It becomes an extractor with
    /// [`trusting`](ClientIpHeader::trusting) or [`trusting_hops`](ClientIpHeader::trusting_hops).
    ///
    /// # Panics
    /// If `name` is not a header name. [`ClientIpHeader::from`] takes a [`HeaderName`] that was parsed at run time.
    pub fn from_header(name: &str) -> ClientIpHeader {
        match HeaderName::try_from(name) {
            Ok(name) => ClientIpHeader(name),
            Err(_) => panic!("{name:?} is not a header name"),
        }
    }

    /// Groups IPv6 addresses by their first `bits` bits instead of 64; more than 128 is 128.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> ClientIp {
        self.v6_prefix = bits.min(128);
        self
    }

    /// Requests of clients from these networks, in CIDR notation or single addresses, for
    /// [`Rule::exempt`](crate::Rule::exempt). A whole address is compared, however addresses are
    /// grouped as keys. One that stands for an [IPv4 address](super#addresses) matches by either. A
    /// request without an address is not exempt.
    ///
    /// Do not list your proxies: a request whose client they do not name counts as theirs.
    ///
    /// # Errors
    /// [`TrustError`] for the first that is neither a network nor an address.
    ///
    /// ```
    /// use tollgate::extract::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::extract::TrustError> {
    /// let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"])?;
    /// let of_the_office = client.is_in(["192.0.2.0/24", "2001:db8:1::/48"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_in<N: AsRef<str>>(
        self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Addresses, TrustError> {
        Ok(Addresses::of_clients(self, Networks::parse(networks)?))
    }

    /// The client's address as it was seen, ungrouped, for logs and handlers. Only IPv4-mapped
    /// addresses are unmapped. `None` where the server left no peer address; with
    /// [`trusting_hops`](ClientIpHeader::trusting_hops), only where the header's last entry is no
    /// address either.
    pub fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.address_from(&parts.into())
    }

    pub(crate) fn address_from(&self, head: &Head<'_>) -> Option<IpAddr> {
        let peer = match &self.trust {
            Trust::Networks(_) => Some(peer(head.extensions)?),
            // Behind a proxy on a Unix socket the peer has no address, and is a hop all the same.
            Trust::Hops(_) => peer_if_known(head.extensions),
        };
        let mut vouched_for = peer.map(|peer| peer.to_canonical());
        let is_forwarded = self.header == http::header::FORWARDED;
        let lines = head.headers.get_all(&self.header).iter().rev();
        let mut entries = lines.flat_map(|line| EntriesFromTheRight { rest: Some(line.as_bytes()) });
        let mut hops = 0;
        while self.trusts(vouched_for, hops) {
            // An empty element of a list is none (RFC 9110, section 5.6.1).
            let Some(entry) = entries.find(|entry| !entry.is_empty()) else { break };
            let node = if is_forwarded { forwarded_for(entry) } else { Some(unquoted(entry)) };
            let Some(address) = node.and_then(parse_node) else { break };
            vouched_for = Some(address);
            hops += 1;
        }
        if vouched_for.is_none() {
            say_once_that_nobody_tells_it();
        }
        vouched_for
    }

    fn trusts(&self, address: Option<IpAddr>, hops: usize) -> bool {
        match &self.trust {
            Trust::Networks(networks) => address.is_some_and(|address| networks.contain(address)),
            Trust::Hops(trusted) => hops < *trusted,
        }
    }
}

impl ClientIpHeader {
    /// Trusts the proxies of these networks, in CIDR notation (`10.0.0.0/8`, `fd00::/8`) or as single addresses. The
    /// peer must be among them for the header to be read at all.
    ///
    /// Trust your proxies, not everything that is near: if callers share the network with them, they can write what they
    /// like.
    ///
    /// Addresses are compared as the server sees them; only IPv4-mapped ones are unmapped. A 6to4
    /// or NAT64 address does *not* match the IPv4 address in it: every host behind a 6to4 router
    /// has the router's IPv4 address in its own, and could pose as a proxy at that address. If
    /// proxies reach the server through NAT64, list them as it sees them, such as
    /// `64:ff9b::192.0.2.0/120`.
    ///
    /// # Errors
    /// [`TrustError`] for the first that is neither a network nor an address, or if there are none.
    pub fn trusting<N: AsRef<str>>(
        self,
        networks: impl IntoIterator<Item = N>,
    ) -> Result<ClientIp, TrustError> {
        let networks = Networks::parse(networks)?;
        if networks.is_empty() {
            return Err(TrustError::Nobody);
        }
        Ok(ClientIp { header: self.0, trust: Trust::Networks(networks), v6_prefix: 64 })
    }

    /// Trusts a fixed number of proxies, whatever their addresses: with 1, the rightmost entry is the client. With 0
    /// the header is not read.
    ///
    /// Safe only if *every* request comes through that many proxies: who can reach the server directly can write the
    /// entries himself.
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
    fn extract(&self, parts: &Parts) -> Option<Key> {
        self.extract_from(&parts.into())
    }

    fn extract_from(&self, head: &Head<'_>) -> Option<Key> {
        self.address_from(head).map(|address| Key::network(address, self.v6_prefix))
    }

    fn needs_parts(&self) -> bool {
        false
    }

    /// A header without an address leaves the peer's.
    fn why_missing(&self, _: &Head<'_>) -> Reason {
        Reason::NoPeerAddress
    }
}

/// The elements of a comma-separated list, the last one first, trimmed. Commas in quoted strings do not separate.
///
/// Read from the right, since what a trusted proxy appended is well-formed and what stands to the left of it need not be:
/// an unbalanced quote that the client wrote must not swallow the proxy's entry.
struct EntriesFromTheRight<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for EntriesFromTheRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut quoted = false;
        let comma = (0..rest.len()).rev().find(|at| {
            // A quote that is escaped inside a quoted string is content.
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
    // A semicolon in a quoted string does not separate: a `host` that the client chose must not smuggle in a `for`.
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

/// `ip`, `ip:port`, `[ipv6]`, `[ipv6]:port`, or a bare IPv6 address. A port may be obfuscated (RFC 7239, section 6): the address
/// beside it is as good.
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

    fn address_by(extractor: &ClientIp, peer: &str, header: &str, lines: &[&str]) -> String {
        let mut request = http::Request::new(());
        request.extensions_mut().insert(PeerAddr(SocketAddr::new(peer.parse().unwrap(), 4)));
        for line in lines {
            let name = HeaderName::try_from(header).unwrap();
            request.headers_mut().append(name, http::HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        extractor.address(&request.into_parts().0).unwrap().to_string()
    }

    /// From the peer 10.0.0.1, of the trusted network.
    fn client(lines: &[&str]) -> String {
        let extractor = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).unwrap();
        address_by(&extractor, "10.0.0.1", "x-forwarded-for", lines)
    }

    #[test]
    fn what_the_client_forged_on_the_left_changes_nothing() {
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
    fn an_untrusted_peer_is_the_client_whatever_it_says() {
        let extractor = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).unwrap();
        assert_eq!(address_by(&extractor, "192.0.2.9", "x-forwarded-for", &["1.1.1.1"]), "192.0.2.9");
    }

    /// Every host behind a 6to4 router has the router's IPv4 address in its own.
    #[test]
    fn an_address_with_a_proxys_ipv4_address_in_it_is_not_trusted() {
        for stranger in ["2002:a00:1::5", "64:ff9b::a00:1", "2001:0:1:2:0:1:f5ff:fffe"] {
            let extractor = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).unwrap();
            assert_eq!(address_by(&extractor, stranger, "x-forwarded-for", &["1.1.1.1"]), stranger);
            assert_eq!(client(&[&format!("1.1.1.1, {stranger}")]), stranger);
        }
        let as_seen = ClientIp::from_header("x-forwarded-for").trusting(["64:ff9b::10.0.0.0/104"]).unwrap();
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
    fn trusting_nobody_is_refused_at_construction() {
        let trusted: [&str; 0] = [];
        let error = ClientIp::from_header("x-forwarded-for").trusting(trusted).unwrap_err();
        assert_eq!(error, TrustError::Nobody);
        // A list of exemptions may be empty for a while.
        let client = ClientIp::from_header("x-forwarded-for").trusting_hops(1);
        assert!(client.is_in(trusted).is_ok());
    }

    #[test]
    fn garbage_stops_the_walk_at_what_was_vouched_for() {
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
        let address = on_a_unix_socket.address(&request.into_parts().0);
        assert_eq!(address, Some("198.51.100.7".parse().unwrap()));
    }

    #[test]
    fn forwarded_is_read_by_its_for_parameters() {
        let extractor =
            ClientIp::from_header("forwarded").trusting(["10.0.0.0/8", "2001:db8:a::/48"]).unwrap();
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
        let trusting = |text| ClientIp::from_header("x-forwarded-for").trusting([text]);
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
