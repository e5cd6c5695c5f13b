//! `/login`: a rule that counts failures only, and a slot for each name.

use std::io::Write;
use std::net::TcpStream;
use std::thread::{scope, sleep};
use std::time::Duration;

use tollgate_test_servers::{Kind, Server as Redis};

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

/// Two servers in memory, each by itself, and two on one Redis.
fn pairs(redis: &Redis, options: &[&str]) -> [[Server; 2]; 2] {
    let url = redis.url();
    let in_redis = [&["--store", &url, "--timeout", "30s"], options].concat();
    [options, &in_redis].map(|options| [Server::playground(options), Server::playground(options)])
}

/// Sends these forms at once, by turns to these servers. Returns the statuses in their order.
fn at_once(servers: &[&Server], forms: &[String]) -> Vec<u16> {
    scope(|scope| {
        let tries: Vec<_> = (forms.iter().zip(servers.iter().cycle()))
            .map(|(form, server)| scope.spawn(move || log_in(server, form)))
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn right_log_ins_at_once_all_pass_and_a_typo_among_them_locks_no_one() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for [one, two] in pairs(&redis, &["--rule", "login=2/d"]) {
        let both = [&one, &two];
        assert_eq!(at_once(&both, &vec![RIGHT.to_owned(); 10]), [200; 10]);
        assert_eq!((remaining(&one), remaining(&two)), (2, 2));
        let forms = [RIGHT, RIGHT, WRONG, RIGHT, RIGHT].map(str::to_owned);
        assert_eq!(at_once(&[&one], &forms), [200, 200, 401, 200, 200]);
        assert_eq!((remaining(&one), log_in(&one, RIGHT)), (1, 200));
    }
}

#[test]
fn of_a_thousand_guesses_five_reach_the_check_and_then_they_are_blocked() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let options = ["--rule", "login=5/d", "--block", "login=20/15m"];
    let [[in_memory, _], [one, two]] = pairs(&redis, &options);
    for servers in [&[&in_memory][..], &[&one, &two]] {
        let guesses: Vec<_> = (0..1_000).map(|n| format!("user=ada&password={n}")).collect();
        let statuses = at_once(servers, &guesses);
        let count = |status| statuses.iter().filter(|each| **each == status).count();
        assert_eq!((count(401), count(429)), (5, 995), "{statuses:?}");
        for server in servers {
            wait_until(|| {
                let blocked = server.connect().post("/login", RIGHT);
                blocked.status == 429 && blocked.body.contains("abnormal-usage-detected")
            });
        }
    }
}

/// Their slots differ, and their failures do not.
#[test]
fn guesses_for_many_names_at_once_stay_within_the_limit() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for [one, _] in pairs(&redis, &["--rule", "login=5/d"]) {
        let guesses: Vec<_> = (0..200).map(|n| format!("user={n}&password=1234")).collect();
        let statuses = at_once(&[&one], &guesses);
        let count = |status| statuses.iter().filter(|each| **each == status).count();
        assert_eq!((count(401), count(429)), (5, 195), "{statuses:?}");
        assert_eq!(log_in(&one, RIGHT), 429);
    }
}

/// A third of one slot is none: each server has slots of its own.
#[test]
fn log_ins_work_with_a_small_share_for_outages() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let (url, rule) = (redis.url(), ["--rule", "login=6/d"]);
    let store = ["--store", &url, "--timeout", "30s", "--on-failure", "fallback", "--share", "1/3"];
    let server = Server::playground(&[&store[..], &rule].concat());
    assert_eq!(at_once(&[&server], &vec![RIGHT.to_owned(); 10]), [200; 10]);
    assert_eq!((log_in(&server, WRONG), remaining(&server)), (401, 5));
}

#[test]
fn a_log_in_that_the_rules_refuse_does_not_wait_for_its_turn() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    let server = Server::playground(&["--store", &redis.url(), "--timeout", "30s", "--rule", "login=1/d"]);
    // As a log-in at another server does.
    let hold_turn = || {
        let time = redis.command(&["TIME"]).unwrap();
        let now: u64 = time.lines().next().unwrap().parse().unwrap();
        let (turn, end) = ("tollgate:2:{=ada}:login-turn~in-flight", format!("{}000000", now + 15));
        redis.command(&["ZADD", turn, &end, "another"]).unwrap();
    };
    hold_turn();
    server.connect().post("/login", RIGHT).assert_refused_by(&["login-turn"]);
    assert_eq!(log_in(&server, "user=bob&password=1234"), 401);
    hold_turn();
    server.connect().post("/login", RIGHT).assert_refused_by(&["login"]);
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
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for [server, _] in pairs(&redis, &["--rule", "login=5/d"]) {
        for left in (0..5).rev() {
            let connection = begin(&server, WRONG.len(), WRONG);
            wait_until(|| remaining(&server) == left);
            drop(connection);
        }
        // Longer than a check takes, after which a refund could come.
        sleep(Duration::from_millis(300));
        assert_eq!(log_in(&server, RIGHT), 429);
    }
}

#[test]
fn clients_that_leave_while_they_wait_hold_up_no_other() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for [server, _] in pairs(&redis, &["--rule", "login=9/d"]) {
        let first = begin(&server, RIGHT.len(), RIGHT);
        wait_until(|| remaining(&server) == 8);
        let others: Vec<_> = (0..20).map(|_| begin(&server, WRONG.len(), WRONG)).collect();
        drop(others);
        // Each check that began before its client left has charged its failure.
        assert_eq!(log_in(&server, RIGHT), 200);
        drop(first);
        let checked = (0..20).filter(|_| log_in(&server, WRONG) == 401).count();
        assert!(checked <= 9, "{checked} guesses were checked");
        assert_eq!((remaining(&server), log_in(&server, RIGHT)), (0, 429));
    }
}

#[test]
fn forms_that_never_end_gain_no_guess() {
    let redis = Redis::start(Kind::Redis8_2).unwrap();
    for [server, _] in pairs(&redis, &["--rule", "login=5/d"]) {
        let open: Vec<_> = (0..5).map(|_| begin(&server, 99, "user=ada&password=open+ses")).collect();
        // They hold up no other log-in of the name, and nothing is checked that could be charged.
        assert_eq!((log_in(&server, RIGHT), remaining(&server)), (200, 5));
        drop(open);
        assert_eq!((0..20).filter(|_| log_in(&server, WRONG) == 401).count(), 5);
    }
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
