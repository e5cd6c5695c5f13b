//! What the guide says of entries in the slow log of Redis.

use std::net::{IpAddr, Ipv4Addr};

use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, Policy, Quota};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

const NAME: &str = "tollgate:2:{@192.0.2.1}:daily~sliding-log~1d~sums";

#[tokio::test]
async fn an_entry_names_the_caller_its_policy_and_the_client() {
    for kind in [Kind::Redis6_2, Kind::Redis8_2, Kind::Valkey9_1] {
        let server = Server::start(kind).expect("a server");
        let store = RedisStore::connect(&server.url()).await.expect("a store");
        let policy = Policy::new("daily", Quota::per_day(5)).with_algorithm(Algorithm::SLIDING_LOG);
        let key = Key::network(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 64);
        let check = async || {
            let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await;
            assert!(verdict.expect("an answer").is_granted());
        };
        // Loads the script.
        check().await;
        server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]).expect("OK");
        check().await;
        let log = server.command(&["SLOWLOG", "GET", "1000"]).expect("entries");
        let lines: Vec<_> = log.lines().collect();
        let after = |command| lines.iter().position(|line| *line == command).map(|at| &lines[at + 1..]);

        let call = after("EVALSHA").expect("the entry of the call");
        assert_eq!(call[1..3], ["1", NAME]);
        let is_client =
            |line: &&str| line.strip_prefix("tollgate:").is_some_and(|version| !version.contains(':'));
        assert!(call.iter().any(is_client), "{call:?}");

        // A command within the script: its words, and in Valkey the address.
        let within = after("RPUSH").expect("the entry of the command");
        assert_eq!(within[0], NAME);
        assert_eq!(within[3].starts_with("127.0.0.1:"), kind == Kind::Valkey9_1, "{within:?}");
    }
}
