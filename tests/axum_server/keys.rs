//! Keys from unusual header fields, as they arrive over the wire.

use bytes::Bytes;
use http::{HeaderValue, Request, Version};
use http_body_util::Empty;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use tollgate::extract::{ClientIp, KeyExtractor, basic_user, bearer, cookie, header};
use tollgate_tests::{Client, serve};

use crate::axum_server::{hello, two_a_day};

fn behind_a_proxy() -> ClientIp {
    ClientIp::from_header("x-forwarded-for").trusting(["127.0.0.0/8", "10.0.0.0/8"])
}

/// The statuses of requests with these fields, one after the other.
async fn statuses(key: impl KeyExtractor, requests: &[&[&str]]) -> Vec<u16> {
    let mut client = Client::connect(serve(hello().layer(two_a_day(key))).await).await;
    let mut statuses = Vec::new();
    for fields in requests {
        statuses.push(client.get("/", fields).await.status);
    }
    statuses
}

/// The statuses of requests over HTTP/2 with these values of one field, one after the other.
async fn http2_statuses(key: impl KeyExtractor, name: &'static str, values: &[&'static str]) -> Vec<u16> {
    let address = serve(hello().layer(two_a_day(key))).await;
    let client = HttpClient::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
    let mut statuses = Vec::new();
    for value in values {
        let request = Request::get(format!("http://{address}/")).version(Version::HTTP_2);
        let request =
            request.header(name, HeaderValue::from_static(value)).body(Empty::new()).expect("a request");
        statuses.push(client.request(request).await.expect("a response").status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn spellings_of_one_bearer_token_share_a_quota() {
    let requests: [&[&str]; 6] = [
        &["authorization: Bearer tok"],
        &["authorization: bearer tok"],
        &["authorization: Bearer  tok"],
        &["Authorization:   BEARER\t tok  "],
        &["authorization: Bearer other"],
        &["authorization: Basic dG9rOg=="],
    ];
    assert_eq!(statuses(bearer(), &requests).await, [200, 200, 429, 429, 200, 400]);
}

#[tokio::test]
async fn passwords_of_one_basic_user_share_a_quota() {
    let requests: [&[&str]; 6] = [
        &["authorization: Basic YWRhOjE="],
        &["authorization: basic  YWRhOjI="],
        &["authorization: Basic YWRhOjM"],
        // bob:1, and ada without a colon.
        &["authorization: Basic Ym9iOjE="],
        &["authorization: Basic YWRh"],
        &["authorization: Bearer YWRhOjE="],
    ];
    assert_eq!(statuses(basic_user(), &requests).await, [200, 200, 429, 200, 400, 400]);
}

/// Unlike HTTP/1.1, HTTP/2 hands blanks at the ends of a value to the service.
#[tokio::test]
async fn blanks_around_a_value_over_http2_do_not_change_the_key() {
    let values = ["tok", " tok", "tok ", "\ttok", " \t tok\t "];
    assert_eq!(http2_statuses(header("x-api-key"), "x-api-key", &values).await, [200, 200, 429, 429, 429]);
    let values = ["Bearer tok", " bearer tok", "Bearer tok ", "\tBearer\ttok"];
    assert_eq!(http2_statuses(bearer(), "authorization", &values).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn several_lines_of_a_forwarding_header_are_one_list() {
    let requests: [&[&str]; 5] = [
        &["x-forwarded-for: 203.0.113.7"],
        &["x-forwarded-for: 198.51.100.1", "x-forwarded-for: 203.0.113.7"],
        // The client's address is in the middle line. The client wrote the line before it, and our
        // own proxy the line after it.
        &["x-forwarded-for: 1.1.1.1", "x-forwarded-for: 203.0.113.7", "X-Forwarded-For: 10.0.0.1"],
        &["x-forwarded-for: 203.0.113.7, 198.51.100.1", "x-forwarded-for: 10.0.0.1"],
        &["x-forwarded-for: 203.0.113.7", "x-forwarded-for: 198.51.100.1, 10.0.0.2"],
    ];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429, 200, 200]);
}

#[tokio::test]
async fn invented_entries_to_the_left_do_not_change_the_key() {
    let requests: [&[&str]; 6] = [
        &["x-forwarded-for: 203.0.113.7"],
        &["x-forwarded-for: 1.2.3.4, 203.0.113.7"],
        &["x-forwarded-for: 5.6.7.8, 203.0.113.7"],
        &["x-forwarded-for: 127.0.0.1, 203.0.113.7"],
        &["x-forwarded-for: \"unbalanced, 203.0.113.7"],
        &["x-forwarded-for: 203.0.113.8"],
    ];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429, 429, 429, 200]);
}

#[tokio::test]
async fn callers_behind_a_trusted_proxy_do_not_share_one_bucket() {
    let requests: [&[&str]; 6] = [
        &["x-forwarded-for: 203.0.113.1"],
        &["x-forwarded-for: 203.0.113.1:4711"],
        &["x-forwarded-for: 203.0.113.1:4712"],
        &["x-forwarded-for: 203.0.113.2:4711"],
        &["x-forwarded-for: [2001:db8::1]:4711"],
        &["x-forwarded-for: 2001:db8::2"],
    ];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429, 200, 200, 200]);
}

#[tokio::test]
async fn a_caller_cannot_rotate_through_the_addresses_of_its_network() {
    let requests: [&[&str]; 4] = [
        &["x-forwarded-for: 2001:db8::1"],
        &["x-forwarded-for: [2001:db8::ffff:1]"],
        &["x-forwarded-for: 2001:db8:0:0:1:2:3:4"],
        &["x-forwarded-for: 2001:db8:0:1::1"],
    ];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429, 200]);
}

/// The /64 would make one caller of all IPv4 addresses behind a translator.
#[tokio::test]
async fn nat64_and_6to4_addresses_count_as_their_ipv4_address() {
    let requests: [&[&str]; 9] = [
        &["x-forwarded-for: 64:ff9b::203.0.113.1"],
        &["x-forwarded-for: [64:ff9b::cb00:7101]:4711"],
        &["x-forwarded-for: 203.0.113.1"],
        &["x-forwarded-for: 64:ff9b::203.0.113.2"],
        &["x-forwarded-for: 2002:cb00:7103::1"],
        &["x-forwarded-for: 2002:cb00:7103:1::1"],
        &["x-forwarded-for: 2002:cb00:7103:2::1"],
        &["x-forwarded-for: 203.0.113.3"],
        &["x-forwarded-for: 2002:cb00:7104:2::1"],
    ];
    let expected = [200, 200, 429, 200, 200, 200, 429, 429, 200];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, expected);
}

/// The test connects from 127.0.0.1, which is trusted and contained in the address 2002:7f00:1::1.
#[tokio::test]
async fn a_6to4_address_does_not_pose_as_a_trusted_proxy() {
    let requests: [&[&str]; 4] = [
        &["x-forwarded-for: 203.0.113.1, 2002:7f00:1::1"],
        &["x-forwarded-for: 203.0.113.2, 2002:7f00:1::1"],
        &["x-forwarded-for: 203.0.113.3, 2002:7f00:1::1"],
        &["x-forwarded-for: 203.0.113.1"],
    ];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429, 200]);
}

#[tokio::test]
async fn without_trusted_proxies_the_header_is_not_believed() {
    let untrusting = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
    let requests: [&[&str]; 3] = [
        &["x-forwarded-for: 203.0.113.1"],
        &["x-forwarded-for: 203.0.113.2"],
        &["x-forwarded-for: 10.0.0.1"],
    ];
    assert_eq!(statuses(untrusting, &requests).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_header_value_of_60_kilobytes_is_a_key_like_any_other() {
    let long = format!("x-api-key: {}", "k".repeat(60_000));
    let (one, another) = (format!("{long}1"), format!("{long}2"));
    let requests: [&[&str]; 6] = [&[&one], &[&one], &[&one], &[&another], &[&another], &[&another]];
    assert_eq!(statuses(header("x-api-key"), &requests).await, [200, 200, 429, 200, 200, 429]);
}

#[tokio::test]
async fn a_list_of_60_kilobytes_is_read_from_its_right_end() {
    let forged = format!("x-forwarded-for: {}203.0.113.7", "10.0.0.1, ".repeat(6_000));
    let requests: [&[&str]; 3] = [&[&forged], &[&forged], &["x-forwarded-for: 203.0.113.7"]];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429]);
}

/// Bytes that are not text are a key, byte for byte.
#[tokio::test]
async fn header_values_that_are_not_utf8_are_distinct_keys() {
    let mut client = Client::connect(serve(hello().layer(two_a_day(header("x-api-key")))).await).await;
    let mut statuses = Vec::new();
    for value in [b"\xff\xfe", b"\xff\xfe", b"\xff\xfe", b"\xff\xfd", b"\xc3\xa9"] {
        let request = [b"GET / HTTP/1.1\r\nhost: test\r\nx-api-key: ", &value[..], b"\r\n\r\n"].concat();
        client.send(request).await;
        statuses.push(client.answer_to("GET").await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200]);
}

#[tokio::test]
async fn forwarded_entries_that_are_not_utf8_stop_at_the_proxy() {
    let mut client = Client::connect(serve(hello().layer(two_a_day(behind_a_proxy()))).await).await;
    let mut statuses = Vec::new();
    for value in [&b"\xff"[..], b"203.0.113.7, \xfe\xff", b"unknown", b"203.0.113.7"] {
        let request = [b"GET / HTTP/1.1\r\nhost: test\r\nx-forwarded-for: ", value, b"\r\n\r\n"].concat();
        client.send(request).await;
        statuses.push(client.answer_to("GET").await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200], "garbage is the proxy's own request");
}

#[tokio::test]
async fn an_empty_header_or_cookie_is_no_key() {
    let requests: [&[&str]; 3] = [&["x-api-key:"], &["x-api-key:  "], &["x-api-key: k"]];
    assert_eq!(statuses(header("x-api-key"), &requests).await, [400, 400, 200]);
    let requests: [&[&str]; 4] = [
        &["cookie: session="],
        &["cookie: a=1; session=s"],
        &["cookie: session=s"],
        &["cookie: session=s; b=2"],
    ];
    assert_eq!(statuses(cookie("session"), &requests).await, [400, 200, 200, 429]);
}

/// A page on another subdomain can plant a cookie in a browser. An attacker with two cookies of its
/// own must not use up the quota of its victim.
#[tokio::test]
async fn a_planted_second_cookie_does_not_deny_its_victim() {
    let attack = "cookie: session=x; session=y";
    let victim = "cookie: session=planted; session=real";
    let requests: [&[&str]; 6] = [
        &["x-forwarded-for: 203.0.113.66", attack],
        &["x-forwarded-for: 203.0.113.66", attack],
        &["x-forwarded-for: 203.0.113.66", attack],
        &["x-forwarded-for: 203.0.113.1", victim],
        &["x-forwarded-for: 203.0.113.1", victim],
        &["x-forwarded-for: 203.0.113.1", victim],
    ];
    let key = cookie("session").client_ip(behind_a_proxy());
    assert_eq!(statuses(key, &requests).await, [200, 200, 429, 200, 200, 429]);
}

/// By inventing a second cookie, a caller gets the quota of its address once, and not one with each
/// invention.
#[tokio::test]
async fn an_invented_second_cookie_earns_no_quota_of_its_own() {
    let requests: [&[&str]; 6] = [
        &["cookie: session=real"],
        &["cookie: session=real"],
        &["cookie: session=real"],
        &["cookie: session=a; session=real"],
        &["cookie: session=b; session=real"],
        &["cookie: session=real; session=c"],
    ];
    assert_eq!(statuses(cookie("session"), &requests).await, [200, 200, 429, 200, 200, 429]);
}
