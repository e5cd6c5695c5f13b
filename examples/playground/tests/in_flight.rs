//! `--in-flight`: requests that hold a slot until their response has ended.

use std::io::Write;
use std::net::TcpStream;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_test_servers::{Kind, Server as Redis};

use crate::server::{Server, wait_until};

/// Starts the playground on a Redis. The timeout is long, so that a slow machine fails no test.
fn on(redis: &Redis, options: &[&str]) -> Server {
    Server::playground(&[&["--store", &redis.url(), "--timeout", "30s"], options].concat())
}

/// Servers with these options, on each kind of store.
fn servers(options: &[&str]) -> [(Option<Redis>, Server); 2] {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let in_redis = on(&redis, options);
    [(None, Server::playground(options)), (Some(redis), in_redis)]
}

fn free(server: &Server, policy: &str) -> u64 {
    server.me(policy, "remaining").unwrap()
}

/// Clients have their last bytes. In Redis, the release of their slots is on its way then.
#[track_caller]
fn assert_free(redis: Option<&Redis>, server: &Server, expected: u64) {
    if redis.is_some() {
        wait_until(|| free(server, "exports") == expected);
    }
    assert_eq!(free(server, "exports"), expected);
}

/// A client that sends a request, and leaves when this is dropped.
struct Client(#[expect(dead_code, reason = "its drop closes the connection")] TcpStream);

/// Sends a request that takes a minute, and waits until it leaves that many slots of a policy.
fn hold(server: &Server, lines: &str, policy: &str, left: u64) -> Client {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    let head = format!("GET /slow/60000 HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    wait_until(|| free(server, policy) == left);
    Client(connection)
}

#[test]
fn requests_beyond_the_limit_are_refused_until_a_client_leaves() {
    for (_redis, server) in servers(&["--in-flight", "exports=3"]) {
        let mut clients: Vec<_> = [2, 1, 0].map(|left| hold(&server, "", "exports", left)).into();
        for path in ["/slow/0", "/drip/0", "/"].repeat(3) {
            let refused = server.get(path);
            refused.assert_refused_by(&["exports"]);
            assert_eq!(refused.retry_after().as_secs(), 1);
            assert_eq!(refused.header("ratelimit"), Some(r#""exports";r=0"#));
        }
        clients.pop();
        wait_until(|| free(&server, "exports") == 1);
        let passed = server.get("/slow/1");
        assert_eq!((passed.status, passed.body.as_str()), (200, "took 1 ms\n"));
        let policy = r#""exports";q=3;qu="concurrent-requests""#;
        assert_eq!(passed.header("ratelimit-policy"), Some(policy));
        assert_eq!(passed.header("ratelimit"), Some(r#""exports";r=0"#));
    }
}

#[test]
fn under_load_each_slot_comes_back() {
    for (redis, server) in servers(&["--in-flight", "exports=3"]) {
        let statuses: Vec<u16> = scope(|scope| {
            let hammer = || {
                let mut connection = server.connect();
                (0..20).map(|_| connection.request("GET", "/slow/10", &[]).status).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..12).map(|_| scope.spawn(hammer)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert!([200, 429].iter().all(|status| statuses.contains(status)), "{statuses:?}");
        assert_free(redis.as_ref(), &server, 3);
    }
}

#[test]
fn a_body_holds_its_slot_until_it_ends() {
    for (redis, server) in servers(&["--in-flight", "exports=1"]) {
        let mut pieces = server.stream("GET /drip/60000");
        assert_eq!(pieces.next().as_deref(), Some("piece 1"));
        server.get("/").assert_refused_by(&["exports"]);
        drop(pieces);
        // The server notices that its client has left.
        wait_until(|| free(&server, "exports") == 1);
        assert_eq!(server.stream("GET /drip/1500").last().as_deref(), Some("piece 15"));
        assert_free(redis.as_ref(), &server, 1);
        // The last piece is shorter.
        assert_eq!(server.stream("GET /drip/250").count(), 3);
        assert_eq!(server.stream("GET /drip/0").count(), 0);
    }
}

#[test]
fn a_client_that_leaves_a_body_frees_its_slot() {
    for (_redis, server) in servers(&["--in-flight", "exports=1"]) {
        let mut pieces = server.stream("GET /drip/60000");
        assert_eq!(pieces.next().as_deref(), Some("piece 1"));
        assert_eq!(free(&server, "exports"), 0);
        drop(pieces);
        wait_until(|| free(&server, "exports") == 1);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a request waits for at least max-wait")]
fn a_request_waits_for_a_slot_within_max_wait() {
    for (_redis, server) in servers(&["--in-flight", "exports=1,max-wait=60s"]) {
        let client = hold(&server, "", "exports", 0);
        scope(|scope| {
            let waiting = scope.spawn(|| server.get("/slow/0").status);
            sleep(Duration::from_millis(300));
            assert!(!waiting.is_finished());
            drop(client);
            assert_eq!(waiting.join().unwrap(), 200);
        });
    }
    for (_redis, server) in servers(&["--in-flight", "exports=1,max-wait=500ms"]) {
        let _client = hold(&server, "", "exports", 0);
        let start = Instant::now();
        server.get("/").assert_refused_by(&["exports"]);
        assert!(start.elapsed() >= Duration::from_millis(500));
    }
}

#[test]
fn each_key_has_slots_of_its_own() {
    for (_redis, server) in
        servers(&["--in-flight", "user=1,key=header:x-user", "--in-flight", "all=3,key=global"])
    {
        let get = |user| server.get_with("/", &[("x-user", user)]);
        let free =
            |user| server.get_with("/me", &[("x-user", user)]).json()["policies"][0]["remaining"].take();
        let mut connection = TcpStream::connect(server.address()).unwrap();
        connection.write_all(b"GET /slow/60000 HTTP/1.1\r\nhost: localhost\r\nx-user: ada\r\n\r\n").unwrap();
        wait_until(|| free("ada") == 0);
        get("ada").assert_refused_by(&["user"]);
        let bob = get("bob");
        assert_eq!((bob.status, bob.remaining("user"), bob.remaining("all")), (200, 0, 1));
        assert_eq!(server.get("/").status, 400, "no key");
        drop(connection);
        wait_until(|| free("ada") == 1);
    }
}

#[test]
fn a_request_without_a_slot_charges_no_rate_and_the_other_way_round() {
    for (redis, server) in servers(&["--rule", "api=3/d", "--in-flight", "exports=1"]) {
        let client = hold(&server, "", "exports", 0);
        for _ in 0..3 {
            let refused = server.get("/");
            refused.assert_refused_by(&["exports"]);
            assert_eq!(refused.remaining("api"), 2);
        }
        drop(client);
        wait_until(|| free(&server, "exports") == 1);
        for _ in 0..2 {
            assert_eq!(server.get("/").status, 200);
            assert_free(redis.as_ref(), &server, 1);
        }
        let refused = server.get("/");
        refused.assert_refused_by(&["api"]);
        assert_eq!(refused.remaining("exports"), 1, "it takes no slot");
    }
}

#[test]
fn me_shows_free_slots_without_a_reset() {
    for (_redis, server) in servers(&["--in-flight", "exports=1"]) {
        let expected = |remaining, retry_after: Option<u64>| {
            let mut policy = json!({
                "name": "exports", "algorithm": "in-flight", "limit": 1, "capacity": 1, "remaining": remaining
            });
            if let Some(seconds) = retry_after {
                policy["retry_after"] = seconds.into();
            }
            json!({ "policies": [policy] })
        };
        assert_eq!(server.get("/me").json(), expected(1, None), "the default rule does not apply");
        let _client = hold(&server, "", "exports", 0);
        assert_eq!(server.get("/me").json(), expected(0, Some(1)));
    }
}

#[test]
fn times_that_are_no_numbers_or_too_long_are_refused() {
    let server = Server::with_rules(&["api=100/d"]);
    for route in ["slow", "drip"] {
        for time in ["-1", "+1", "1.5", "x", "60001", "99999999999999999999"] {
            let refused = server.get(&format!("/{route}/{time}"));
            assert_eq!((refused.status, refused.body.contains("up to 60000")), (400, true), "{time}");
        }
    }
    // Without slots, the routes take as long.
    assert_eq!(server.get("/slow/1").status, 200);
    assert_eq!(server.stream("GET /drip/150").count(), 2);
    let unknown = server.get("/unknown");
    assert!(unknown.body.contains("/slow/2000, /drip/2000"), "{unknown:?}");
}

#[test]
fn a_server_that_stops_waits_for_requests_in_flight() {
    for (_redis, server) in servers(&["--in-flight", "exports=1"]) {
        let mut connection = server.connect();
        scope(|scope| {
            let running = scope.spawn(move || connection.request("GET", "/slow/4000", &[]).status);
            wait_until(|| free(&server, "exports") == 0);
            server.stop();
            assert_eq!(running.join().unwrap(), 200);
        });
    }
}

/// How Redis goes away, and comes back.
type Outage = (fn(&Redis), fn(&Redis));

const OUTAGES: [Outage; 2] = [
    (|redis| redis.pause().unwrap(), |redis| redis.resume().unwrap()),
    (Redis::kill, |redis| redis.restart().unwrap()),
];

#[test]
fn requests_end_early_if_redis_is_away_for_longer_than_a_time_to_live() {
    for (begin, end) in OUTAGES {
        let redis = Redis::start(Kind::Redis8_2).unwrap();
        let options = ["--timeout", "2s", "--in-flight", "exports=2,ttl=4s"];
        let server = Server::playground(&[&["--store", &redis.url()][..], &options].concat());
        scope(|scope| {
            let slow = scope.spawn(|| server.get("/slow/60000"));
            let mut pieces = server.stream("GET /drip/60000");
            assert_eq!(pieces.next().as_deref(), Some("piece 1"));
            wait_until(|| free(&server, "exports") == 0);
            // Slots are renewed meanwhile.
            sleep(Duration::from_secs(5));
            assert!(!slow.is_finished());
            begin(&redis);
            let slow = slow.join().unwrap();
            assert_eq!((slow.status, slow.body.as_str()), (503, "stopped: the slot was lost\n"));
            assert_eq!(pieces.last().as_deref(), Some("stopped: the slot was lost"));
            assert_eq!(server.get("/").status, 503, "the failure policy refuses");
            end(&redis);
            wait_until(|| server.get("/").status == 200);
            wait_until(|| free(&server, "exports") == 2);
        });
    }
}

#[test]
fn requests_go_on_if_redis_is_back_before_a_time_to_live_ends() {
    for (begin, end) in OUTAGES {
        let redis = Redis::start(Kind::Redis8_2).unwrap();
        let server = on(&redis, &["--in-flight", "exports=2,ttl=60s"]);
        // Both have begun, so their claims were answered.
        let streams = [(); 2].map(|()| server.stream("GET /drip/6000"));
        assert_eq!(free(&server, "exports"), 0);
        begin(&redis);
        sleep(Duration::from_millis(500));
        end(&redis);
        for pieces in streams {
            assert_eq!(pieces.last().as_deref(), Some("piece 60"));
        }
        wait_until(|| server.get("/").status == 200 && free(&server, "exports") == 2);
    }
}

#[test]
fn a_server_that_stops_frees_its_slots_for_another() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let options = ["--in-flight", "exports=2,ttl=10m"];
    let (stops, other) = (on(&redis, &options), on(&redis, &options));
    // It would run for longer than the server waits for it.
    let _clients = [1, 0].map(|left| hold(&stops, "", "exports", left));
    other.get("/").assert_refused_by(&["exports"]);
    stops.stop();
    assert_eq!(free(&other, "exports"), 2);
    assert_eq!(other.get("/").status, 200);
}

#[test]
fn slots_of_a_killed_server_come_back_when_their_time_to_live_ends() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let options = ["--in-flight", "exports=1,ttl=6s"];
    let (dies, other) = (on(&redis, &options), on(&redis, &options));
    let _client = hold(&dies, "", "exports", 0);
    other.get("/").assert_refused_by(&["exports"]);
    drop(dies);
    wait_until(|| other.get("/").status == 200);
}

#[test]
fn the_banner_lists_slots_and_commands_to_try() {
    let mut server = Server::playground(&["--rule", "api=5/d", "--in-flight", "exports=2,max-wait=5s"]);
    let said = server.says_until("http://");
    let line = "exports: 2 in flight for each client address; others wait for at most 5 seconds";
    assert!(said.contains(line) && said.contains("A request that one rule refuses"), "{said}");
    assert!(said.contains("/slow/2000\n") && said.contains("/drip/2000\n"), "{said}");
    assert!(said.contains("/transfer/3\n") && !said.contains("Add --in-flight"), "{said}");
    let said = Server::with_rules(&["api=5/d"]).says_until("http://");
    assert!(said.contains("Add --in-flight exports=2 to try GET /slow/2000"), "{said}");
}
