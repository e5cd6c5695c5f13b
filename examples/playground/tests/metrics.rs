//! `--metrics`: what Prometheus reads.

use std::collections::BTreeMap;

use tollgate_examples::testing::Connection;
use tollgate_test_servers::{Kind, Server as Redis};

use crate::server::{Server, playground};

/// A playground, and the address of its metrics.
pub(crate) struct Watched {
    pub(crate) server: Server,
    pub(crate) metrics: std::net::SocketAddr,
}

impl Watched {
    pub(crate) fn start(options: &[&str]) -> Watched {
        let mut server = Server::playground(&[&["--metrics", "127.0.0.1:0"], options].concat());
        // The first such line is that of `/me`.
        server.says_until("http://");
        let line = server.says_until("http://");
        let address = line.strip_prefix("http://").and_then(|line| line.split_once("/metrics "));
        let address = address.unwrap_or_else(|| panic!("no address of metrics: {line:?}")).0;
        Watched { metrics: address.parse().unwrap(), server }
    }

    /// The series with their values.
    pub(crate) fn scrape(&self) -> BTreeMap<String, f64> {
        let response = Connection::open(self.metrics).request("GET", "/metrics", &[]);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4"));
        let lines = response.body.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parts = lines.map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}")));
        parts.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }
}

#[test]
fn each_answer_is_counted_by_policy_and_outcome() {
    let watched = Watched::start(&["--rule", "few=2/d", "--rule", "many=10/d"]);
    let before = watched.scrape();
    assert_eq!(before[r#"tollgate_policy_limit{policy="few"}"#], 2.0);
    for status in [200, 200, 429, 429, 429] {
        assert_eq!(watched.server.get("/").status, status);
    }
    assert_eq!(watched.server.get("/health").status, 200, "not limited, and not counted");
    let after = watched.scrape();
    for (policy, outcome, count) in [
        ("few", "allowed", 2.0),
        ("few", "denied", 3.0),
        ("many", "allowed", 2.0),
        ("many", "not-charged", 3.0),
    ] {
        let decisions =
            format!("tollgate_decisions_total{{policy=\"{policy}\",outcome=\"{outcome}\",source=\"store\"}}");
        assert_eq!(after[&decisions], count);
        let units = format!("tollgate_units_total{{policy=\"{policy}\",outcome=\"{outcome}\"}}");
        assert_eq!(after[&units], count);
    }
    let decisions = after.iter().filter(|(name, _)| name.starts_with("tollgate_decisions_total"));
    assert_eq!(decisions.map(|(_, value)| value).sum::<f64>(), 10.0);
    assert_eq!(after["tollgate_memory_keys"], 2.0);
    assert_eq!((after["tollgate_evictions_total"], after["tollgate_overflows_total"]), (0.0, 0.0));
}

#[test]
fn blocks_that_start_are_counted_by_policy() {
    let rule = "api=1/d,key=header:x-user";
    let watched = Watched::start(&["--rule", rule, "--rule", "all=100/d,key=global", "--block", "api=2/15m"]);
    let series = r#"tollgate_blocks_total{policy="api"}"#;
    assert_eq!(watched.scrape()[series], 0.0);
    for user in ["ada", "bob"] {
        (0..5).for_each(|_| _ = watched.server.get_with("/", &[("x-user", user)]));
    }
    let after = watched.scrape();
    assert_eq!((after[series], after.get(r#"tollgate_blocks_total{policy="all"}"#)), (2.0, None));
    let blocked = r#"tollgate_decisions_total{policy="api",outcome="blocked",source="store"}"#;
    assert_eq!(after[blocked], 4.0);
}

#[test]
fn invented_keys_add_no_series_and_no_label_holds_a_key() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let (url, rule) = (redis.url(), ["--rule", "api=1/d,key=header:x-api-key"]);
    let wrappers = ["--on-failure", "fallback", "--breaker", "5/500ms", "--lease", "64/250ms"];
    // A slow answer is no failure.
    let caches = ["--deny-cache", "1000", "--timeout", "30s"];
    let watched = Watched::start(&[&["--store", &url][..], &wrappers, &caches, &rule].concat());
    let before = watched.scrape();
    let mut connection = watched.server.connect();
    for n in 0..10_000 {
        let key = format!("invented-{n}");
        assert_eq!(connection.request("GET", "/", &[("x-api-key", &key)]).status, 200);
    }
    assert_eq!(connection.request("GET", "/", &[("x-api-key", "invented-1")]).status, 429);
    assert_eq!(connection.request("GET", "/", &[]).status, 400);
    let after = watched.scrape();
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert!(after.keys().all(|name| !name.contains("invented")));
    assert_eq!(after["tollgate_store_seconds_count"], 10_001.0);
    let allowed = r#"tollgate_decisions_total{policy="api",outcome="allowed",source="store"}"#;
    assert_eq!(after[allowed], 10_000.0);
}

#[test]
fn failures_and_the_circuit_are_shown_while_redis_is_down() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let options = ["--on-failure", "fallback", "--breaker", "2/60s", "--rule", "api=100/d,key=global"];
    let store = ["--store", &redis.url(), "--timeout", "30s"];
    let watched = Watched::start(&[&store[..], &options].concat());
    assert_eq!(watched.server.get("/").status, 200);
    assert_eq!(watched.scrape()["tollgate_circuit_state"], 0.0);
    redis.kill();
    for _ in 0..5 {
        assert_eq!(watched.server.get("/").status, 200);
    }
    let after = watched.scrape();
    assert_eq!(after["tollgate_circuit_state"], 2.0);
    let by_fallback = r#"tollgate_decisions_total{policy="api",outcome="allowed",source="fallback"}"#;
    assert_eq!(after[by_fallback], 5.0);
    assert_eq!(after[r#"tollgate_store_errors_total{kind="circuit-open"}"#], 3.0);
    assert_eq!(after["tollgate_memory_keys"], 1.0, "of the fallback");
}

#[test]
fn an_address_that_cannot_be_used_is_an_error_in_one_line() {
    let watched = Watched::start(&[]);
    for address in [watched.metrics.to_string(), "nowhere".to_owned()] {
        let options = ["--listen", "127.0.0.1:0", "--metrics", &address];
        let output = playground().args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with("error: --metrics: cannot listen on"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
