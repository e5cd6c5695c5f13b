//! Corrections of a Redis that is dead, kept until it is back.

use std::time::Duration;

use tollgate::store::Settled;
use tollgate::{Algorithm, CircuitBreaker, Key, Limiter, Policy, Quota, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

use crate::redis::eventually;

const HOUR: Duration = Duration::from_secs(3_600);
/// A busy machine is no outage.
const PATIENCE: Duration = Duration::from_secs(60);
const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The time to live of the slots is an hour, so only a release frees them.
#[tokio::test]
async fn streams_that_end_while_redis_is_dead_are_charged_and_free_their_slots() {
    for algorithm in [Algorithm::Gcra, Algorithm::FIXED_WINDOW, Algorithm::SLIDING_LOG] {
        let server = Server::start_with(Kind::Redis8_2, &PERSISTENT).unwrap();
        let redis = RedisStore::builder(&server.url()).response_timeout(PATIENCE).connect().await.unwrap();
        let store = redis.timeout(PATIENCE).circuit_breaker(CircuitBreaker::default());
        let store = store.fail_closed().keep_corrections(100);
        let tokens = Policy::new("tokens", Quota::per_day(100_000)).with_algorithm(algorithm);
        let streams = Policy::in_flight("streams", 4).with_ttl(HOUR);
        let limiter = Limiter::new([tokens, streams]).store(store.clone());
        let (ada, bob) = (Key::from("ada"), Key::from("bob"));
        let mut permits = Vec::new();
        for _ in 0..4 {
            permits.push(limiter.check(&ada, 1).await.unwrap());
        }

        server.kill();
        // What was sent before that may have been executed, and would not be kept.
        eventually("the outage is seen", async || limiter.check(&bob, 1).await.is_err()).await;
        for mut permit in permits {
            let settled = permit.charge("tokens").settle(5_000).await;
            assert_eq!(settled, Settled { charged: 1, kept: 4_999, ..Settled::default() }, "{algorithm:?}");
        }
        // One charge, and four slots, whose releases go on in tasks.
        eventually("all is kept", async || store.kept_corrections().waiting == 5).await;

        server.restart().unwrap();
        eventually("all is sent", async || store.kept_corrections().waiting == 0).await;
        let counts = store.kept_corrections();
        assert_eq!((counts.sent, counts.unknown, counts.expired), (5, 0, 0), "{algorithm:?}");
        let mut left = Vec::new();
        eventually("it answers", async || {
            let report = limiter.look(&ada).await.unwrap();
            left = report.statuses().iter().map(|status| status.remaining()).collect();
            !left.is_empty()
        })
        .await;
        // A bucket has refilled a few.
        assert!((80_000..90_000).contains(&left[0]), "{algorithm:?}: {left:?}");
        assert_eq!(left[1], 4, "{algorithm:?}");
    }
}
