//! `/login`: a rule that counts failures only.

use std::io::Write;
use std::net::TcpStream;
use std::thread::{scope, sleep};
use std::time::Duration;

use tollgate_conformance::servers::{Kind, Server as Redis};

use crate::fleet::on;
use crate::server::{Server, wait_until};

const RIGHT: &str = "user=ada&password=open+sesame";
const WRONG: &str = "user=ada&password=1234";

fn log_in(server: &Server, form: &str) -> u16 {
    server.connect().post("/login", form).status
}

fn remaining(server: &Server) -> u64 {
    server.me("login", "remaining").unwrap()
}

#[test]
fn five_failures_refuse_the_sixth_attempt_and_successes_do_not_count() {
    let server = Server::with_rules(&["login=5/d"]);
    let mut statuses = Vec::new();
    for form in [RIGHT, WRONG, RIGHT, WRONG, RIGHT, WRONG, WRONG, RIGHT, WRONG, RIGHT, WRONG] {
        statuses.push(log_in(&server, form));
    }
    assert_eq!(statuses, [200, 401, 200, 401, 200, 401, 401, 200, 401, 429, 429]);
}

#[test]
fn only_the_first_password_of_a_form_is_checked() {
    let server = Server::with_rules(&["login=9/d"]);
    for form in ["", "password", "password=", "user=open+sesame", "password=1&password=open+sesame", "&&=&%"]
    {
        assert_eq!(log_in(&server, form), 401, "{form:?}");
    }
    assert_eq!(remaining(&server), 3);
    for form in ["password=open%20sesame", "password=open+sesame&password=1"] {
        assert_eq!(log_in(&server, form), 200, "{form:?}");
    }
    assert_eq!(log_in(&server, &"x".repeat(3_000_000)), 413, "too long to be a guess");
    assert_eq!(remaining(&server), 3);
}

#[test]
fn two_hundred_concurrent_guesses_reach_the_check_five_times() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for server in [Server::with_rules(&["login=5/d"]), on(&redis.url(), &["login=5/d"])] {
        let statuses: Vec<u16> = scope(|scope| {
            let guesses: Vec<_> = (0..200)
                .map(|n| {
                    let server = &server;
                    scope.spawn(move || log_in(server, &format!("password={n}")))
                })
                .collect();
            guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
        });
        let count = |status| statuses.iter().filter(|each| **each == status).count();
        assert_eq!((count(401), count(429)), (5, 195), "{statuses:?}");
        assert_eq!(log_in(&server, RIGHT), 429);
    }
}

/// Sends an attempt, of whose form the end may be missing.
fn begin(server: &Server, length: usize, form: &str) -> TcpStream {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    let head = format!("POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    connection.write_all((head + form).as_bytes()).unwrap();
    connection
}

#[test]
fn an_aborted_guess_counts() {
    let server = Server::with_rules(&["login=5/d"]);
    for left in (0..5).rev() {
        let connection = begin(&server, WRONG.len(), WRONG);
        wait_until(|| remaining(&server) == left);
        drop(connection);
    }
    // Longer than a check takes, after which a refund could come.
    sleep(Duration::from_millis(300));
    assert_eq!(log_in(&server, RIGHT), 429);
}

/// They are charged while they are open. Later the charge may come back, since no password was
/// checked.
#[test]
fn forms_that_never_end_gain_no_guess() {
    let server = Server::with_rules(&["login=5/d"]);
    let open: Vec<_> = (0..5).map(|_| begin(&server, 99, "password=open+ses")).collect();
    wait_until(|| remaining(&server) == 0);
    assert_eq!(log_in(&server, RIGHT), 429);
    drop(open);
    let checked = (0..20).filter(|_| log_in(&server, WRONG) == 401).count();
    assert!(checked <= 5, "{checked} guesses were checked");
}

#[test]
fn the_rule_applies_to_no_other_route() {
    // No key is needed there either.
    let server = Server::with_rules(&["login=2/d,key=header:x-user", "api=100/d"]);
    for _ in 0..5 {
        let response = server.get("/");
        assert_eq!((response.status, response.header("ratelimit").unwrap().contains("login")), (200, false));
    }
    assert_eq!(log_in(&server, WRONG), 400, "no key");
    let mut connection = server.connect();
    let get = connection.request("GET", "/login", &[("x-user", "ada")]);
    assert_eq!(get.status, 405);
    let me = connection.request("GET", "/me", &[("x-user", "ada")]).json();
    let standings: Vec<_> =
        me["policies"].as_array().unwrap().iter().map(|each| &each["remaining"]).collect();
    assert_eq!(standings, [2, 94], "GET /login costs a unit of api: {me}");
}

#[test]
fn without_a_rule_named_login_failures_are_not_limited() {
    let server = Server::with_rules(&["api=100/d"]);
    for _ in 0..8 {
        assert_eq!(log_in(&server, WRONG), 401);
    }
    assert_eq!(server.me("api", "remaining"), Some(92));
}
