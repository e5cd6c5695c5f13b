//! A Redis that is killed, paused, or not started yet.

use std::fs::write;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;
use tollgate_examples::testing::Response;
use tollgate_test_servers::{Kind, Server as Redis};

use crate::server::Server;

const RULE: [&str; 2] = ["--rule", "api=1000/d,key=global"];

fn on(redis: &Redis, options: &[&str]) -> Server {
    Server::playground(&[&["--store", &redis.url()], options, &RULE].concat())
}

/// A slow answer is no outage. A killed server refuses connections at once.
fn patient_on(redis: &Redis, options: &[&str]) -> Server {
    on(redis, &[&["--timeout", "30s"], options].concat())
}

/// Asks until the answer is as expected. The server reconnects within half a second.
fn patiently(server: &Server, expected: impl Fn(&Response) -> bool) -> Response {
    let mut response = server.get("/");
    for _ in 0..600 {
        if expected(&response) {
            return response;
        }
        sleep(Duration::from_millis(100));
        response = server.get("/");
    }
    panic!("still {response:?}");
}

#[track_caller]
fn assert_unavailable(response: &Response) {
    assert_eq!(response.status, 503, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    let problem = response.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(problem["status"], 503);
    assert_eq!(response.header("ratelimit"), None, "it is unknown what is left");
    response.retry_after();
}

#[test]
fn closed_refuses_while_redis_is_down_and_not_after() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for options in [&[][..], &["--on-failure", "closed"]] {
        let server = patient_on(&redis, options);
        let response = server.get("/");
        assert_eq!((response.status, response.remaining("api")), (200, 999));
        redis.kill();
        for _ in 0..3 {
            assert_unavailable(&server.get("/"));
        }
        assert_eq!(server.get("/health").status, 200);
        redis.restart().unwrap();
        // The restarted Redis has lost all usage.
        let response = patiently(&server, |response| response.status == 200);
        assert_eq!(response.remaining("api"), 999);
        redis.command(&["FLUSHALL"]).unwrap();
    }
}

#[test]
fn open_passes_requests_without_fields_while_redis_is_down() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let server = patient_on(&redis, &["--on-failure", "open"]);
    assert_eq!(server.get("/").remaining("api"), 999);
    redis.kill();
    for _ in 0..3 {
        let response = server.get("/");
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.header("ratelimit"), None);
        assert_eq!(response.header("ratelimit-policy"), None);
    }
    redis.restart().unwrap();
    let response = patiently(&server, |response| response.header("ratelimit").is_some());
    assert_eq!((response.status, response.remaining("api")), (200, 999));
}

#[test]
fn a_server_starts_before_its_redis() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    redis.kill();
    let server = patient_on(&redis, &[]);
    assert_unavailable(&server.get("/"));
    redis.restart().unwrap();
    let response = patiently(&server, |response| response.status == 200);
    assert_eq!(response.remaining("api"), 999);
}

/// A paused server is the worst outage: it accepts connections, but does not answer.
#[test]
#[expect(clippy::disallowed_methods, reason = "measures a wait outside the server")]
fn requests_wait_no_longer_than_the_timeout_for_a_hung_redis() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    // Longer and shorter than the default response timeout of a connection.
    for (timeout, least) in [("2s", Duration::from_secs(2)), ("100ms", Duration::from_millis(100))] {
        for (policy, status) in [("closed", 503), ("open", 200)] {
            let server = on(&redis, &["--timeout", timeout, "--on-failure", policy]);
            assert_eq!(patiently(&server, |response| response.header("ratelimit").is_some()).status, 200);
            redis.pause().unwrap();
            let start = Instant::now();
            let response = server.get("/");
            assert_eq!((response.status, response.header("ratelimit")), (status, None), "{response:?}");
            assert!(start.elapsed() >= least, "{:?} of {timeout}", start.elapsed());
            redis.resume().unwrap();
            let response = patiently(&server, |response| response.header("ratelimit").is_some());
            assert_eq!(response.status, 200);
        }
    }
}

/// A second is the default, not the minimum.
#[test]
fn a_timeout_below_a_second_is_not_rounded_up() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let (patient, hasty) = (on(&redis, &[]), on(&redis, &["--timeout", "100ms"]));
    for server in [&patient, &hasty] {
        patiently(server, |response| response.status == 200);
    }
    // A machine may be so busy that either is late.
    let is_first = (0..5).filter(|_| {
        redis.pause().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| patient.get("/"));
            sleep(Duration::from_millis(50));
            assert_eq!(hasty.get("/").status, 503);
            let is_first = !waits.is_finished();
            redis.resume().unwrap();
            waits.join().unwrap();
            patiently(&hasty, |response| response.status == 200);
            is_first
        })
    });
    assert!(is_first.count() >= 3, "the server with the timeout of a second answered first");
}

/// Redis is killed: each of three servers grants its third, together no more than the limit.
#[test]
fn a_fleet_with_a_third_each_admits_no_more_than_the_limit() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let options = ["--on-failure", "fallback", "--share", "1/3", "--timeout", "30s", "--breaker", "3/200ms"];
    let rule = ["--rule", "api=100/d,key=global"];
    let url = redis.url();
    let options = [&["--store", &url][..], &options, &rule].concat();
    let fleet: Vec<Server> = (0..3).map(|_| Server::playground(&options)).collect();
    for server in &fleet {
        let response = server.get("/");
        assert_eq!(response.header("ratelimit-policy"), Some("\"api\";q=100;w=86400"), "{response:?}");
    }
    redis.kill();
    let mut passed = 0;
    for server in &fleet {
        for n in 0..40 {
            let response = server.get("/");
            assert_eq!(response.status, if n < 33 { 200 } else { 429 }, "{response:?}");
            assert_eq!(response.header("ratelimit-policy"), Some("\"api\";q=33;w=86400"));
            passed += u32::from(response.status == 200);
        }
    }
    assert_eq!(passed, 99);
    redis.restart().unwrap();
    for server in &fleet {
        let whole =
            |response: &Response| response.header("ratelimit-policy") == Some("\"api\";q=100;w=86400");
        assert_eq!(patiently(server, whole).status, 200);
    }
}

/// The file is read before each connection.
#[test]
fn a_password_that_changes_in_its_file_is_followed() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let user = |rules: &[&str]| redis.command(&[&["ACL", "SETUSER", "app", "on"], rules].concat()).unwrap();
    user(&[">first", "~*", "&*", "+@all"]);
    let file = NamedTempFile::new().unwrap();
    write(&file, "first\n").unwrap();
    let (url, path) = (format!("redis://app@{}", redis.address()), file.path().to_str().unwrap());
    let options = ["--store", &url, "--password-file", path, "--timeout", "30s", "--keep-corrections", "10"];
    let server = Server::playground(&[&options, &RULE[..]].concat());
    assert_eq!(server.get("/").status, 200);
    user(&[">second"]);
    write(&file, "second\n").unwrap();
    user(&["<first"]);
    redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    assert_eq!(patiently(&server, |response| response.status == 200).remaining("api"), 998);
}

/// The server starts while its Redis is down, and connects when Redis comes up.
#[test]
fn a_server_falls_back_until_its_redis_is_up() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    redis.kill();
    let options = ["--on-failure", "fallback", "--share", "1/10", "--breaker", "2/100ms"];
    let server = patient_on(&redis, &options);
    for left in [99, 98, 97] {
        let response = server.get("/");
        assert_eq!((response.status, response.remaining("api")), (200, left));
    }
    redis.restart().unwrap();
    let response = patiently(&server, |response| response.remaining("api") > 100);
    assert_eq!((response.status, response.remaining("api")), (200, 999));
}
