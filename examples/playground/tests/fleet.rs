//! Several servers on one Redis, and how many requests pass in total.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use tollgate_examples::testing::Connection;
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server as Redis};

use crate::server::Server;

/// Starts the playground on a Redis. The timeout is long, so that a slow machine fails no test.
pub(crate) fn on(store: &str, rules: &[&str]) -> Server {
    let rules = rules.iter().flat_map(|rule| ["--rule", rule]);
    Server::playground(&["--store", store, "--timeout", "30s"].into_iter().chain(rules).collect::<Vec<_>>())
}

/// Starts two servers. Each has `connections` clients that send `each` requests one after another.
/// Returns the numbers of answers 200 and 429.
fn two_servers(store: &str, rule: &str, connections: usize, each: usize) -> (usize, usize) {
    let servers = [on(store, &[rule]), on(store, &[rule])];
    let statuses: Vec<u16> = scope(|scope| {
        let hammer = |server: &Server| {
            let mut connection = server.connect();
            (0..each).map(|_| connection.request("GET", "/", &[]).status).collect::<Vec<_>>()
        };
        let all = (0..connections).flat_map(|_| &servers);
        let threads: Vec<_> = all.map(|server| scope.spawn(move || hammer(server))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = |status| statuses.iter().filter(|each| **each == status).count();
    let other = statuses.iter().find(|status| ![200, 429].contains(status));
    assert_eq!(other, None, "{rule}");
    (count(200), count(429))
}

/// Returns the time of a server in microseconds since the epoch.
fn time(redis: &Redis) -> u64 {
    let time = redis.command(&["TIME"]).unwrap();
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// Waits for midnight if it is near, so that no aligned window of a day ends during the test.
fn stay_within_a_day(redis: &Redis) {
    const DAY: u64 = 86_400_000_000;
    let left = Duration::from_micros(DAY - time(redis) % DAY);
    if left < Duration::from_secs(120) {
        sleep(left);
    }
}

#[test]
fn two_servers_together_admit_the_limit() {
    for kind in Kind::EVERY {
        let redis = Redis::start(*kind).unwrap();
        let rule = "api=1000/d,key=global,algorithm=sliding-log";
        assert_eq!(two_servers(&redis.url(), rule, 20, 40), (1_000, 600), "{kind}");
    }
}

#[test]
fn a_prefix_separates_servers_and_a_secret_hides_keys() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let url = redis.url();
    let ask = |options: &[&str]| {
        let common = ["--store", &url, "--timeout", "30s", "--rule", "api=1/d,key=header:x-api-key"];
        let server = Server::playground(&[&common[..], options].concat());
        server.get_with("/", &[("x-api-key", "key-of-ada")]).status
    };
    let keys = || redis.command(&["KEYS", "*"]).unwrap();
    let hidden = ["--prefix", "hidden", "--secret", "sesame"];
    assert_eq!((ask(&hidden), ask(&hidden)), (200, 429));
    assert!(keys().starts_with("hidden:") && !keys().contains("key-of-ada"), "{}", keys());
    assert_eq!(ask(&["--prefix", "hidden", "--secret", "other"]), 200);
    assert_eq!((ask(&["--prefix", "shown"]), ask(&["--prefix", "shown"]), ask(&[])), (200, 429, 200));
    assert!(keys().contains("shown:") && keys().contains("key-of-ada"), "{}", keys());
    assert!(keys().contains("tollgate:"), "{}", keys());
}

#[test]
fn two_servers_admit_the_limit_under_every_algorithm() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for algorithm in ["fixed-window", "fixed-window-aligned", "sliding-window", "sliding-buckets"] {
        stay_within_a_day(&redis);
        let rule = format!("api=1000/d,key=global,algorithm={algorithm}");
        assert_eq!(two_servers(&redis.url(), &rule, 20, 40), (1_000, 600), "{algorithm}");
    }
}

/// In addition to the burst, exactly the units that are refilled meanwhile may pass.
#[test]
fn two_servers_admit_the_burst_and_the_refill() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for (rule, per_day) in [
        ("api=1000/d,key=global", 1_000),
        ("api=1000/m,key=global", 1_440_000),
        ("api=1000/d,key=global,algorithm=leaky-bucket,burst=1000,max-wait=0s", 1_000),
        ("api=1000/m,key=global,algorithm=leaky-bucket,burst=1000,max-wait=0s", 1_440_000),
    ] {
        let start = time(&redis);
        let (passed, _) = two_servers(&redis.url(), rule, 20, 100);
        let elapsed = time(&redis) - start;
        let refilled = usize::try_from(elapsed * per_day / 86_400_000_000).unwrap();
        println!("{rule}: {passed} passed; 1000, and at most {refilled} refilled over {elapsed} us");
        assert!((1_000..=1_000 + refilled).contains(&passed), "{rule}: {passed}, {refilled} refilled");
    }
}

#[test]
fn servers_share_a_limit_through_sentinels_and_in_a_cluster() {
    let rules = ["api=100/d,key=global,algorithm=sliding-log", "api=100/d,key=global"];
    let sentinel = Sentinel::start(Kind::Valkey9_1).unwrap();
    for rule in rules {
        assert_eq!(two_servers(&sentinel_url(&sentinel), rule, 5, 20), (100, 100), "{rule}");
    }
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    for rule in rules {
        assert_eq!(two_servers(&cluster_url(&cluster), rule, 5, 20), (100, 100), "{rule}");
    }
}

/// In a Cluster these are two steps, perhaps on two nodes. If the second refuses, the first is
/// refunded.
#[test]
fn a_rule_on_another_slot_keeps_no_charge_of_a_refused_request() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let rules = ["all=1000/d,key=global,algorithm=fixed-window", "user=3/d,key=header:x-user"];
    let servers = [on(&cluster_url(&cluster), &rules), on(&cluster_url(&cluster), &rules)];
    for user in ["ada", "ben", "eve", "joe"] {
        let statuses: Vec<u16> =
            (0..6).map(|n| servers[n % 2].get_with("/", &[("x-user", user)]).status).collect();
        assert_eq!(statuses, [200, 200, 200, 429, 429, 429], "{user}");
    }
    let left = servers[0].get_with("/", &[("x-user", "mia")]).remaining("all");
    assert_eq!(left, 1_000 - 4 * 3 - 1);
}

/// Loads all servers until none has admitted a request for longer than several leases last.
/// Returns how many were admitted by each server. One server is killed when half of the limit was
/// admitted, if `kill` is set.
#[expect(clippy::disallowed_methods, reason = "measures how long no request was admitted")]
fn load_with_leases(redis: &Redis, limit: usize, kill: bool) -> Vec<usize> {
    let rule = format!("api={limit}/h,key=global,algorithm=fixed-window");
    let options = ["--store", &redis.url(), "--timeout", "30s", "--lease", "64/250ms", "--rule", &rule];
    let mut servers: Vec<Server> = (0..4).map(|_| Server::playground(&options)).collect();
    let admitted: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let all = || admitted.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>();
    let is_killed = AtomicBool::new(false);
    let hammer = |mut connection: Connection, number: usize| {
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_secs(2) {
            if number == 0 && is_killed.load(Ordering::SeqCst) {
                return;
            }
            match connection.request("GET", "/", &[]).status {
                200 => {
                    admitted[number].fetch_add(1, Ordering::SeqCst);
                    quiet_since = Instant::now();
                }
                429 => sleep(Duration::from_millis(1)),
                status => panic!("{status} by server {number}"),
            }
        }
    };
    scope(|scope| {
        let open = |number: usize, server: &Server| {
            let connection = server.connect();
            scope.spawn(move || hammer(connection, number))
        };
        let threads: Vec<_> =
            servers.iter().enumerate().flat_map(|(n, server)| [open(n, server), open(n, server)]).collect();
        if kill {
            while all() < limit / 2 {
                sleep(Duration::from_millis(1));
            }
            is_killed.store(true, Ordering::SeqCst);
            let mut threads = threads.into_iter();
            threads.by_ref().take(2).for_each(|thread| thread.join().unwrap());
            drop(servers.remove(0));
            threads.for_each(|thread| thread.join().unwrap());
        }
    });
    admitted.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn four_servers_with_leases_admit_exactly_a_fixed_window() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let admitted = load_with_leases(&redis, 10_000, false);
    assert_eq!(admitted.iter().sum::<usize>(), 10_000, "{admitted:?}");
    assert!(admitted.iter().all(|by_one| *by_one > 0), "{admitted:?}");
    let scripts = redis.command(&["INFO", "commandstats"]).unwrap();
    println!("{admitted:?}\n{scripts}");
}

#[test]
fn a_killed_server_loses_no_more_than_its_lease() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let admitted = load_with_leases(&redis, 10_000, true);
    let all = admitted.iter().sum::<usize>();
    assert!((10_000 - 64..=10_000).contains(&all), "{all}: {admitted:?}");
}

/// Each server stops in the middle of its load, as in a deployment.
#[test]
fn servers_that_stop_in_turn_lose_no_unit_of_their_leases() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let rule = "api=1000000/d,key=global,algorithm=fixed-window";
    let options = ["--store", &redis.url(), "--timeout", "30s", "--rule", rule];
    let leased = [&options[..], &["--lease", "1000/250ms", "--deny-cache", "100"]].concat();
    let mut admitted = 0;
    for _ in 0..5 {
        let server = Server::playground(&leased);
        let mut connection = server.connect();
        for _ in 0..200 {
            assert_eq!(connection.request("GET", "/", &[]).status, 200);
            admitted += 1;
        }
        drop(connection);
        server.stop();
    }
    let left = Server::playground(&options).get("/").remaining("api");
    let charged = 1_000_000 - left - 1;
    println!("{charged} charged, {admitted} admitted");
    assert_eq!(charged, admitted);
}

fn hosts(servers: &[Redis]) -> String {
    servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
}

pub(crate) fn sentinel_url(sentinel: &Sentinel) -> String {
    format!("redis-sentinel://{}/{}", hosts(sentinel.sentinels()), sentinel.master_name())
}

pub(crate) fn cluster_url(cluster: &Cluster) -> String {
    format!("redis-cluster://{}", hosts(cluster.nodes()))
}
