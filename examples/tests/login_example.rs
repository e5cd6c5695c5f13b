//! The example of log-ins.

use std::thread::scope;

use serde_json::json;
use tollgate_examples::testing::{Program, Response};

use crate::program::start;

fn log_in(server: &Program, name: &str, password: &str) -> Response {
    server.connect().post("/log-in", &json!({ "name": name, "password": password }).to_string())
}

#[test]
fn failures_count_by_name_and_address_and_right_ones_are_free() {
    let server = start("login", &["127.0.0.1:0"]);
    for _ in 0..30 {
        assert_eq!(log_in(&server, "Ada", "secret").body, "welcome, Ada\n");
    }
    for spelling in ["ada", "Ada", "ADA", "aDa"] {
        assert_eq!(log_in(&server, spelling, "1234").status, 401);
    }
    assert_eq!(log_in(&server, "ada", "secret").status, 200, "it forgets the failures of the name");
    for _ in 0..5 {
        let answer = log_in(&server, "ada", "1234");
        assert_eq!(answer.status, 401, "{}", answer.body);
    }
    log_in(&server, "ada", "secret").assert_refused_by(&["name"]);
    assert_eq!(log_in(&server, "", "1234").status, 400, "no key, and no failure of the address");
    for nth in 0..11 {
        assert_eq!(log_in(&server, &format!("user {nth}"), "1234").status, 401);
    }
    log_in(&server, "someone", "1234").assert_refused_by(&["address"]);
    assert_eq!(server.connect().post("/log-in", "ada").status, 400);
}

#[test]
fn right_log_ins_at_once_all_pass_and_a_typo_among_them_locks_no_one() {
    let server = start("login", &["127.0.0.1:0"]);
    for passwords in [&["secret"; 10][..], &["secret", "secret", "1234", "secret", "secret"]] {
        let statuses: Vec<u16> = scope(|scope| {
            let tries: Vec<_> = passwords
                .iter()
                .map(|password| scope.spawn(|| log_in(&server, "ada", password).status))
                .collect();
            tries.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let expected: Vec<u16> =
            passwords.iter().map(|password| if *password == "secret" { 200 } else { 401 }).collect();
        assert_eq!(statuses, expected);
    }
    assert_eq!(log_in(&server, "ada", "secret").status, 200);
}

#[test]
fn of_many_guesses_five_reach_the_check_and_then_the_name_is_blocked() {
    let server = start("login", &["127.0.0.1:0"]);
    // An address may have 20 failures, and as many log-ins at once.
    let twenty = |nth: usize| -> Vec<Response> {
        scope(|scope| {
            let guess = |n: usize| {
                let server = &server;
                scope.spawn(move || log_in(server, "bob", &n.to_string()))
            };
            let guesses: Vec<_> = (20 * nth..20 * (nth + 1)).map(guess).collect();
            guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
        })
    };
    let answers: Vec<Response> = (0..5).flat_map(twenty).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 401).count(), 5);
    assert_eq!(answers.iter().filter(|answer| answer.status == 429).count(), 95);
    let blocked = log_in(&server, "bob", "secret");
    assert_eq!(blocked.status, 429);
    assert!(blocked.body.contains("abnormal-usage-detected"), "{}", blocked.body);
}
