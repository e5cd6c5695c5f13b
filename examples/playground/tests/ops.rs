//! `ops/`: a real Prometheus scrapes a playground under load and evaluates each query and rule.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tollgate_test_servers::{Kind, Prometheus, Server as Redis};

use crate::metrics::Watched;

const OPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../ops");

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(OPS).join(file)).unwrap()
}

/// The rules with windows and delays of seconds instead of minutes. Expressions, thresholds and
/// labels are those that operators use.
fn hasty(rules: &str) -> String {
    [("[1m]", "[5s]"), ("[5m]", "[10s]"), ("[10m]", "[20s]"), ("[1h]", "[40s]")]
        .iter()
        .fold(rules.to_owned(), |rules, (window, short)| rules.replace(window, short))
        .replace("for: 6m", "for: 12s")
        .replace("for: 5m", "for: 2s")
        .replace("for: 1m", "for: 1s")
}

/// What the API of Prometheus answers.
fn api(prometheus: &Prometheus, path: &str) -> Value {
    let answer = prometheus.get(&format!("/api/v1/{path}")).unwrap();
    let mut answer: Value = serde_json::from_str(&answer).unwrap();
    answer["data"].take()
}

/// The number of series with a value, which is not `NaN`.
fn series(prometheus: &Prometheus, query: &str) -> usize {
    let answer = api(prometheus, &format!("query?query={}", utf8_percent_encode(query, NON_ALPHANUMERIC)));
    let series = answer["result"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
    series.iter().filter(|series| series["value"][1] != "NaN").count()
}

/// The queries of all panels, with the variables of Grafana filled in.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<String> = targets
        .map(|target| {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "10s");
            ["$job", "$instance", "$policy"].iter().fold(query, |query, name| query.replace(name, ".+"))
        })
        .collect();
    assert!(queries.len() >= 12, "{queries:#?}");
    queries
}

/// The expressions of all rules, as Prometheus has read them.
fn expressions(prometheus: &Prometheus) -> Vec<(String, String)> {
    let groups = api(prometheus, "rules")["groups"].take();
    let rules = groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rules = rules.map(|rule| {
        assert_eq!(rule["health"], "ok", "{rule}");
        // A comparison returns data only while the alert is active. With `bool` it is 0 or 1.
        (text(&rule["name"]), text(&rule["query"]).replace(" > ", " > bool "))
    });
    rules.collect()
}

/// The names of the alerts that fire.
fn firing(prometheus: &Prometheus) -> Vec<String> {
    let alerts = api(prometheus, "alerts")["alerts"].take();
    let firing = alerts.as_array().unwrap().iter().filter(|alert| alert["state"] == "firing");
    let mut names: Vec<_> =
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Waits for up to two minutes until `missing` is empty.
fn wait_until_empty<T: std::fmt::Debug>(goal: &str, missing: impl Fn() -> Vec<T>) {
    for _ in 0..240 {
        if missing().is_empty() {
            return;
        }
        sleep(Duration::from_millis(500));
    }
    panic!("{goal}: {:#?}", missing());
}

/// What fires while Redis is down.
const OUTAGE: [&str; 3] = ["TollgateCircuitOpen", "TollgateDecidedWithoutStore", "TollgateStoreFailing"];

#[test]
fn promtool_accepts_the_rules_and_their_tests() {
    let ops = Path::new(OPS);
    let checked = Prometheus::tool(ops, &["check", "rules", "alerts.yml"]).unwrap();
    assert!(checked.contains("SUCCESS: 12 rules found"), "{checked}");
    let tested = Prometheus::tool(ops, &["test", "rules", "alerts.test.yml"]).unwrap();
    assert!(tested.contains("SUCCESS"), "{tested}");
    let rules = read("alerts.yml");
    let (tests, page) = (read("alerts.test.yml"), read("README.md"));
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        assert!(tests.contains(&format!("alertname: {alert}")), "no test of {alert}");
        assert!(page.contains(&format!("### {alert}\n")), "the page does not say what to do for {alert}");
    }
}

#[test]
fn each_query_returns_data_and_the_right_alerts_fire_without_redis() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let wrappers = ["--on-failure", "fallback", "--timeout", "500ms", "--breaker", "3/200ms"];
    let scale = ["--lease", "64/250ms", "--deny-cache", "1000"];
    let rules = ["--rule", "user=5/s,key=header:x-user", "--rule", "all=10000/s,key=global"];
    let watched = Watched::start(&[&["--store", &redis.url()][..], &wrappers, &scale, &rules].concat());
    let prometheus = &Prometheus::start(&[watched.metrics], &hasty(&read("alerts.yml"))).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Also ends the load if an assertion fails.
        let _end = End(&is_over);
        scope.spawn(|| {
            let mut connection = watched.server.connect();
            while !is_over.load(Ordering::Relaxed) {
                for user in ["ada", "bob", "eve"] {
                    connection.request("GET", "/", &[("x-user", user)]);
                    sleep(Duration::from_millis(10));
                }
            }
        });
        wait_until_empty("no data for these queries of the dashboard", || {
            let mut queries = queries();
            queries.retain(|query| series(prometheus, query) == 0);
            queries
        });
        wait_until_empty("no data for these rules", || {
            let mut rules = expressions(prometheus);
            rules.retain(|(_, query)| series(prometheus, query) == 0);
            rules
        });
        let before = firing(prometheus);
        assert!(OUTAGE.iter().all(|alert| !before.contains(&(*alert).to_owned())), "{before:?}");

        redis.kill();
        wait_until_empty("these alerts do not fire", || {
            let firing = firing(prometheus);
            OUTAGE.into_iter().filter(|alert| !firing.contains(&(*alert).to_owned())).collect()
        });
        let firing = firing(prometheus);
        assert!(!firing.contains(&"TollgateOverflows".to_owned()), "{firing:?}");

        redis.restart().unwrap();
        wait_until_empty("these alerts still fire", || {
            let mut firing = self::firing(prometheus);
            firing.retain(|alert| OUTAGE.contains(&alert.as_str()));
            firing
        });
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
