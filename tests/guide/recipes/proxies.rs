//! The client's address behind the proxies of well-known hosts.

use std::net::IpAddr;

use http::Request;
use lambda_http::request::RequestContext;
use tollgate::extract::{AddressExtractor, ClientIp, PeerAddr};
use tollgate::{Head, SetupError};

use crate::guide::shows;

/// The types of the crate of that name which the recipe uses. The crate needs two hundred others.
mod lambda_http {
    pub(super) mod request {
        #[derive(Clone, Default)]
        pub(in super::super) struct V1 {
            pub(in super::super) identity: Caller,
        }

        #[derive(Clone, Default)]
        pub(in super::super) struct V2 {
            pub(in super::super) http: Caller,
        }

        #[derive(Clone, Default)]
        pub(in super::super) struct Caller {
            pub(in super::super) source_ip: Option<String>,
        }

        #[derive(Clone)]
        pub(in super::super) enum RequestContext {
            ApiGatewayV1(V1),
            ApiGatewayV2(V2),
            Alb,
        }
    }
}

/// Takes the texts of both lists, one after the other.
fn behind_cloudflare(lists: &str) -> Result<ClientIp, SetupError> {
    ClientIp::from_header("cf-connecting-ip").try_trusting(lists.split_whitespace())
}

fn behind_a_load_balancer() -> ClientIp {
    // The subnets of the load balancer.
    ClientIp::from_header("x-forwarded-for").trusting(["10.0.1.0/24", "10.0.2.0/24"])
}

fn behind_cloudfront() -> ClientIp {
    // The load balancer, and CloudFront. With CloudFront alone, it is one.
    ClientIp::from_header("x-forwarded-for").trusting_hops(2)
}

fn behind_fly() -> ClientIp {
    ClientIp::from_header("fly-client-ip").trusting_hops(1)
}

/// For `ServiceBuilder::map_request`, outside of the limit.
fn with_peer<B>(mut request: Request<B>) -> Request<B> {
    let ip = match request.extensions().get() {
        Some(RequestContext::ApiGatewayV2(context)) => context.http.source_ip.as_ref(),
        Some(RequestContext::ApiGatewayV1(context)) => context.identity.source_ip.as_ref(),
        _ => None,
    };
    if let Some(ip) = ip.and_then(|ip| ip.parse::<IpAddr>().ok()) {
        request.extensions_mut().insert(PeerAddr((ip, 0).into()));
    }
    request
}

#[test]
fn the_recipes_show_this_code() {
    let marks =
        ["fn behind_cloudflare", "fn behind_a_load", "fn behind_cloudfront", "fn behind_fly", "fn with_peer"];
    shows("recipes/proxies.md", include_str!("proxies.rs"), &marks);
}

/// The address that `client` finds in a request with that field from that peer.
fn seen(client: &ClientIp, peer: [u8; 4], name: &str, value: &str) -> String {
    let request = Request::get("/").header(name, value).extension(PeerAddr((peer, 443).into()));
    client.address(&Head::from(&request.body(()).unwrap())).unwrap().to_string()
}

#[test]
fn only_the_networks_of_cloudflare_may_name_the_client() {
    // Two lines of the lists.
    let client = behind_cloudflare("173.245.48.0/20\n2400:cb00::/32\n").unwrap();
    let seen = |peer| seen(&client, peer, "cf-connecting-ip", "203.0.113.7");
    assert_eq!(seen([173, 245, 48, 9]), "203.0.113.7");
    assert_eq!(seen([198, 51, 100, 1]), "198.51.100.1", "forged");
    assert!(behind_cloudflare("<html>").is_err() && behind_cloudflare("\n").is_err());
}

#[test]
fn the_last_entry_is_that_of_the_load_balancer() {
    let client = behind_a_load_balancer();
    let seen = |entries| seen(&client, [10, 0, 2, 9], "x-forwarded-for", entries);
    assert_eq!(seen("192.0.2.1, 203.0.113.7"), "203.0.113.7", "the first is forged");
    assert_eq!([seen("203.0.113.7:8080"), seen("[2001:db8::7]:8080")], ["203.0.113.7", "2001:db8::7"]);
}

#[test]
fn cloudfront_and_fly_count_hops() {
    let entries = "192.0.2.1, 203.0.113.7, 130.176.96.72";
    assert_eq!(seen(&behind_cloudfront(), [10, 0, 2, 9], "x-forwarded-for", entries), "203.0.113.7");
    assert_eq!(seen(&behind_fly(), [172, 16, 0, 9], "fly-client-ip", "203.0.113.7"), "203.0.113.7");
}

#[test]
fn a_lambda_has_the_address_of_its_gateway_as_peer() {
    let caller = || lambda_http::request::Caller { source_ip: Some("203.0.113.7".to_owned()) };
    let v1 = RequestContext::ApiGatewayV1(lambda_http::request::V1 { identity: caller() });
    let v2 = RequestContext::ApiGatewayV2(lambda_http::request::V2 { http: caller() });
    for (context, known) in [(v1, true), (v2, true), (RequestContext::Alb, false)] {
        let request = with_peer(Request::get("/").extension(context).body(()).unwrap());
        let peer = request.extensions().get::<PeerAddr>().map(|peer| peer.0.ip().to_string());
        assert_eq!(peer.as_deref(), known.then_some("203.0.113.7"));
    }
    // Behind a load balancer there is no peer at all.
    let request = Request::get("/").header("x-forwarded-for", "192.0.2.1, 203.0.113.7").body(()).unwrap();
    let client = ClientIp::from_header("x-forwarded-for").trusting_hops(1);
    assert_eq!(client.address(&Head::from(&request)).unwrap().to_string(), "203.0.113.7");
}
