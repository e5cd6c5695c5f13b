//! `tollgate usage`: what services counted in a Redis.

use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use tollgate::StoreExt;
use tollgate::store::{Check, Store, Times};
use tollgate::usage::top_keys::{Recording, TopKeys};
use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, Quota, Timestamp};
use tollgate_core::Clock;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

use crate::run::{row, shown, tollgate};

/// Counts these decisions in one process. A policy allows 5 of each key.
async fn count(redis: &RedisStore, recording: Recording, decisions: &[(&str, &str, usize)]) {
    let recorder = TopKeys::new(redis.clone()).record(recording);
    let store = MemoryStore::new().count_usage(&recorder);
    for (policy, key, times) in decisions {
        let policy = Policy::new(policy, Quota::per_day(5));
        let limiter = Limiter::new([policy]).store(store.clone());
        for _ in 0..*times {
            let _ = limiter.check(&Key::from(*key), 1).await;
        }
    }
    recorder.flush().await.unwrap();
}

/// Returns a clock that stands at this many minutes ago, and the time as a chart shows it.
fn ago(minutes: u64) -> (ManualClock, String) {
    let then = Clock::system().now().as_micros() - minutes * 60_000_000;
    let text = format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(then)).to_string();
    (ManualClock::new(Timestamp::from_micros(then)), text[..16].replace('T', " "))
}

#[tokio::test]
async fn the_top_keys_of_all_processes_are_listed_by_their_counts() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let (url, store) = (redis.url(), RedisStore::connect(&redis.url()).await.unwrap());
    let one = [("api", "ada", 3), ("api", "eve", 1_239), ("api", "a b", 6), ("mails", "ada", 1)];
    count(&store, Recording::default(), &one).await;
    count(&store, Recording::default(), &[("api", "ada", 1), ("api", "bob", 2)]).await;
    assert_eq!(
        shown(&["usage", "top", "--url", &url]),
        "key     policy  allowed  at least  at most\n\
         =a%20b  api           5         5        5\n\
         =eve    api           5         5        5\n\
         =ada    api           4         4        4\n\
         =bob    api           2         2        2\n\
         =ada    mails         1         1        1\n"
    );
    assert_eq!(
        shown(&["usage", "denied", "--redis", &url, "--last", "5m"]),
        "key     policy  denied  at least  at most\n\
         =eve    api      1,234     1,234    1,234\n\
         =a%20b  api          1         1        1\n"
    );
    assert_eq!(shown(&["usage", "denied", "--redis", &url, "-n", "1"]).lines().count(), 2);
}

#[tokio::test]
async fn counts_are_listed_with_the_bounds_of_their_error() {
    let redis = Server::start(Kind::Valkey9_1).unwrap();
    let (url, store) = (redis.url(), RedisStore::connect(&redis.url()).await.unwrap());
    // Each process stores one key, so each page misses the other.
    let recording = || Recording::default().keys(1).clock(&ago(1).0);
    count(&store, recording(), &[("api", "ada", 4), ("api", "bob", 3)]).await;
    count(&store, recording(), &[("api", "bob", 2), ("api", "ada", 1)]).await;
    let table = shown(&["usage", "top", "--redis", &url]);
    assert_eq!(row(&table, "=ada"), ["=ada", "api", "4", "4", "5"], "{table}");
    assert_eq!(row(&table, "=bob"), ["=bob", "api", "2", "2", "5"], "{table}");
}

#[tokio::test]
async fn a_series_has_a_bar_for_each_minute_of_a_policy_or_key() {
    let redis = Server::start(Kind::Redis6_2).unwrap();
    let (url, store) = (redis.url(), RedisStore::connect(&redis.url()).await.unwrap());
    let ((early, first), (late, second)) = (ago(9), ago(4));
    let decisions = [("api", "ada", 10), ("api", "bob", 10), ("mails", "ada", 2)];
    count(&store, Recording::default().clock(&early), &decisions).await;
    count(&store, Recording::default().clock(&late), &[("api", "ada", 4), ("api", "bob", 1)]).await;

    let chart = shown(&["usage", "series", "--policy", "api", "--redis", &url]);
    assert!(chart.starts_with("policy api, each minute\nfrom (UTC) "), "{chart}");
    assert_eq!(chart.lines().filter(|line| line.contains('│')).count(), 60, "{chart}");
    let bar = |full, light| format!("│{}{}", "█".repeat(full), "░".repeat(light));
    let row =
        |minute: &str, allowed, denied, bar: &str| format!("{minute}  {allowed:>11}  {denied:>11} {bar}");
    for line in [
        row(&first, 10, 10, &bar(25, 25)),
        row(&second, 5, 0, &bar(12, 0)),
        row("in all          ", 15, 10, "").trim_end().to_owned(),
    ] {
        assert!(chart.lines().any(|shown| shown == line), "no {line:?}: {chart}");
    }

    let chart = shown(&["usage", "series", "--key", "ada", "--redis", &url, "--last", "15m"]);
    assert!(chart.starts_with("key =ada, each minute\n"), "{chart}");
    assert_eq!(chart.lines().filter(|line| line.contains('│')).count(), 15, "{chart}");
    assert!(chart.contains(&row(&first, 7, 5, &bar(29, 21))), "under both policies: {chart}");

    let chart = shown(&["usage", "series", "--policy", "api", "--redis", &url, "--last", "1d"]);
    assert!(chart.starts_with("policy api, each 30 minutes\n"), "{chart}");
    let rows: Vec<&str> = chart.lines().filter(|line| line.contains('│')).collect();
    assert!((48..=49).contains(&rows.len()), "{chart}");
    assert!(rows.iter().all(|row| [":00", ":30"].contains(&&row[13..16])), "{chart}");
    assert!(chart.ends_with(&format!("in all            {:>11}  {:>11}\n", 15, 10)), "{chart}");
}

#[tokio::test]
async fn keys_under_a_secret_are_digests_and_are_found_by_the_secret() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let store = RedisStore::builder(&url).secret("sesame").prefix("mine").connect().await.unwrap();
    count(&store, Recording::default(), &[("api", "ada", 3)]).await;
    let mine = ["--redis", &url, "--prefix", "mine"];
    let table = shown(&[&["usage", "top"][..], &mine].concat());
    let digest = table.lines().nth(1).and_then(|line| line.split_once(' ')).unwrap().0;
    assert!(digest.starts_with('~') && !table.contains("ada"), "{table}");
    let series = [&["usage", "series", "--key", "ada"][..], &mine].concat();
    let chart = shown(&[&series[..], &["--secret", "sesame"]].concat());
    assert!(chart.ends_with(&format!("in all            {:>11}  {:>11}\n", 3, 0)), "{chart}");
    let unknown = "nothing was counted of key =ada in the last 1h, under the prefix mine\n";
    assert_eq!(shown(&series), unknown);
    let ran = tollgate(&[&["usage", "series", "--key", digest][..], &mine].concat());
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 1), "{}", ran.stderr);
    assert!(ran.stderr.contains("is a digest: give the key itself"), "{}", ran.stderr);
}

#[tokio::test]
async fn control_characters_of_stored_pages_are_not_printed() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let minute = Clock::system().now().as_micros() / 60_000_000;
    let page = "policy\t1\t0\tapi\u{1b}[31m\nallowed\t1\t0\t0\t=ada\u{7}\n";
    redis.command(&["HSET", &format!("tollgate:2:{{usage}}:{minute}"), "1", page]).unwrap();
    let table = shown(&["usage", "top", "--redis", &redis.url()]);
    assert_eq!(table.lines().nth(1).unwrap(), "=ada\u{fffd}  api\u{fffd}[31m        1         1        1");
}

#[tokio::test]
async fn tracked_keys_are_listed_by_last_use_and_by_total() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let store = RedisStore::connect(&url).await.unwrap();
    let policy = Policy::new("api", Quota::per_day(5_000)).track_usage();
    let key = Key::from("eve");
    let verdict = store.acquire(&[Check::new(&policy, &key, 70)], Times::ONCE).wait().await.unwrap();
    assert!(verdict.is_granted());
    for (key, total, time) in [("a%20b", 5, "1767225661999999"), ("ada", 1_234, "1767225600000000")] {
        let value = format!("{total}{time}");
        redis.command(&["SET", &format!("tollgate:2:{{={key}}}:api~usage"), &value, "EX", "600"]).unwrap();
    }
    let ask = |order: &str, n: &str| shown(&["usage", order, "--policy", "api", "-n", n, "--redis", &url]);
    let keys = |table: &str| -> Vec<String> {
        table.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let table = ask("oldest", "10");
    let first = "key     total  last use (UTC)\n\
                 =ada    1,234  2026-01-01 00:00:00\n\
                 =a%20b      5  2026-01-01 00:01:01\n\
                 =eve       70  20";
    assert!(table.starts_with(first), "{table}");
    assert_eq!(keys(&ask("newest", "2")), ["=eve", "=a%20b"]);
    assert_eq!(keys(&ask("total", "10")), ["=ada", "=eve", "=a%20b"]);
    // They are no states that it cannot read.
    let look = shown(&["look", "ada", "--redis", &url]);
    assert!(!look.contains("not read") && !look.contains("~usage"), "{look}");
    let none = shown(&["usage", "oldest", "--policy", "other", "--redis", &url]);
    assert_eq!(none, "no usage of policy other was tracked, under the prefix tollgate\n");
}

#[test]
fn an_empty_redis_has_no_usage() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let answer = |question: &[&str]| shown(&[&["usage"], question, &["--redis", &redis.url()]].concat());
    assert_eq!(answer(&["top"]), "nothing was allowed in the last 1h, under the prefix tollgate\n");
    let last = answer(&["denied", "--last", "90s"]);
    assert_eq!(last, "nothing was denied in the last 1m 30s, under the prefix tollgate\n");
    let policy = answer(&["series", "--policy", "api"]);
    assert_eq!(policy, "nothing was counted of policy api in the last 1h, under the prefix tollgate\n");
}

#[test]
fn a_question_that_cannot_be_answered_is_one_error_line() {
    for (arguments, hint) in [
        (&[][..], "requires a subcommand"),
        (&["oldest"], "--policy <NAME>"),
        (&["total", "--policy", "api", "-n", "0"], "--keys"),
        (&["newest", "--policy", "api", "--redis", "127.0.0.1:1"], "--redis: "),
        (&["total", "--policy", "api", "--redis", "redis-cluster://127.0.0.1:1"], "--redis: "),
        (&["top", "-n", "0"], "--keys"),
        (&["top", "--last", "1"], "expected a time such as 10s"),
        (&["denied", "--last", "8d"], "at most 7d can be read"),
        (&["series"], "--policy <NAME>|--key <KEY>"),
        (&["series", "--policy", "api", "--key", "ada"], "cannot be used with"),
        (&["series", "--key", "192.0.2.1"], "write '@192.0.2.1' or '=192.0.2.1'"),
        (&["series", "--key", ""], "is not a key"),
        (&["top", "--redis", "ftp://127.0.0.1"], "no scheme of redis"),
        (&["top", "--redis", "127.0.0.1:1"], "--redis: "),
        (&["denied", "--redis", "redis-cluster://127.0.0.1:1"], "--redis: "),
        (&["series", "--policy", "api", "--redis", "redis://127.0.0.1:1/"], "--redis: "),
    ] {
        let ran = tollgate(&[&["usage"], arguments].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{arguments:?}: {}", ran.stderr);
        assert!(
            ran.stderr.starts_with("error: ") && ran.stderr.contains(hint),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

/// Addresses read `@2001%3Adb8%3A%3A/64`.
#[tokio::test]
async fn keys_are_shown_as_people_write_them_and_read_back() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let (url, store) = (redis.url(), RedisStore::connect(&redis.url()).await.unwrap());
    let recorder = TopKeys::new(store.clone()).record(Recording::default());
    let limiter = Limiter::new([Policy::new("api", Quota::per_day(5)).track_usage()])
        .store(store.count_usage(&recorder).fail_open());
    let network = |address: &str, prefix| Key::network(address.parse().unwrap(), prefix);
    let keys = [
        ("@2001:db8::/64", network("2001:db8::1", 64)),
        ("@2001:db8::1/128", network("2001:db8::1", 128)),
        ("@192.0.2.1", network("192.0.2.1", 64)),
        ("(=acme:eu,#42)", Key::join([Key::from("acme:eu"), Key::from(42)])),
        ("=né", Key::from("né")),
        ("=2001:db8::/64", Key::from("2001:db8::/64")),
    ];
    for (_, key) in &keys {
        let _permit = limiter.check(key, 1).await.unwrap();
    }
    recorder.flush().await.unwrap();
    let (top, newest) = (
        shown(&["usage", "top", "--redis", &url]),
        shown(&["usage", "newest", "--policy", "api", "--redis", &url]),
    );
    for (text, _) in keys {
        assert_eq!(row(&top, text)[2], "1", "{top}");
        assert_eq!(row(&newest, text)[1], "1", "{newest}");
        let look = shown(&["look", text, "--redis", &url]);
        assert!(look.starts_with(&format!("key {text}\npolicy ")) && look.contains("api"), "{look}");
        let series = shown(&["usage", "series", "--key", text, "--redis", &url]);
        assert!(series.starts_with(&format!("key {text}, each ")), "{series}");
    }
    let ran = tollgate(&["look", "2001:db8::/64", "--redis", &url]);
    assert!(ran.stderr.contains("write '@2001:db8::/64' or '=2001:db8::/64'"), "{}", ran.stderr);
}
