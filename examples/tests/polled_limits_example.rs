//! The example of limits in a table that changes.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use tollgate_examples::testing::{Program, Response};

use crate::program::start;

fn get(server: &Program, customer: &str) -> Response {
    server.get_with("/", &[("x-api-key", &format!("key-of-{customer}"))])
}

/// Asks until an answer is so.
fn eventually(server: &Program, customer: &str, is_so: impl Fn(&Response) -> bool) {
    for _ in 0..600 {
        if is_so(&get(server, customer)) {
            return;
        }
        sleep(Duration::from_millis(100));
    }
    panic!("not in a minute");
}

#[test]
fn each_customer_has_the_limit_of_its_row_and_of_the_next_table() {
    let file = std::env::temp_dir().join(format!("polled-limits-{}.json", std::process::id()));
    let write = |table: &str| {
        let next = file.with_extension("next");
        fs::write(&next, table).expect("a file");
        fs::rename(next, &file).expect("a file");
    };
    write(r#"{"acme": 100, "bob": 0, "eve": -1, "fay": null}"#);
    let server = start("polled_limits", &[file.to_str().expect("a path"), "127.0.0.1:0"]);
    for (customer, quota) in [("acme", 100), ("fay", 10)] {
        assert_eq!(get(&server, customer).field("ratelimit-policy", "requests", "q"), quota, "{customer}");
    }
    assert_eq!(get(&server, "bob").status, 403);
    let unlimited = get(&server, "eve");
    assert_eq!((unlimited.status, unlimited.header("ratelimit")), (200, None));
    assert_eq!(get(&server, "a-stranger").status, 401);

    // A row that cannot be read changes no limit.
    write(r#"{"acme": -2, "bob": -1}"#);
    sleep(Duration::from_millis(2_500));
    assert_eq!(get(&server, "acme").field("ratelimit-policy", "requests", "q"), 100);
    assert_eq!(get(&server, "bob").status, 403);

    write(r#"{"acme": 50, "bob": -1}"#);
    eventually(&server, "bob", |answer| answer.status == 200);
    assert_eq!(get(&server, "acme").field("ratelimit-policy", "requests", "q"), 50);
    fs::remove_file(file).expect("it is there");
}
