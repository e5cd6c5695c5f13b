//! How many requests pass under each algorithm.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::server::Server;

/// Five requests and no more, with a second or more to send them.
const FIVE: [&str; 6] = [
    "api=5/10s",
    "api=5/3s,algorithm=fixed-window",
    "api=5/3s,algorithm=fixed-window-aligned",
    "api=5/5s,algorithm=sliding-window",
    "api=5/3s,algorithm=sliding-buckets",
    "api=5/3s,algorithm=sliding-log",
];

/// Runs `test` for all rules concurrently.
fn for_each(rules: &[&str], test: impl Fn(&str, &Server) + Sync) {
    scope(|scope| {
        for rule in rules {
            let test = &test;
            scope.spawn(move || {
                let server = Server::with_rules(&[rule]);
                if rule.contains("aligned") {
                    begin_a_window(&server);
                }
                test(rule, &server);
            });
        }
    });
}

/// Waits for the next aligned window, so that none ends during the test.
fn begin_a_window(server: &Server) {
    let seconds = server.get("/").field("ratelimit", "api", "t");
    sleep(Duration::from_secs(seconds));
}

#[test]
fn five_pass_two_are_refused_and_one_passes_after_retry_after() {
    for_each(&FIVE, |rule, server| {
        for left in (0..5).rev() {
            let response = server.get("/");
            assert_eq!((response.status, response.remaining("api")), (200, left), "{rule}: {response:?}");
            assert_eq!(response.body, "hello\n");
            assert_eq!(response.header("retry-after"), None);
            assert_eq!(response.field("ratelimit-policy", "api", "q"), 5);
        }
        let refused = server.get("/");
        refused.assert_refused_by(&["api"]);
        assert_eq!(refused.remaining("api"), 0);
        assert_eq!(refused.field("ratelimit", "api", "t"), refused.retry_after().as_secs(), "{rule}");
        server.get("/").assert_refused_by(&["api"]);
        sleep(refused.retry_after());
        assert_eq!(server.get("/").status, 200, "{rule}: Retry-After was too short");
    });
}

#[test]
fn denied_requests_are_not_recorded() {
    for_each(&FIVE, |rule, server| {
        let mut connection = server.connect();
        for _ in 0..5 {
            assert_eq!(connection.request("GET", "/", &[]).status, 200, "{rule}");
        }
        let refused = connection.request("GET", "/", &[]);
        refused.assert_refused_by(&["api"]);
        for _ in 0..50 {
            connection.request("GET", "/", &[]).assert_refused_by(&["api"]);
        }
        // From here on the test may be slow: it is enough that one request passes.
        sleep(refused.retry_after());
        assert_eq!(connection.request("GET", "/", &[]).status, 200, "{rule}: denials were recorded");
    });
}

#[test]
fn a_cost_equal_to_the_capacity_passes_on_a_fresh_key() {
    let leaky = "api=5/3s,algorithm=leaky-bucket,burst=5,max-wait=0s";
    for_each(&[&FIVE[..], &[leaky]].concat(), |rule, server| {
        if !rule.contains("aligned") {
            assert_eq!(server.me("api", "remaining"), Some(5), "{rule}");
        }
        assert_eq!(server.transfer("5").status, 200, "{rule}");
        server.transfer("5").assert_refused_by(&["api"]);
        let never = server.transfer("6");
        assert_eq!((never.status, never.header("retry-after")), (422, None), "{rule}: {never:?}");
    });
}

#[test]
fn a_concurrent_burst_gets_exactly_the_limit() {
    const CONNECTIONS: usize = 50;
    const EACH: usize = 8;
    for algorithm in ["gcra", "fixed-window", "sliding-window", "sliding-buckets", "sliding-log"] {
        let server = Server::with_rules(&[&format!("api=200/d,algorithm={algorithm}")]);
        let statuses: Vec<u16> = scope(|scope| {
            let hammer = || {
                let mut connection = server.connect();
                (0..EACH).map(|_| connection.request("GET", "/", &[]).status).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(hammer)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let count = |status| statuses.iter().filter(|each| **each == status).count();
        assert_eq!((count(200), count(429)), (200, CONNECTIONS * EACH - 200), "{algorithm}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures a wait outside the server")]
fn a_leaky_bucket_delays_requests_instead_of_refusing_them() {
    let server = Server::with_rules(&["api=10/s,algorithm=leaky-bucket,max-wait=5s"]);
    let start = Instant::now();
    for _ in 0..4 {
        assert_eq!(server.get("/").status, 200);
    }
    assert!(start.elapsed() >= Duration::from_millis(300), "4 requests in {:?}", start.elapsed());
    // Concurrent requests queue one after another.
    scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(server.get("/").status, 200));
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(700), "8 requests in {:?}", start.elapsed());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures a wait outside the server")]
fn a_leaky_bucket_refuses_a_delay_beyond_max_wait() {
    let server = Server::with_rules(&["api=1/3s,algorithm=leaky-bucket,max-wait=1s"]);
    let start = Instant::now();
    assert_eq!(server.get("/").status, 200);
    let refused = server.get("/");
    refused.assert_refused_by(&["api"]);
    sleep(refused.retry_after());
    assert_eq!(server.get("/").status, 200, "Retry-After was too short");
    assert!(start.elapsed() >= Duration::from_secs(3), "2 requests in {:?}", start.elapsed());
}

#[test]
fn retry_after_is_at_least_one_second() {
    let server = Server::with_rules(&["api=1/1500ms,algorithm=fixed-window"]);
    let mut refused = 0;
    // At all parts of the window, also when less than a second remains.
    while refused < 60 {
        let answer = server.get("/");
        if answer.status == 429 {
            assert!((1..=2).contains(&answer.retry_after().as_secs()), "{answer:?}");
            refused += 1;
        }
        sleep(Duration::from_millis(25));
    }
}
