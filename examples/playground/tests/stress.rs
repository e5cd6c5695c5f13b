//! Crowds that wait, a full memory, and a full Redis.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use tollgate_examples::testing::Response;
use tollgate_test_servers::{Kind, Server as Redis};

use crate::metrics::Watched;
use crate::server::{Server, wait_until};

/// A rule lets a request wait for longer than any other takes, also on a busy machine.
const PATIENT: &str = "max-wait=60s";

/// Clients that send one request after another to a server. Counts the answers, which are all 200.
struct Crowd<'a> {
    server: &'a Server,
    clients: usize,
    passed: AtomicUsize,
}

impl<'a> Crowd<'a> {
    fn of(clients: usize, server: &'a Server) -> Crowd<'a> {
        Crowd { server, clients, passed: AtomicUsize::new(0) }
    }

    /// One of its clients.
    fn client(&self, path: &str, is_over: &AtomicBool) {
        let mut connection = self.server.connect();
        while !is_over.load(Ordering::Relaxed) {
            let answer = connection.request("GET", path, &[]);
            assert_eq!(answer.status, 200, "{answer:?}");
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs crowds side by side for some seconds. Returns how many answers each got.
fn run_at_once<const N: usize>(crowds: [Crowd<'_>; N], path: &str, seconds: u64) -> [usize; N] {
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        for crowd in &crowds {
            for _ in 0..crowd.clients {
                scope.spawn(|| crowd.client(path, &is_over));
            }
        }
        sleep(Duration::from_secs(seconds));
        is_over.store(true, Ordering::Relaxed);
    });
    crowds.map(|crowd| crowd.passed.into_inner())
}

/// Twenty of eighty clients pass at a time. In memory they get at least half as many answers as
/// twenty clients without a limit, which load the machine at the same time.
#[test]
fn clients_that_wait_pass_without_pauses_and_none_sleeps_in_its_turn() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let folder = tempfile::tempdir().unwrap();
    for (name, store) in [("memory", &[][..]), ("redis", &["--store", &url, "--timeout", "30s"])] {
        let log = folder.path().join(name);
        let rule = format!("exports=20,{PATIENT}");
        let limited = Server::with_log(&[store, &["--in-flight", &rule]].concat(), &log);
        let free = Server::playground(&[store, &["--in-flight", "free=1000"]].concat());
        let [passed] = run_at_once([Crowd::of(80, &limited)], "/", 2);
        let crowds = [Crowd::of(80, &limited), Crowd::of(20, &free)];
        let [waiting, at_once] = run_at_once(crowds, "/slow/20", 2);
        println!("{name}: {passed} without work; {waiting} of {at_once} with 20 ms of work");
        // In Redis, a slot is free for the next client one round trip after the end of a request.
        if store.is_empty() {
            assert!(waiting >= at_once / 2, "{waiting} of {at_once}");
        }
        limited.stop();
        let log = fs::read_to_string(log).unwrap();
        let sleepers = log.lines().filter(|line| line.contains("was not woken for its turn"));
        assert_eq!(sleepers.collect::<Vec<_>>(), [""; 0], "{name}");
    }
}

fn is_blocked(response: &Response) -> bool {
    response.status == 429 && response.body.contains("abnormal-usage-detected")
}

#[test]
fn a_block_in_a_full_memory_blocks_no_user_that_never_asked() {
    let rules = ["--rule", "pins=1/d,key=header:x-pin", "--rule", "guesses=2/d,key=header:x-user"];
    let options = ["--max-keys", "100", "--missing-key", "skip", "--block", "guesses=3/15m"];
    let watched = Watched::start(&[&options[..], &rules].concat());
    let mut connection = watched.server.connect();
    let mut ask = |header, key: &str| connection.request("GET", "/", &[(header, key)]);
    // Keys that are denied keep their places.
    for n in 0..200 {
        let pin = n.to_string();
        ask("x-pin", &pin);
        assert_eq!(ask("x-pin", &pin).status, 429);
    }
    assert_eq!(watched.scrape()["tollgate_memory_keys"], 100.0);
    let eve: Vec<Response> = (0..20).map(|_| ask("x-user", "eve")).collect();
    assert!(eve.iter().filter(|answer| answer.status == 429).count() > 3);
    let blocked = (0..1_000).filter(|n| is_blocked(&ask("x-user", &format!("user {n}")))).count();
    assert_eq!(blocked, 0, "of 1,000 users that never asked");
    let outcome = |outcome| {
        format!("tollgate_decisions_total{{policy=\"guesses\",outcome=\"{outcome}\",source=\"store\"}}")
    };
    let metrics = watched.scrape();
    assert_eq!(metrics.get(&outcome("blocked")).copied().unwrap_or_default(), 0.0);
    assert!(metrics[r#"tollgate_dropped_blocks_total{policy="guesses"}"#] > 0.0, "{metrics:?}");
}

/// Callers that go on asking, while others fill the memory of Redis with invented keys.
#[test]
fn slots_blocks_and_guesses_hold_while_redis_evicts_invented_keys() {
    const ROUNDS: usize = 7;
    const CALLERS: usize = 10;
    let redis = Redis::start(Kind::Installed).unwrap();
    let rules = [
        ["--in-flight", "exports=2,key=header:x-tenant"],
        ["--rule", "logins=1/h,key=header:x-blocked"],
        ["--block", "logins=1/15m"],
        ["--rule", "guesses=3/30m,key=header:x-guesser"],
        ["--rule", "daily=3/d,key=header:x-invented"],
        ["--missing-key", "skip"],
    ];
    let store = ["--store", &redis.url(), "--timeout", "30s"];
    let server = Server::playground(&[&store[..], &rules.concat()].concat());
    let mut connection = server.connect();
    let mut ask = |header, key: &str| connection.request("GET", "/", &[(header, key)]);
    let hold = |tenant: usize| {
        let mut connection = TcpStream::connect(server.address()).unwrap();
        let head = format!("GET /slow/60000 HTTP/1.1\r\nhost: localhost\r\nx-tenant: {tenant}\r\n\r\n");
        connection.write_all(head.as_bytes()).unwrap();
        connection
    };
    let _held: Vec<TcpStream> = (0..2 * CALLERS).map(|n| hold(n % CALLERS)).collect();
    for n in 0..CALLERS {
        let key = n.to_string();
        // A request would take a slot.
        wait_until(|| server.get_with("/me", &[("x-tenant", &key)]).json()["policies"][0]["remaining"] == 0);
        wait_until(|| is_blocked(&ask("x-blocked", &key)));
    }
    let used: u64 = value(&redis, "memory", "used_memory");
    for (name, setting) in
        [("maxmemory-policy", "volatile-lru"), ("maxmemory", &(used + 400_000).to_string()[..])]
    {
        redis.command(&["CONFIG", "SET", name, setting]).unwrap();
    }
    redis.command(&["CONFIG", "SET", "maxmemory-samples", "10"]).unwrap();
    let mut guesses = [0; CALLERS];
    for round in 0..ROUNDS {
        for (n, passed) in guesses.iter_mut().enumerate() {
            let key = n.to_string();
            assert_eq!(ask("x-tenant", &key).status, 429, "a third slot of tenant {n} in round {round}");
            assert!(is_blocked(&ask("x-blocked", &key)), "key {n} in round {round}");
            *passed += (0..5).filter(|_| ask("x-guesser", &key).status == 200).count();
        }
        for n in 0..1_000 {
            ask("x-invented", &format!("{round} {n}"));
        }
        // Redis counts in seconds how long a key was idle.
        sleep(Duration::from_millis(1_100));
    }
    assert_eq!(guesses, [3; CALLERS]);
    assert!(value(&redis, "stats", "evicted_keys") > 1_000, "the memory was not full");
}

/// A number of `INFO`.
fn value(redis: &Redis, section: &str, name: &str) -> u64 {
    let info = redis.command(&["INFO", section]).unwrap();
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name}: {info}"))
}

/// A request waits for a slot of its tenant, and for one of all.
#[test]
#[expect(clippy::disallowed_methods, reason = "the first of a queue asks again after a time")]
fn requests_that_wait_for_two_rules_take_few_checks() {
    const TENANTS: usize = 30;
    const EACH: usize = 25;
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let folder = tempfile::tempdir().unwrap();
    for (name, store) in [("memory", &[][..]), ("redis", &["--store", &url, "--timeout", "30s"])] {
        let log = folder.path().join(name);
        let rules =
            [format!("tenant=1,key=header:x-tenant,{PATIENT}"), format!("all=3,key=global,{PATIENT}")];
        let options = ["--in-flight", &rules[0], "--in-flight", &rules[1], "--log", log.to_str().unwrap()];
        let server = Server::playground(&[store, &options].concat());
        let begin = Instant::now();
        scope(|scope| {
            for n in 0..2 * TENANTS {
                let tenant = (n % TENANTS).to_string();
                let mut connection = server.connect();
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let answer = connection.request("GET", "/slow/2", &[("x-tenant", &tenant)]);
                        assert_eq!(answer.status, 200, "{answer:?}");
                    }
                });
            }
        });
        let elapsed = begin.elapsed();
        let passed = 2 * TENANTS * EACH;
        let lines = || fs::read_to_string(&log).unwrap();
        let count = |text: &str| lines().lines().filter(|line| line.contains(text)).count();
        wait_until(|| count(r#""allowed":true"#) == passed);
        assert_eq!(count(r#""dropped""#), 0);
        let checks = passed + count(r#""allowed":false"#);
        // The first of each queue asks again after 200 ms without a release.
        let polls = (1 + TENANTS) * usize::try_from(5 * (1 + elapsed.as_secs())).unwrap();
        println!("{name}: {checks} checks for {passed} requests in {elapsed:?}, at most {polls} polls");
        assert!(checks <= (2 + 2) * passed + polls, "{name}: {checks} checks for {passed}");
    }
}
