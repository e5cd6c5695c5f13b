//! `tollgate replay` of the log of a playground: the verdicts are those of the server, and what a
//! new rule would refuse is what it refuses in shadow.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use tollgate_test_servers::{Kind, Server as Redis, short_or_long};

use crate::playground::{Playground, get};
use crate::run::{load, row, shown};

/// Of requests by address, by user and together, with costs, and by five algorithms.
const RULES: &str = r#"
[[rule]]
name = "burst"
quota = "40/s burst 60"
by = "header:x-user"
cost = "transfer"

[[rule]]
name = "window"
quota = "500/5s"
by = "header:x-user | ip"
algorithm = "fixed-window"
cost = "transfer"

[[rule]]
name = "sliding"
quota = "300/2s"
by = "header:x-user"
algorithm = "sliding-window"

[[rule]]
name = "buckets"
quota = "900/3s"
by = "ip + header:x-user"
algorithm = "sliding-buckets"

[[rule]]
name = "all"
quota = "20000/s"
by = "global"
algorithm = "sliding-log"
"#;

/// The rule whose refusals are to be known. On a slow machine too, it refuses most requests.
const STRICTER: &str = r#"
[[rule]]
name = "stricter"
quota = "1/s burst 15"
by = "ip"
mode = "shadow"
"#;

fn requests() -> u64 {
    short_or_long(5_000, 50_000)
}

/// The denials of the rule in shadow, by the digests of keys.
fn denied_in_shadow(log: &str) -> BTreeMap<String, u64> {
    let mut denied = BTreeMap::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["shadow"] == true && line["allowed"] == false {
            *denied.entry(line["checks"][0]["key"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    denied
}

/// The checks of the rule that were not made.
fn dropped_in_shadow(metrics: &str) -> u64 {
    let series = |line: &&str| line.starts_with("tollgate_decisions_total{policy=\"stricter\"");
    let dropped = metrics.lines().filter(series).find(|line| line.contains("\"shadow-dropped\""));
    dropped.map_or(0, |line| number(line.rsplit(' ').next().unwrap()))
}

/// The refusals of the rule by the table of keys.
fn forecast(table: &str) -> BTreeMap<String, u64> {
    let of_row = |line: &str| {
        let [rule, key, refused] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let digest = Sha256::digest(key);
        let digest = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        (rule == "stricter").then(|| (digest, number(refused)))
    };
    table.lines().filter_map(of_row).collect()
}

fn number(text: &str) -> u64 {
    text.replace([',', '_', '\''], "").parse().unwrap_or_else(|_| panic!("{text:?}"))
}

fn the_replay_is_that_of(store: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (rules, log) = (path("rules.toml"), path("log.jsonl"));
    fs::write(&rules, RULES.to_owned() + STRICTER).unwrap();
    let proxies = ["--client-ip-header", "x-forwarded-for", "--trust", "127.0.0.0/8"];
    let options = ["--rules", &rules, "--log", &log, "--metrics", "127.0.0.1:0"];
    let mut playground = Playground::start_with(&[store, &options, &proxies].concat());
    let half = (requests() / 2).to_string();
    std::thread::scope(|scope| {
        for (route, method) in [("/", "GET"), ("/transfer/3", "POST")] {
            let url = playground.url(route);
            let half = &half;
            scope.spawn(move || {
                let clients = ["-c", "8", "--keys", "20", "--distribution", "zipf", "--method", method];
                let headers = ["-H", "x-user: u{key}", "-H", "x-forwarded-for: 203.0.113.{key}"];
                let ran = load(&[&[&*url, "-n", half][..], &clients, &headers].concat());
                assert_eq!(ran.counts().2, 0, "none fails");
            });
        }
    });
    // A thread of the server writes the log.
    let enforced = |log: &str| log.lines().filter(|line| !line.contains("\"shadow\":true")).count() as u64;
    let mut length = 0;
    for _ in 0..1_200 {
        let earlier = std::mem::replace(&mut length, fs::metadata(&log).unwrap().len());
        if length == earlier && enforced(&fs::read_to_string(&log).unwrap()) >= number(&half) * 2 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = get(playground.metrics(), "/metrics");
    drop(playground);

    let replayed = shown(&["replay", &log, "--rules", &rules, "--top", "100"]);
    let log = fs::read_to_string(&log).unwrap();
    let logged = enforced(&log);
    assert_eq!(logged, number(&half) * 2, "each decision is logged");
    let compared = replayed
        .lines()
        .find(|line| line.contains("verdicts compared"))
        .unwrap_or_else(|| panic!("{replayed}"));
    let words: Vec<&str> = compared.split_whitespace().collect();
    let (compared, differ) = (number(words[0]), number(words[3]));
    println!("{store:?}: {compared} compared, {differ} differ");
    assert_eq!(compared, logged, "{replayed}");
    assert!(differ <= compared / 10_000, "{replayed}");
    for rule in ["burst", "window", "sliding", "buckets", "all"] {
        row(&replayed, rule);
    }

    let (forecast, denied) = (forecast(&replayed), denied_in_shadow(&log));
    assert_eq!(forecast.keys().collect::<Vec<_>>(), denied.keys().collect::<Vec<_>>(), "{replayed}");
    let differ: u64 = forecast.iter().map(|(key, refused)| refused.abs_diff(denied[key])).sum();
    println!("{store:?}: forecast of {} refusals, {differ} differ", denied.values().sum::<u64>());
    assert!(denied.values().sum::<u64>() > logged / 20, "the rule is strict: {denied:?}");
    // What a busy machine does not send in time changes at most one verdict.
    let dropped = dropped_in_shadow(&metrics);
    assert!(differ <= (logged / 10_000).max(20) + dropped, "{dropped} dropped: {forecast:?} {denied:?}");
}

#[test]
fn the_log_of_a_server_in_memory_is_replayed_to_its_verdicts() {
    the_replay_is_that_of(&[]);
}

#[test]
fn the_log_of_a_server_on_redis_is_replayed_to_its_verdicts() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    the_replay_is_that_of(&["--store", &redis.url(), "--timeout", "30s"]);
}
