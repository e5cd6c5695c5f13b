//! Several servers on one Redis: what they let pass together.

use std::thread::scope;
use std::time::Duration;

use tollgate_conformance::servers::{Cluster, Kind, Sentinel, Server as Redis};

use crate::server::Server;

/// The playground on a Redis; patient, so that a slow machine fails no test.
pub(crate) fn on(store: &str, rules: &[&str]) -> Server {
    let rules = rules.iter().flat_map(|rule| ["--rule", rule]);
    Server::playground(&["--store", store, "--timeout", "30s"].into_iter().chain(rules).collect::<Vec<_>>())
}

/// Two servers, asked by `connections` clients each, who send `each` requests one after another: how many answers were 200,
/// and how many 429.
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

/// The time of a server in microseconds since the epoch.
fn time(redis: &Redis) -> u64 {
    let time = redis.command(&["TIME"]).unwrap();
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// Windows of a day that are aligned end at midnight: waits for it where it is near, lest one end amid the test.
fn stay_within_a_day(redis: &Redis) {
    const DAY: u64 = 86_400_000_000;
    let left = Duration::from_micros(DAY - time(redis) % DAY);
    if left < Duration::from_secs(120) {
        std::thread::sleep(left);
    }
}

#[test]
fn two_servers_admit_twice_the_limit() {
    for kind in Kind::EVERY {
        let redis = Redis::start(*kind).unwrap();
        let rule = "api=1000/d,key=global,algorithm=sliding-log";
        assert_eq!(two_servers(&redis.url(), rule, 20, 40), (1_000, 600), "{kind}");
    }
}

#[test]
fn servers_with_another_prefix_count_apart_and_a_secret_hides_keys() {
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
fn two_servers_admit_the_limit_by_every_other_algorithm() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for algorithm in ["fixed-window", "fixed-window-aligned", "sliding-window", "sliding-buckets"] {
        stay_within_a_day(&redis);
        let rule = format!("api=1000/d,key=global,algorithm={algorithm}");
        assert_eq!(two_servers(&redis.url(), &rule, 20, 40), (1_000, 600), "{algorithm}");
    }
}

/// What flows in meanwhile may pass besides, and not a unit more.
#[test]
fn two_servers_admit_what_a_bucket_holds_and_what_flows_in() {
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
        let flowed_in = usize::try_from(elapsed * per_day / 86_400_000_000).unwrap();
        println!("{rule}: {passed} passed; 1000, and at most {flowed_in} that flowed in over {elapsed} us");
        assert!((1_000..=1_000 + flowed_in).contains(&passed), "{rule}: {passed}, {flowed_in} flowed in");
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

/// In a Cluster these are two steps, on two nodes perhaps: what the first granted comes back.
#[test]
fn what_one_rule_refuses_is_charged_by_another_with_another_key() {
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

fn hosts(servers: &[Redis]) -> String {
    servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
}

pub(crate) fn sentinel_url(sentinel: &Sentinel) -> String {
    format!("redis-sentinel://{}/{}", hosts(sentinel.sentinels()), sentinel.master_name())
}

pub(crate) fn cluster_url(cluster: &Cluster) -> String {
    format!("redis-cluster://{}", hosts(cluster.nodes()))
}
