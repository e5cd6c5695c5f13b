//! Requests that a rule leaves alone: see [`Rule::exempt`](crate::Rule::exempt).
//!
//! | exemption | which requests |
//! |---|---|
//! | [`cors_preflight`] | those by which a browser asks what it may do |
//! | [`PeerIp::is_in`], [`ClientIp::is_in`] | those from addresses that are listed |
//! | a closure | those for which it returns `true` |
//!
//! # Whom to believe
//! An exemption is a way around a limit, for everybody who can meet its condition. One by a header, a cookie, a query or a
//! `User-Agent` is open to whoever writes the same: exempt by what callers cannot choose, such as their address or what an
//! authentication layer outside of this one has left in the request's extensions.

use std::net::IpAddr;

use http::request::Parts;
use http::{Method, header};

use crate::extract::{ByHead, ClientIp, Head, Networks, PeerIp};

/// Tells which requests a rule does not apply to. Closures of type `Fn(&Parts) -> bool` are exemptions.
pub trait Exemption: Send + Sync + 'static {
    /// Whether the rule leaves this request alone.
    fn exempts(&self, parts: &Parts) -> bool;

    /// The same of a request that need not have been taken apart, for exemptions of this crate.
    #[doc(hidden)]
    fn exempts_head(&self, head: &Head<'_>) -> bool {
        head.parts.is_some_and(|parts| self.exempts(parts))
    }

    /// Whether [`exempts_head`](Exemption::exempts_head) needs a head with parts.
    #[doc(hidden)]
    fn needs_parts(&self) -> bool {
        true
    }
}

impl<F> Exemption for F
where
    F: Fn(&Parts) -> bool + Send + Sync + 'static,
{
    fn exempts(&self, parts: &Parts) -> bool {
        self(parts)
    }
}

impl<F> Exemption for ByHead<F>
where
    F: Fn(&Head<'_>) -> bool + Send + Sync + 'static,
{
    fn exempts(&self, parts: &Parts) -> bool {
        self.0(&parts.into())
    }

    fn exempts_head(&self, head: &Head<'_>) -> bool {
        self.0(head)
    }

    fn needs_parts(&self) -> bool {
        false
    }
}

/// CORS preflights: requests of the method `OPTIONS` with `Origin` and `Access-Control-Request-Method` ([Fetch, section
/// 3.3.2](https://fetch.spec.whatwg.org/#cors-preflight-request)). A browser sends them by itself, without the API keys and
/// cookies that a rule may want, and does not repeat them after a refusal.
///
/// A CORS layer outside of the rate limit answers them before they come here, and needs no exemption. Anybody can send as
/// many as he likes: exempt them where what answers them is cheap.
///
/// ```
/// use tollgate::exempt::cors_preflight;
/// use tollgate::extract::header;
/// use tollgate::{Policy, PolicyExt, Quota};
///
/// let rule = Policy::new("api", Quota::per_minute(60)).by(header("x-api-key")).exempt(cors_preflight());
/// ```
pub fn cors_preflight() -> impl Exemption {
    ByHead(|head: &Head<'_>| {
        head.method == Method::OPTIONS
            && head.headers.contains_key(header::ORIGIN)
            && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    })
}

/// Requests from listed addresses: see [`PeerIp::is_in`] and [`ClientIp::is_in`].
#[derive(Clone, Debug)]
pub struct Addresses {
    networks: Networks,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Peer(PeerIp),
    Client(ClientIp),
}

impl Addresses {
    pub(crate) fn of_peers(peer: PeerIp, networks: Networks) -> Addresses {
        Addresses { networks, source: Source::Peer(peer) }
    }

    pub(crate) fn of_clients(client: ClientIp, networks: Networks) -> Addresses {
        Addresses { networks, source: Source::Client(client) }
    }

    fn address(&self, head: &Head<'_>) -> Option<IpAddr> {
        match &self.source {
            Source::Peer(peer) => peer.address_from(head),
            Source::Client(client) => client.address_from(head),
        }
    }
}

impl Exemption for Addresses {
    fn exempts(&self, parts: &Parts) -> bool {
        self.exempts_head(&parts.into())
    }

    fn exempts_head(&self, head: &Head<'_>) -> bool {
        self.address(head).is_some_and(|address| self.networks.contain_caller(address))
    }

    fn needs_parts(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::extract::PeerAddr;

    fn exempts(exemption: &impl Exemption, request: Request<()>) -> bool {
        let whole = exemption.exempts_head(&Head::of(&request));
        assert_eq!(exemption.exempts(&request.into_parts().0), whole);
        whole
    }

    fn from(peer: &str, forwarded_for: &str) -> Request<()> {
        let peer = PeerAddr((peer.parse::<IpAddr>().unwrap(), 4_000).into());
        Request::get("/").extension(peer).header("x-forwarded-for", forwarded_for).body(()).unwrap()
    }

    #[test]
    fn a_preflight_has_all_that_makes_it_one() {
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
    fn an_address_is_compared_by_itself_and_not_with_its_network() {
        let list = PeerIp::new().is_in(["10.0.0.0/8", "2001:db8::1", "192.0.2.7"]).unwrap();
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
        let mapped = PeerIp::new().is_in(["::ffff:192.0.2.0/120"]).unwrap();
        assert!(exempts(&mapped, from("192.0.2.9", "")));
    }

    #[test]
    fn an_exempt_ipv4_address_is_exempt_behind_nat64_and_6to4_too() {
        let list = PeerIp::new().is_in(["192.0.2.0/24", "64:ff9b::203.0.113.0/120", "2002::/16"]).unwrap();
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
    fn a_client_is_believed_as_far_as_proxies_vouch_for_it() {
        let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).unwrap();
        let list = client.is_in(["192.0.2.0/24"]).unwrap();
        assert!(exempts(&list, from("10.0.0.1", "192.0.2.1")));
        assert!(exempts(&list, from("192.0.2.1", "203.0.113.1")));
        assert!(!exempts(&list, from("10.0.0.1", "192.0.2.1, 203.0.113.1")), "forged on the left");
        assert!(!exempts(&list, from("203.0.113.1", "192.0.2.1")), "forged by a stranger");
    }

    #[test]
    fn a_list_is_checked_at_construction() {
        assert_eq!(
            PeerIp::new().is_in(["10.0.0.0/8", "10.0.0.0/33"]).unwrap_err().to_string(),
            "\"10.0.0.0/33\" is neither a network such as 10.0.0.0/8 nor an address"
        );
        assert!(ClientIp::from_header("x").trusting_hops(1).is_in(["everyone"]).is_err());
    }
}
