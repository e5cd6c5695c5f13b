//! `--jobs`: jobs that any server of a fleet takes, ends and lists.

use serde_json::Value;
use tollgate_test_servers::{Kind, Server as Redis};

use crate::arguments::complaint;
use crate::server::Server;

fn status(server: &Server, method: &str, path: &str) -> u16 {
    server.connect().request(method, path, &[]).status
}

fn ids(server: &Server) -> Vec<String> {
    let holders = server.get("/jobs/acme").json();
    let id = |holder: &Value| holder["id"].as_str().unwrap().to_owned();
    holders.as_array().unwrap().iter().map(id).collect()
}

#[test]
fn two_jobs_of_a_key_are_held_on_each_kind_of_store() {
    let options = ["--jobs", "jobs=2,key=path,ttl=1h,linger=0s"];
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let on_redis =
        || Server::playground(&[&["--store", &redis.url(), "--timeout", "30s"], &options[..]].concat());
    let memory = Server::playground(&options);
    let fleet = [on_redis(), on_redis()];
    for [one, other] in [[&memory, &memory], [&fleet[0], &fleet[1]]] {
        assert_eq!(status(one, "POST", "/jobs/acme/a"), 201);
        assert_eq!(status(other, "POST", "/jobs/acme/a"), 201, "the same job");
        assert_eq!(status(other, "POST", "/jobs/acme/b"), 201);
        let refused = one.connect().request("POST", "/jobs/acme/c", &[]);
        assert_eq!(refused.status, 429);
        assert!((1..=3_600).contains(&refused.retry_after().as_secs()));
        assert_eq!(status(one, "POST", "/jobs/other/c"), 201, "another key");
        assert_eq!(ids(one), ["a", "b"]);
        assert_eq!(status(one, "DELETE", "/jobs/acme/b"), 204, "taken by the other");
        assert_eq!(status(one, "DELETE", "/jobs/acme/b"), 404);
        assert_eq!(ids(other), ["a"]);
    }
}

#[test]
fn a_job_that_lingers_counts_after_its_end() {
    let server = Server::playground(&["--jobs", "jobs=1,linger=30min"]);
    assert_eq!(status(&server, "POST", "/jobs/acme/a"), 201);
    assert_eq!(status(&server, "DELETE", "/jobs/acme/a"), 204);
    assert_eq!(status(&server, "POST", "/jobs/acme/b"), 429);
    assert_eq!(server.get("/jobs/acme").json()[0]["lingers"], true);
}

#[test]
fn a_malformed_limit_of_jobs_is_one_error_line() {
    for jobs in [
        "",
        "jobs",
        "=2",
        "jobs=",
        "jobs=0",
        "jobs=-1",
        "jobs=1001",
        "jobs=2,",
        "jobs=2,key=ip",
        "jobs=2,ttl=1",
        "jobs=2,ttl=0s",
        "jobs=2,ttl=1h,ttl=1h",
        "jobs=2,color=red",
    ] {
        let (code, error) = complaint(&["--jobs", jobs]);
        assert!(code == 2 && error.contains("--jobs"), "{jobs:?}: {error}");
    }
}
