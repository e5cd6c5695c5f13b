//! Requests that a rule ignores: see [`Rule::exempt`](crate::Rule::exempt).
//!
//! | exemption | which requests |
//! |---|---|
//! | [`cors_preflight`] | preflights, by which a browser asks what it may send |
//! | [`from_networks`] | requests from listed addresses |
//! | a closure | requests for which it returns `true` |
//!
//! # Which callers to believe
//! An exemption is a way around a limit for every caller that meets its condition. Any caller can
//! copy a header, a cookie, a query or a `User-Agent`. Exempt by what callers cannot choose: their
//! address, or what an outer authentication layer left in the request's extensions.

use http::{Method, header};

use crate::errors::{SetupError, or_panic};
use crate::extract::{AddressExtractor, Head, Networks};

/// Says which requests a rule ignores. Closures `Fn(&Head) -> bool` are exemptions.
pub trait Exemption: Send + Sync + 'static {
    /// Whether the rule ignores this request.
    fn exempts(&self, head: &Head<'_>) -> bool;
}

impl<F> Exemption for F
where
    F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
{
    fn exempts(&self, head: &Head<'_>) -> bool {
        self(head)
    }
}

/// Exempts CORS preflights: `OPTIONS` requests with `Origin` and `Access-Control-Request-Method`
/// ([Fetch, section 3.3.2](https://fetch.spec.whatwg.org/#cors-preflight-request)). A browser sends
/// them without the API keys and cookies that a rule may need, and does not retry a refused one.
///
/// A CORS layer outside the rate limit answers preflights itself, so they need no exemption there.
/// Callers can send any number of them: exempt them only if answering them is cheap.
///
/// ```
/// use tollgate::exempt::cors_preflight;
/// use tollgate::extract::header;
/// use tollgate::{Policy, PolicyExt, Quota};
///
/// let rule = Policy::new("api", Quota::per_minute(60)).by(header("x-api-key")).exempt(cors_preflight());
/// ```
pub fn cors_preflight() -> impl Exemption {
    |head: &Head<'_>| {
        head.method() == Method::OPTIONS
            && head.headers().contains_key(header::ORIGIN)
            && head.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }
}

/// Exempts requests from these networks, in CIDR notation (`10.0.0.0/8`, `fd00::/8`) or single
/// addresses. The `addresses` are those of [`PeerIp`](crate::extract::PeerIp) or
/// [`ClientIp`](crate::extract::ClientIp).
///
/// Whole addresses are compared, even if the extractor groups them as keys. An address that stands
/// for an [IPv4 address](crate::extract#addresses) matches by either. A request without an address
/// is not exempt.
///
/// **Behind a proxy the peer is the proxy.** Do not list your proxies, nor the network or the `::1`
/// that they call from: with `PeerIp` that exempts every request, and with `ClientIp` every request
/// whose client they do not name. Use `ClientIp` behind a proxy.
///
/// # Panics
/// If [`try_from_networks`] would return an error.
///
/// ```
/// use tollgate::exempt::from_networks;
/// use tollgate::extract::{ClientIp, PeerIp};
///
/// let of_the_office = from_networks(PeerIp::new(), ["203.0.113.0/24", "2001:db8:1::/48"]);
///
/// let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
/// let of_the_office = from_networks(client, ["203.0.113.0/24", "2001:db8:1::/48"]);
/// ```
#[track_caller]
pub fn from_networks<A: AddressExtractor, N: AsRef<str>>(
    addresses: A,
    networks: impl IntoIterator<Item = N>,
) -> impl Exemption {
    or_panic(try_from_networks(addresses, networks))
}

/// [`from_networks`] for a list that is known only at run time. An empty list exempts no request.
///
/// # Errors
/// [`SetupError`] for the first text that is neither a network nor an address.
pub fn try_from_networks<A: AddressExtractor, N: AsRef<str>>(
    addresses: A,
    networks: impl IntoIterator<Item = N>,
) -> Result<impl Exemption, SetupError> {
    let networks = Networks::parse(networks)?;
    Ok(move |head: &Head<'_>| addresses.address(head).is_some_and(|address| networks.contain_caller(address)))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::Request;

    use super::*;
    use crate::extract::{ClientIp, PeerAddr, PeerIp};

    fn exempts(exemption: &impl Exemption, request: Request<()>) -> bool {
        exemption.exempts(&Head::from(&request))
    }

    fn from(peer: &str, forwarded_for: &str) -> Request<()> {
        let peer = PeerAddr((peer.parse::<IpAddr>().unwrap(), 4_000).into());
        Request::get("/").extension(peer).header("x-forwarded-for", forwarded_for).body(()).unwrap()
    }

    #[test]
    fn only_complete_preflights_are_exempt() {
        let exempts = |method: &str, headers: &[&str]| {
            let request = Request::builder().method(method);
            let request = headers.iter().fold(request, |request, name| request.header(*name, "x"));
            exempts(&cors_preflight(), request.body(()).unwrap())
        };
        let both = ["origin", "access-control-request-method"];
        assert!(exempts("OPTIONS", &both));
        assert!(!exempts("POST", &both) && !exempts("GET", &both) && !exempts("options", &both));
        assert!(!exempts("OPTIONS", &both[..1]) && !exempts("OPTIONS", &both[1..]));
    }

    #[test]
    fn exempt_addresses_are_compared_whole() {
        let list = from_networks(PeerIp::new(), ["10.0.0.0/8", "2001:db8::1", "192.0.2.7"]);
        for (peer, listed) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("::ffff:192.0.2.7", true),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
        ] {
            assert_eq!(exempts(&list, from(peer, "10.0.0.1")), listed, "{peer}");
        }
        assert!(!exempts(&list, Request::new(())), "without an address no request is exempt");
        let mapped = from_networks(PeerIp::new(), ["::ffff:192.0.2.0/120"]);
        assert!(exempts(&mapped, from("192.0.2.9", "")));
    }

    #[test]
    fn an_exempt_ipv4_address_is_exempt_behind_nat64_and_6to4_too() {
        let list = from_networks(PeerIp::new(), ["192.0.2.0/24", "64:ff9b::203.0.113.0/120", "2002::/16"]);
        for (peer, listed) in [
            ("64:ff9b::192.0.2.7", true),
            ("2002:c000:207::1", true),
            ("64:ff9b::192.0.3.7", false),
            ("64:ff9b:1::192.0.2.7", false),
            // A list may name such a network itself.
            ("64:ff9b::203.0.113.9", true),
            ("203.0.113.9", false),
            ("2002:c000:307::1", true),
        ] {
            assert_eq!(exempts(&list, from(peer, "")), listed, "{peer}");
        }
    }

    #[test]
    fn a_forged_client_address_is_not_exempt() {
        let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
        let list = from_networks(client, ["192.0.2.0/24"]);
        assert!(exempts(&list, from("10.0.0.1", "192.0.2.1")));
        assert!(exempts(&list, from("192.0.2.1", "203.0.113.1")));
        assert!(!exempts(&list, from("10.0.0.1", "192.0.2.1, 203.0.113.1")), "forged on the left");
        assert!(!exempts(&list, from("203.0.113.1", "192.0.2.1")), "forged by a stranger");
    }

    #[test]
    fn a_list_of_networks_is_checked_at_construction() {
        assert_eq!(
            try_from_networks(PeerIp::new(), ["10.0.0.0/8", "10.0.0.0/33"]).err().unwrap().to_string(),
            "\"10.0.0.0/33\" is neither a network such as 10.0.0.0/8 nor an address"
        );
        assert!(try_from_networks(ClientIp::from_header("x").trusting_hops(1), ["everyone"]).is_err());
    }
}
