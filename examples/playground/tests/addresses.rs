//! The address that a request counts for: that of the peer, or of a client behind trusted proxies.

use tollgate_examples::testing::Response;

use crate::server::Server;

/// Each address passes once. The test itself is the proxy.
fn behind_a_proxy() -> Server {
    trusting(&["127.0.0.1/32"], "x-forwarded-for")
}

fn trusting(networks: &[&str], header: &str) -> Server {
    let mut options = vec!["--rule", "api=1/d", "--client-ip-header", header];
    options.extend(networks.iter().flat_map(|network| ["--trust", network]));
    Server::playground(&options)
}

fn forwarded_for(server: &Server, lines: &[&str]) -> Response {
    let headers: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
    server.get_with("/", &headers)
}

/// Asserts that these lines name a client that has used its quota.
#[track_caller]
fn assert_same(server: &Server, lines: &[&str]) {
    forwarded_for(server, lines).assert_refused_by(&["api"]);
}

#[track_caller]
fn assert_new(server: &Server, lines: &[&str]) {
    assert_eq!(forwarded_for(server, lines).status, 200, "{lines:?} shares a quota with others");
}

#[test]
fn clients_behind_a_proxy_have_separate_quotas() {
    let server = behind_a_proxy();
    for client in ["198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:2::1"] {
        assert_new(&server, &[client]);
        assert_same(&server, &[client]);
    }
}

#[test]
fn forged_entries_to_the_left_are_ignored() {
    let server = behind_a_proxy();
    assert_new(&server, &["198.51.100.7"]);
    assert_same(&server, &["1.1.1.1, 198.51.100.7"]);
    assert_same(&server, &["1.1.1.1, 2.2.2.2,198.51.100.7"]);
    assert_same(&server, &["127.0.0.1, 198.51.100.7"]);
    assert_same(&server, &["\"1.1.1.1, 198.51.100.7"]);
    assert_same(&server, &[", ,, 198.51.100.7"]);
    for n in 0..20 {
        assert_same(&server, &[&format!("192.0.2.{n}, 198.51.100.7")]);
    }
}

#[test]
fn several_header_lines_are_read_as_one_list() {
    let server = behind_a_proxy();
    assert_new(&server, &["198.51.100.7"]);
    assert_same(&server, &["1.1.1.1", "198.51.100.7"]);
    assert_same(&server, &["1.1.1.1, 2.2.2.2", "3.3.3.3", "198.51.100.7"]);
    // With another trusted proxy in front of this one.
    assert_same(&server, &["1.1.1.1", "198.51.100.7", "127.0.0.1"]);
    assert_new(&server, &["198.51.100.7", "1.1.1.1"]);
}

#[test]
fn an_address_with_a_port_is_parsed() {
    let server = behind_a_proxy();
    assert_new(&server, &["198.51.100.7:4711"]);
    assert_same(&server, &["198.51.100.7"]);
    assert_same(&server, &["198.51.100.7:4712"]);
    assert_same(&server, &["\"198.51.100.7:4713\""]);
    assert_same(&server, &["::ffff:198.51.100.7"]);
    assert_new(&server, &["[2001:db8::1]:443"]);
    assert_same(&server, &["[2001:db8::1]"]);
    assert_same(&server, &["2001:db8::1"]);
}

#[test]
fn addresses_of_one_64_network_share_a_quota() {
    let server = behind_a_proxy();
    assert_new(&server, &["2001:db8:1:2::1"]);
    assert_same(&server, &["2001:db8:1:2:ffff:ffff:ffff:ffff"]);
    assert_same(&server, &["[2001:db8:1:2:8000::]:80"]);
    assert_new(&server, &["2001:db8:1:3::1"]);
}

#[test]
fn a_malformed_entry_counts_as_the_nearest_trusted_address() {
    let server = behind_a_proxy();
    // The nearest trusted address is that of the proxy itself.
    assert_eq!(server.get("/").status, 200);
    for garbage in ["unknown", "_hidden", "1.2.3", "999.1.1.1", "1.2.3.4.5", "[::1", "-", "1.1.1.1, unknown"]
    {
        assert_same(&server, &[garbage]);
    }
}

#[test]
fn without_trust_the_header_is_ignored() {
    let server = Server::with_rules(&["api=1/d"]);
    assert_new(&server, &["198.51.100.7"]);
    assert_same(&server, &["198.51.100.8"]);
    assert_same(&server, &[]);
}

#[test]
fn the_header_of_a_peer_that_is_not_trusted_is_ignored() {
    let server = trusting(&["10.0.0.0/8", "fd00::/8"], "x-forwarded-for");
    assert_new(&server, &["198.51.100.7"]);
    assert_same(&server, &["198.51.100.8"]);
    assert_same(&server, &["10.0.0.1"]);
}

#[test]
fn several_proxies_are_trusted_by_several_options() {
    let server = trusting(&["127.0.0.1/32", "10.0.0.0/8"], "x-forwarded-for");
    assert_new(&server, &["198.51.100.7, 10.0.0.1"]);
    assert_same(&server, &["198.51.100.7, 10.9.9.9, 10.0.0.1"]);
    assert_same(&server, &["198.51.100.7"]);
    // All entries are trusted, so the leftmost counts.
    assert_new(&server, &["10.0.0.7, 10.0.0.1"]);
    assert_same(&server, &["10.0.0.7"]);
}

#[test]
fn another_header_than_the_configured_one_is_ignored() {
    let server = trusting(&["127.0.0.1"], "forwarded");
    let get = |name: &str, value: &str| server.get_with("/", &[(name, value)]);
    assert_eq!(get("forwarded", "for=198.51.100.7;proto=https").status, 200);
    get("Forwarded", "for=1.1.1.1, For=\"198.51.100.7:4711\"").assert_refused_by(&["api"]);
    assert_eq!(get("x-forwarded-for", "198.51.100.7").status, 200);
    get("x-forwarded-for", "198.51.100.8").assert_refused_by(&["api"]);
    get("x-real-ip", "198.51.100.9").assert_refused_by(&["api"]);
}
