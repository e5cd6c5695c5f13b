//! `tollgate store check`.

use std::thread;

use tollgate_test_servers::{Cluster, Kind, Sentinel, Server};

use crate::run::{shown, tollgate};

/// Every algorithm, and the contract as a whole.
const PARTS: usize = 10;

fn all_hold(url: &str) {
    let report = shown(&["store", "check", url]);
    assert_eq!(report.lines().count(), PARTS, "{report}");
    assert!(report.lines().all(|line| line.ends_with(": holds")), "{report}");
}

/// The servers at once: a check mostly waits for answers.
#[test]
fn every_kind_of_server_holds_the_contract_and_keeps_no_key() {
    thread::scope(|scope| {
        for &kind in Kind::EVERY {
            scope.spawn(move || {
                let server = Server::start(kind).unwrap();
                all_hold(&server.url());
                assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0", "{kind}");
            });
        }
        scope.spawn(|| {
            let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
            all_hold(&format!("redis-cluster://{}", cluster.nodes()[0].address()));
            for master in cluster.masters().unwrap() {
                assert_eq!(master.command(&["DBSIZE"]).unwrap(), "0");
            }
        });
        scope.spawn(|| {
            let sentinel = Sentinel::start(Kind::Redis8_2).unwrap();
            let address = sentinel.sentinels()[0].address();
            all_hold(&format!("redis-sentinel://{address}/{}", sentinel.master_name()));
        });
    });
}

#[test]
fn what_a_server_lacks_is_named_and_the_rest_is_checked() {
    let server = Server::start_with(Kind::Redis8_2, &["--rename-command", "ZREM", ""]).unwrap();
    let ran = tollgate(&["store", "check", &server.url()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{}", ran.stdout);
    let of = |part: &str| ran.stdout.lines().find_map(|line| line.strip_prefix(part)).unwrap().to_owned();
    assert_eq!(of("gcra: "), "holds");
    let reason = of("in-flight: does not hold: ");
    assert!(reason.contains("unknown command") || reason.contains("Unknown Redis command"), "{reason}");
    assert_eq!(server.command(&["DBSIZE"]).unwrap(), "0");
}

#[test]
fn a_server_that_does_not_answer_is_an_error() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    server.kill();
    let ran = tollgate(&["store", "check", &server.url()]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: --redis: "), "{}", ran.stderr);
}
