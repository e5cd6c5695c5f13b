//! Test Clusters.

use std::collections::HashSet;

use tollgate_test_servers::{Cluster, Kind};

use crate::{eventually, of_every_kind};

#[test]
fn keys_live_with_the_owners_of_their_slots_and_move() {
    of_every_kind(|kind| {
        let cluster = Cluster::start(kind).unwrap();
        assert_eq!(cluster.urls().iter().collect::<HashSet<_>>().len(), 6);
        let masters = cluster.masters().unwrap();
        let owners =
            [0, 5_460, 5_461, 10_921, 10_922, 16_383].map(|slot| cluster.owner_of(slot).unwrap().port());
        for (owner, master) in owners.iter().zip([0, 0, 1, 1, 2, 2]) {
            assert_eq!(*owner, cluster.nodes()[master].port());
            assert!(masters.iter().any(|master| master.port() == *owner));
        }

        let slot = cluster.slot_of("{a}1").unwrap();
        let owner = cluster.owner_of(slot).unwrap();
        let to = *masters.iter().find(|master| master.port() != owner.port()).unwrap();
        owner.command(&["SET", "{a}1", "here"]).unwrap();
        owner.command(&["SET", "{a}\n2", "here, too"]).unwrap();
        let moved = to.command(&["GET", "{a}1"]).unwrap_err().to_string();
        assert!(moved.contains(&format!("MOVED {slot} 127.0.0.1:{}", owner.port())), "{moved}");

        cluster.begin_migration(slot, to).unwrap();
        assert_eq!(owner.command(&["GET", "{a}1"]).unwrap(), "here");
        let ask = owner.command(&["GET", "{a}3"]).unwrap_err().to_string();
        assert!(ask.contains(&format!("ASK {slot} 127.0.0.1:{}", to.port())), "{ask}");

        cluster.finish_migration(slot, to).unwrap();
        assert_eq!(to.command(&["GET", "{a}1"]).unwrap(), "here");
        assert_eq!(to.command(&["GET", "{a}\n2"]).unwrap(), "here, too");
        let moved = owner.command(&["GET", "{a}1"]).unwrap_err().to_string();
        assert!(moved.contains(&format!("MOVED {slot} 127.0.0.1:{}", to.port())), "{moved}");
        assert_eq!(cluster.owner_of(slot).unwrap().port(), to.port());
    });
}

#[test]
fn the_replica_of_a_master_that_is_killed_takes_over() {
    let cluster = Cluster::start(Kind::Redis8_2).unwrap();
    let slot = cluster.slot_of("a").unwrap();
    let old = cluster.owner_of(slot).unwrap();
    old.command(&["SET", "a", "1"]).unwrap();
    let replica =
        &cluster.nodes()[3 + cluster.nodes().iter().position(|node| node.port() == old.port()).unwrap()];
    eventually("the replica has it", || replica.command(&["DBSIZE"]).unwrap() == "1");
    old.kill();
    eventually("its replica serves the slot", || {
        cluster.owner_of(slot).is_ok_and(|owner| owner.port() == replica.port())
    });
    eventually("it answers", || replica.command(&["GET", "a"]).is_ok_and(|value| value == "1"));
    old.restart().unwrap();
    eventually("the old one is its replica", || old.command(&["ROLE"]).unwrap().starts_with("slave"));
}
