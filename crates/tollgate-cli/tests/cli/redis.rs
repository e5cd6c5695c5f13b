//! `tollgate load --redis`: a store without a server of HTTP.

use tollgate_test_servers::{Cluster, Kind, Server};

use crate::run::{load, tollgate};

#[test]
fn exactly_the_limit_is_admitted() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let address = redis.address().to_string();
    let policy = "day=100/d,algorithm=sliding-log";
    let run = |more: &[&str]| load(&[&["--redis", &address, "--policy", policy, "-n", "500"], more].concat());
    assert_eq!(run(&["-c", "30"]).counts(), (100, 400, 0));
    assert_eq!(run(&[]).counts(), (0, 500, 0), "the limit is used up");
    assert_eq!(run(&["--prefix", "another"]).counts(), (100, 400, 0));
    assert_eq!(run(&["--secret", "sesame", "--keys", "3"]).counts(), (300, 200, 0));
}

/// Places that come after the timeout of a load. Its store has answered before.
#[test]
fn a_leaky_bucket_delays_beyond_the_timeout() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let policy = "queue=9/m,algorithm=leaky-bucket,max-wait=60s";
    let arguments = ["--redis", &redis.url(), "--policy", policy, "-n", "2", "-c", "2", "--timeout", "5s"];
    assert_eq!(load(&arguments).counts(), (2, 0, 0));
}

#[test]
fn several_policies_are_charged_together() {
    let redis = Server::start(Kind::Valkey9_1).unwrap();
    let policies =
        ["--policy", "day=100/d,algorithm=fixed-window", "--policy", "most=40/d,algorithm=sliding-log"];
    let ran = load(&[&["--redis", &redis.url(), "-n", "200"], &policies[..]].concat());
    assert_eq!(ran.counts(), (40, 160, 0));
}

#[test]
fn a_cluster_is_loaded_by_its_url() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let url = format!("redis-cluster://{}", cluster.nodes()[0].address());
    let policy = "day=5/d,algorithm=fixed-window";
    assert_eq!(
        load(&["--redis", &url, "--policy", policy, "--keys", "50", "-n", "3000"]).counts(),
        (250, 2_750, 0)
    );
}

#[test]
fn user_and_password_may_contain_any_character() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    let password = "p@ss:w/rd?%40#";
    redis.command(&["ACL", "SETUSER", "ada", "on", &format!(">{password}"), "~*", "+@all"]).unwrap();
    redis.command(&["ACL", "SETUSER", "default", "off"]).unwrap();
    let address = redis.address().to_string();
    let redis = ["load", "--redis", &address, "--policy", "a=5/d", "-n", "10", "--user", "ada", "--password"];
    assert_eq!(tollgate(&[&redis[..], &[password]].concat()).counts(), (5, 5, 0));
    let ran = tollgate(&[&redis[..], &["p@ss"]].concat());
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 1), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: --redis: ") && !ran.stderr.contains("p@ss"), "{}", ran.stderr);
}
