//! Requests that cost more than one unit: a bank that limits a new user to 2,000 a day.

use crate::server::Server;

fn bank() -> Server {
    Server::with_rules(&["api=2000/d,algorithm=fixed-window"])
}

#[test]
fn a_transfer_of_the_rest_passes_and_one_more_is_refused() {
    for algorithm in ["gcra", "fixed-window", "sliding-window", "sliding-buckets", "sliding-log"] {
        let server = Server::with_rules(&[&format!("api=2000/d,algorithm={algorithm}")]);
        let first = server.transfer("1999");
        assert_eq!((first.status, first.remaining("api")), (200, 1), "{algorithm}");
        let second = server.transfer("1");
        assert_eq!((second.status, second.remaining("api")), (200, 0), "{algorithm}");
        server.transfer("1").assert_refused_by(&["api"]);
    }
}

#[test]
fn a_cost_above_the_capacity_gets_422_without_retry_after() {
    let server = bank();
    for amount in ["2001", "4294967295", "4294967296", "99999999999999999999999999999999"] {
        let never = server.transfer(amount);
        assert_eq!((never.status, never.header("retry-after")), (422, None), "{amount}: {never:?}");
        assert_eq!(never.json()["violated-policies"], serde_json::json!(["api"]));
        assert_eq!(never.remaining("api"), 2_000, "{amount} was charged");
    }
    assert_eq!(server.transfer("2000").status, 200);
}

#[test]
fn a_denied_request_of_large_cost_is_not_charged() {
    let server = Server::with_rules(&["api=10/d"]);
    assert_eq!(server.transfer("4").status, 200);
    let reset_after = server.me("api", "reset_after").unwrap();
    let refused = server.transfer("10");
    refused.assert_refused_by(&["api"]);
    assert!(refused.retry_after().as_secs() <= 86_400, "{refused:?}");
    assert!(server.me("api", "reset_after").unwrap() <= reset_after, "the refused transfer was booked");
    assert_eq!(server.transfer("6").status, 200);
}

#[test]
fn a_malformed_amount_is_refused_and_costs_one() {
    let server = bank();
    // Decoded, the last would be 1999. The charge and the transfer must use the same text.
    for (left, amount) in (1_993..2_000).rev().zip(["abc", "-5", "+5", "1.5", "1e3", "5%20", "%31999"]) {
        let refused = server.transfer(amount);
        assert_eq!((refused.status, refused.remaining("api")), (400, left), "{amount}");
    }
    assert_eq!(server.transfer("0").status, 200);
    assert_eq!(server.transfer("0005").remaining("api"), 1_988);
    assert_eq!(server.transfer("5?x=1/2").remaining("api"), 1_983);
}

#[test]
fn other_requests_to_a_transfer_path_cost_one() {
    let server = bank();
    let get = server.get("/transfer/500");
    assert_eq!((get.status, get.remaining("api")), (405, 1_999));
    let elsewhere = server.transfer("500/");
    assert_eq!((elsewhere.status, elsewhere.remaining("api")), (404, 1_998));
}
