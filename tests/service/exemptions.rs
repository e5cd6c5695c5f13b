//! Requests that a rule exempts, and requests that must not pass as exempt.

use axum::body::Body;
use http::{Method, Request};
use tollgate::exempt::{cors_preflight, from_networks};
use tollgate::extract::{ClientIp, PeerAddr, PeerIp};
use tollgate::{Fields, Head, Policy, PolicyExt, Quota, RateLimitLayer, Rule};
use tollgate_tests::{Later, Strict, call, clock, field, per_user, request, store};
use tower::{Layer, Service};

use crate::service::layer;

/// The statuses of requests, one after the other.
async fn statuses<S, R>(mut service: S, requests: impl IntoIterator<Item = Request<Body>>) -> Vec<u16>
where
    S: Service<Request<Body>, Response = http::Response<R>>,
    S::Error: std::fmt::Debug,
{
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(call(&mut service, request).await.status().as_u16());
    }
    statuses
}

fn preflight() -> Request<Body> {
    Request::builder()
        .method(Method::OPTIONS)
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .body(Body::empty())
        .expect("a valid request")
}

/// A preflight carries no credentials. If it were refused, pages of other origins would not work.
#[tokio::test]
async fn a_preflight_needs_no_key_and_costs_nothing() {
    let rule = || per_user("p", 1).exempt(cors_preflight());
    let asked = || [preflight(), request("ada"), preflight(), request("ada"), preflight()];
    let service = layer(&clock(), [rule()]).layer(Strict::default());
    assert_eq!(statuses(service, asked()).await, [200, 200, 200, 429, 200]);
    let later = RateLimitLayer::new([rule()]).store(Later::deciding_last(store(&clock())));
    assert_eq!(statuses(later.layer(Strict::default()), asked()).await, [200, 200, 200, 429, 200]);
}

#[tokio::test]
async fn a_request_that_only_resembles_a_preflight_is_limited() {
    let mut no_origin = preflight();
    no_origin.headers_mut().remove("origin");
    let mut no_method = preflight();
    no_method.headers_mut().remove("access-control-request-method");
    let mut posts = preflight();
    *posts.method_mut() = Method::POST;
    let service = layer(&clock(), [per_user("p", 1).exempt(cors_preflight())]).layer(Strict::default());
    assert_eq!(statuses(service, [no_origin, no_method, posts]).await, [400, 400, 400], "they need a key");
}

#[tokio::test]
async fn an_exemption_from_one_rule_leaves_the_others_in_force() {
    let rules =
        [per_user("mild", 1).exempt(|head: &Head<'_>| head.uri().path() == "/health"), per_user("strict", 3)];
    let mut service = layer(&clock(), rules).layer(Strict::default());
    let mut told = Vec::new();
    for path in ["/health", "/health", "/", "/", "/health"] {
        let mut request = request("ada");
        *request.uri_mut() = path.parse().unwrap();
        let response = call(&mut service, request).await;
        told.push((response.status().as_u16(), field(&response, "ratelimit-policy").unwrap().to_owned()));
    }
    let (strict, both) = ("\"strict\";q=3;w=60", "\"mild\";q=1;w=60, \"strict\";q=3;w=60");
    // The mild rule denies the fourth request, so neither rule is charged.
    let due = [(200, strict), (200, strict), (200, both), (429, both), (429, strict)];
    assert_eq!(told, due.map(|(status, policies)| (status, policies.to_owned())));
}

#[tokio::test]
async fn several_exemptions_of_a_rule_each_exempt() {
    let has = |name: &'static str| move |head: &Head<'_>| head.headers().contains_key(name);
    let rule = per_user("p", 1).exempt(has("x-a")).exempt(cors_preflight()).exempt(has("x-b"));
    let with = |name: &'static str| {
        let mut request = request("ada");
        request.headers_mut().insert(name, "1".parse().unwrap());
        request
    };
    let service = layer(&clock(), [rule]).layer(Strict::default());
    let asked = [with("x-a"), with("x-b"), preflight(), with("x-c"), with("x-c"), with("x-a")];
    assert_eq!(statuses(service, asked).await, [200, 200, 200, 200, 429, 200]);
}

fn from(peer: &str, forwarded_for: &str) -> Request<Body> {
    let mut request = request("ada");
    request.extensions_mut().insert(PeerAddr(peer.parse().expect("an address with a port")));
    request.headers_mut().insert("x-forwarded-for", forwarded_for.parse().expect("a header value"));
    request
}

fn one_each(key: impl tollgate::extract::KeyExtractor) -> Rule {
    Policy::new("p", Quota::per_minute(1)).by(key)
}

#[tokio::test]
async fn listed_addresses_are_exempt_and_their_neighbours_are_limited() {
    let rule = one_each(PeerIp::new()).exempt(from_networks(PeerIp::new(), ["10.0.0.0/8", "2001:db8::1"]));
    let service = layer(&clock(), [rule]).layer(Strict::default());
    let peers = ["10.1.2.3:1", "10.1.2.3:2", "[::ffff:10.1.2.3]:3", "[2001:db8::1]:1", "[2001:db8::1]:2"];
    // The neighbour is in the network that counts as one peer, but its address is not listed.
    let others = ["[2001:db8::2]:1", "[2001:db8::3]:1", "11.0.0.1:1", "11.0.0.1:2"];
    let asked = peers.into_iter().chain(others).map(|peer| from(peer, "10.0.0.1"));
    assert_eq!(statuses(service, asked).await, [200, 200, 200, 200, 200, 200, 429, 200, 429]);
}

#[tokio::test]
async fn a_forged_address_is_not_exempt() {
    let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
    let rule = one_each(client.clone()).exempt(from_networks(client, ["192.0.2.0/24"]));
    let service = layer(&clock(), [rule]).layer(Strict::default());
    let asked = [
        from("10.0.0.1:1", "192.0.2.1"),
        from("10.0.0.1:1", "192.0.2.1"),
        from("10.0.0.1:1", "192.0.2.1, 203.0.113.9"),
        from("10.0.0.1:1", "192.0.2.1, 203.0.113.9"),
        from("203.0.113.8:1", "192.0.2.1"),
        from("203.0.113.8:1", "192.0.2.1"),
    ];
    assert_eq!(statuses(service, asked).await, [200, 200, 200, 429, 200, 429]);
}

#[tokio::test]
async fn a_limiter_exempts_requests_and_counts_others() {
    let rule = per_user("p", 1).exempt(cors_preflight());
    let limiter = layer(&clock(), [rule]).fields(Fields::None).limiter();
    let preflight = preflight();
    let preflight = Head::from(&preflight);
    for _ in 0..3 {
        assert_eq!(limiter.check(&preflight).await.unwrap().report().iter().count(), 0);
        assert_eq!(limiter.look(&preflight).await.unwrap().iter().count(), 0);
    }
    let ada = request("ada");
    assert!(limiter.check(&Head::from(&ada)).await.is_ok());
    assert!(limiter.check(&Head::from(&ada)).await.is_err());
}
