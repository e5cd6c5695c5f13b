//! Recipes for the client's address behind the proxies of well-known hosts.
//!
//! - [Cloudflare](#cloudflare)
//! - [AWS Application Load Balancer](#aws-application-load-balancer)
//! - [CloudFront](#cloudfront)
//! - [fly.io](#flyio)
//! - [AWS Lambda](#aws-lambda)
//!
//! [Behind a proxy](super::super::keys#behind-a-proxy) explains how the header is read, and has
//! the rule for other proxies. Each extractor here goes into `.by(..)`. Its method `address`
//! returns the address for logs. Networks change: read lists when the program starts, as below.
//!
//! # Cloudflare
//!
//! Cloudflare writes the client into
//! [`CF-Connecting-IP`](https://developers.cloudflare.com/fundamentals/reference/http-headers/).
//! The peers are its servers: [ips-v4](https://www.cloudflare.com/ips-v4) and
//! [ips-v6](https://www.cloudflare.com/ips-v6) list their networks, one a line. Callers that find
//! your server's own address count by theirs. Better still, let the firewall accept Cloudflare
//! only.
//!
//! ```
//! # use {http::Request, tollgate::Head, tollgate::extract::{AddressExtractor, PeerAddr}};
//! use tollgate::extract::ClientIp;
//! use tollgate::SetupError;
//!
//! /// Takes the texts of both lists, one after the other.
//! fn behind_cloudflare(lists: &str) -> Result<ClientIp, SetupError> {
//!     ClientIp::from_header("cf-connecting-ip").try_trusting(lists.split_whitespace())
//! }
//!
//! // Two lines of the lists.
//! let client = behind_cloudflare("173.245.48.0/20\n2400:cb00::/32\n")?;
//! # let seen = |peer: [u8; 4]| {
//! #     let request = Request::get("/").header("cf-connecting-ip", "203.0.113.7");
//! #     let request = request.extension(PeerAddr((peer, 443).into())).body(()).unwrap();
//! #     client.address(&Head::from(&request)).unwrap().to_string()
//! # };
//! # assert_eq!(seen([173, 245, 48, 9]), "203.0.113.7");
//! # assert_eq!(seen([198, 51, 100, 1]), "198.51.100.1", "forged");
//! # assert!(behind_cloudflare("<html>").is_err() && behind_cloudflare("\n").is_err());
//! # Ok::<(), SetupError>(())
//! ```
//!
//! With a load balancer between Cloudflare and the server, the peer is the load balancer. Then
//! read `X-Forwarded-For`, to which both append, and trust the networks of both.
//!
//! # AWS Application Load Balancer
//!
//! The load balancer appends the client to
//! [`X-Forwarded-For`](https://docs.aws.amazon.com/elasticloadbalancing/latest/application/x-forwarded-headers.html),
//! unless its attribute `routing.http.xff_header_processing.mode` is no longer `append`. Its peers
//! see private addresses from its subnets, so trust their CIDR blocks. The VPC console lists them.
//! Entries with a port (`routing.http.xff_client_port.enabled`) are read too.
//!
//! ```
//! # use {http::Request, tollgate::Head, tollgate::extract::{AddressExtractor, PeerAddr}};
//! use tollgate::extract::ClientIp;
//!
//! // The subnets of the load balancer.
//! let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.1.0/24", "10.0.2.0/24"]);
//! # let seen = |entries: &str| {
//! #     let request = Request::get("/").header("x-forwarded-for", entries);
//! #     let request = request.extension(PeerAddr(([10, 0, 2, 9], 443).into())).body(()).unwrap();
//! #     client.address(&Head::from(&request)).unwrap().to_string()
//! # };
//! # assert_eq!(seen("192.0.2.1, 203.0.113.7"), "203.0.113.7", "the first is forged");
//! # assert_eq!([seen("203.0.113.7:8080"), seen("[2001:db8::7]:8080")], ["203.0.113.7", "2001:db8::7"]);
//! ```
//!
//! Do not trust the whole VPC if other machines in it call the service through the load balancer:
//! they would be taken for proxies.
//!
//! # CloudFront
//!
//! CloudFront also
//! [appends the client](https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/RequestAndResponseBehaviorCustomOrigin.html#RequestCustomIPAddresses)
//! to `X-Forwarded-For`. A load balancer behind it appends CloudFront's address. Let the load
//! balancer's security group accept only the prefix list
//! `com.amazonaws.global.cloudfront.origin-facing`, or for IPv6
//! `com.amazonaws.global.ipv6.cloudfront.origin-facing`. Then each request passes two proxies, and
//! you need no list of networks.
//!
//! ```
//! # use {http::Request, tollgate::Head, tollgate::extract::{AddressExtractor, PeerAddr}};
//! use tollgate::extract::ClientIp;
//!
//! // The load balancer, and CloudFront. With CloudFront alone, it is one.
//! let client = ClientIp::from_header("x-forwarded-for").trusting_hops(2);
//! # let request = Request::get("/").header("x-forwarded-for", "192.0.2.1, 203.0.113.7, 130.176.96.72");
//! # let request = request.extension(PeerAddr(([10, 0, 2, 9], 443).into())).body(()).unwrap();
//! # assert_eq!(client.address(&Head::from(&request)).unwrap().to_string(), "203.0.113.7");
//! ```
//!
//! If the origin cannot be closed to others, trust networks instead: the load balancer's subnets,
//! and the ranges of the service `CLOUDFRONT` in
//! [ip-ranges.json](https://ip-ranges.amazonaws.com/ip-ranges.json). Do not read
//! `CloudFront-Viewer-Address` this way. It ends with a port, and its IPv6 addresses have no
//! brackets.
//!
//! # fly.io
//!
//! Fly Proxy writes the client into
//! [`Fly-Client-IP`](https://fly.io/docs/networking/request-headers/). Its documentation lists no
//! networks of the proxy, so count the hop. The last entry of its `X-Forwarded-For` is your app's
//! address, not the client's.
//!
//! ```
//! # use {http::Request, tollgate::Head, tollgate::extract::{AddressExtractor, PeerAddr}};
//! use tollgate::extract::ClientIp;
//!
//! let client = ClientIp::from_header("fly-client-ip").trusting_hops(1);
//! # let request = Request::get("/").header("fly-client-ip", "203.0.113.7");
//! # let request = request.extension(PeerAddr(([172, 16, 0, 9], 443).into())).body(()).unwrap();
//! # assert_eq!(client.address(&Head::from(&request)).unwrap().to_string(), "203.0.113.7");
//! ```
//!
//! Apps that reach yours over the private network bypass the proxy, and can write the header. With
//! a CDN in front of fly.io, the header has the CDN's address instead.
//!
//! # AWS Lambda
//!
//! A function has no peer. The crate `lambda_http` leaves the event's `RequestContext` in the
//! extensions, and API Gateway writes the address of its caller there. Insert that address as
//! [`PeerAddr`](crate::extract::PeerAddr), and everything that needs a peer works.
//!
//! ```
//! # mod lambda_http { pub mod request {
//! #     #[derive(Clone, Default)] pub struct V1 { pub identity: Caller }
//! #     #[derive(Clone, Default)] pub struct V2 { pub http: Caller }
//! #     #[derive(Clone, Default)] pub struct Caller { pub source_ip: Option<String> }
//! #     #[derive(Clone)] pub enum RequestContext { ApiGatewayV1(V1), ApiGatewayV2(V2), Alb }
//! # } }
//! use std::net::IpAddr;
//! use http::Request;
//! use lambda_http::request::RequestContext;
//! use tollgate::extract::PeerAddr;
//! use tollgate::{Quota, RateLimitLayer};
//! use tower::ServiceBuilder;
//!
//! fn with_peer<B>(mut request: Request<B>) -> Request<B> {
//!     let ip = match request.extensions().get() {
//!         Some(RequestContext::ApiGatewayV2(context)) => context.http.source_ip.as_ref(),
//!         Some(RequestContext::ApiGatewayV1(context)) => context.identity.source_ip.as_ref(),
//!         _ => None,
//!     };
//!     if let Some(ip) = ip.and_then(|ip| ip.parse::<IpAddr>().ok()) {
//!         request.extensions_mut().insert(PeerAddr((ip, 0).into()));
//!     }
//!     request
//! }
//!
//! let limit = RateLimitLayer::per_ip(Quota::per_minute(100));
//! let layers = ServiceBuilder::new().map_request(with_peer::<String>).layer(limit);
//! # let caller = || lambda_http::request::Caller { source_ip: Some("203.0.113.7".to_owned()) };
//! # let v1 = RequestContext::ApiGatewayV1(lambda_http::request::V1 { identity: caller() });
//! # let v2 = RequestContext::ApiGatewayV2(lambda_http::request::V2 { http: caller() });
//! # for (context, known) in [(v1, true), (v2, true), (RequestContext::Alb, false)] {
//! #     let request = with_peer(Request::get("/").extension(context).body(()).unwrap());
//! #     let peer = request.extensions().get::<PeerAddr>().map(|peer| peer.0.ip().to_string());
//! #     assert_eq!(peer.as_deref(), known.then_some("203.0.113.7"));
//! # }
//! # let request = Request::get("/").header("x-forwarded-for", "192.0.2.1, 203.0.113.7").body(()).unwrap();
//! # use tollgate::{Head, extract::AddressExtractor};
//! # let client = tollgate::extract::ClientIp::from_header("x-forwarded-for").trusting_hops(1);
//! # assert_eq!(client.address(&Head::from(&request)).unwrap().to_string(), "203.0.113.7");
//! ```
//!
//! - Behind a load balancer instead of API Gateway, the context has no address. Use
//!   `ClientIp::from_header("x-forwarded-for").trusting_hops(1)`.
//! - Behind CloudFront, the caller of API Gateway is CloudFront.
//! - Instances of a function do not share their memory. With a
//!   [`MemoryStore`](crate::MemoryStore) each grants the whole quota: use the store in Redis.
