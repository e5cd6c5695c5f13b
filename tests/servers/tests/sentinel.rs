//! Test Sentinels.

use tollgate_test_servers::{Kind, Sentinel};

use crate::{eventually, of_every_kind};

#[test]
fn another_server_is_master_after_the_first_was_killed() {
    of_every_kind(|kind| {
        let sentinel = Sentinel::start(kind).unwrap();
        let old = sentinel.master().unwrap();
        assert_eq!(old.port(), sentinel.servers()[0].port());
        for one in sentinel.sentinels() {
            let address =
                one.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinel.master_name()]).unwrap();
            assert_eq!(address, format!("127.0.0.1\n{}", old.port()));
        }
        old.command(&["SET", "a", "1"]).unwrap();
        let replica = &sentinel.servers()[1];
        eventually("the replica has it", || replica.command(&["GET", "a"]).unwrap() == "1");

        old.kill();
        let new = sentinel.next_master(old).unwrap();
        assert_eq!(new.port(), replica.port());
        assert_eq!(new.command(&["GET", "a"]).unwrap(), "1");
        new.command(&["SET", "a", "2"]).unwrap();
    });
}

#[test]
fn a_failover_works_while_the_master_is_healthy() {
    let sentinel = Sentinel::start(Kind::Valkey9_1).unwrap();
    let replica = &sentinel.servers()[1];
    assert_eq!(sentinel.failover().unwrap().port(), replica.port());
    assert_eq!(sentinel.master().unwrap().port(), replica.port());
    replica.command(&["SET", "a", "1"]).unwrap();
}
