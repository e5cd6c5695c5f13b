//! Keys from header fields as they arrive over the wire, however odd.

use tollgate::extract::{ClientIp, KeyExtractor, cookie, header};
use tollgate_tests::{Client, serve};

use crate::{hello, two_a_day};

fn behind_a_proxy() -> ClientIp {
    ClientIp::from_header("x-forwarded-for").trusting(["127.0.0.0/8", "10.0.0.0/8"]).expect("networks")
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

#[tokio::test]
async fn several_lines_of_a_forwarding_header_are_one_list() {
    let requests: [&[&str]; 5] = [
        &["x-forwarded-for: 203.0.113.7"],
        &["x-forwarded-for: 198.51.100.1", "x-forwarded-for: 203.0.113.7"],
        // The client is in the middle line; before it stands what the client wrote, behind it a proxy of ours.
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
async fn one_caller_cannot_rotate_through_the_addresses_of_his_network() {
    let requests: [&[&str]; 4] = [
        &["x-forwarded-for: 2001:db8::1"],
        &["x-forwarded-for: [2001:db8::ffff:1]"],
        &["x-forwarded-for: 2001:db8:0:0:1:2:3:4"],
        &["x-forwarded-for: 2001:db8:0:1::1"],
    ];
    assert_eq!(statuses(behind_a_proxy(), &requests).await, [200, 200, 429, 200]);
}

#[tokio::test]
async fn without_trust_the_header_is_what_anybody_wrote() {
    let untrusting = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]).unwrap();
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

/// Bytes that are no text at all are a key, byte for byte; and neither the server nor the answer minds.
#[tokio::test]
async fn header_values_that_are_not_utf8_are_told_apart() {
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
