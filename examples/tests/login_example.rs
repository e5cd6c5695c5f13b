//! The example of log-ins.

use serde_json::json;

use crate::program::start;

#[test]
fn the_login_example_counts_failures_by_name_and_address() {
    let server = start("login", &["127.0.0.1:0"]);
    let log_in = |name: &str, password: &str| {
        server.connect().post("/log-in", &json!({ "name": name, "password": password }).to_string())
    };
    // Right ones are free.
    for _ in 0..30 {
        assert_eq!(log_in("Ada", "secret").body, "welcome, Ada\n");
    }
    for spelling in ["ada", "Ada", "ADA", "aDa", "adA"] {
        assert_eq!(log_in(spelling, "1234").status, 401);
    }
    log_in("ada", "secret").assert_refused_by(&["name"]);
    for nth in 0..15 {
        assert_eq!(log_in(&format!("user {nth}"), "1234").status, 401);
    }
    log_in("someone", "1234").assert_refused_by(&["address"]);
    assert_eq!(log_in("", "1234").status, 400);
    assert_eq!(server.connect().post("/log-in", "ada").status, 400);
}
