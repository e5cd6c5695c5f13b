//! The example of a server behind proxies.

use tollgate_examples::testing::program;

use crate::program::start;

#[test]
fn the_example_behind_a_proxy_counts_each_client() {
    let server = start("behind_proxy", &["127.0.0.1:0", "x-forwarded-for", "127.0.0.0/8", "10.0.0.0/8"]);
    let get = |entries: &str| server.get_with("/", &[("x-forwarded-for", entries)]);
    // The first is forged, and the last is a proxy.
    for nth in 0..20 {
        assert_eq!(get(&format!("192.0.2.{nth}, 203.0.113.7, 10.0.0.2")).body, "203.0.113.7\n");
    }
    let refused = (0..1_000).map(|_| get("203.0.113.7")).find(|answer| answer.status != 200);
    refused.expect("nothing is limited").assert_refused_by(&["client"]);
    assert_eq!(get("203.0.113.8").body, "203.0.113.8\n");
}

#[test]
fn the_example_behind_a_proxy_ignores_the_header_of_strangers() {
    let server = start("behind_proxy", &["127.0.0.1:0", "x-forwarded-for", "10.0.0.0/8"]);
    assert_eq!(server.get_with("/", &[("x-forwarded-for", "203.0.113.7")]).body, "127.0.0.1\n");
}

#[test]
fn the_example_behind_a_proxy_reports_wrong_arguments() {
    for (arguments, expected) in [
        (&["127.0.0.1:0"][..], "NoNetworks"),
        (&["127.0.0.1:0", "x-forwarded-for", "everyone"], "everyone"),
        (&["127.0.0.1:0", "a b", "10.0.0.0/8"], "InvalidHeaderName"),
    ] {
        let output = program("behind_proxy").args(arguments).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
}
