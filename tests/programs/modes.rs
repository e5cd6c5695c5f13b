//! One program with three modes by configuration: no limit, limits in memory, limits in Redis.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tollgate::extract::header;
use tollgate::store::BoxStore;
use tollgate::{MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Client, serve};

/// As a configuration file would say it.
enum Mode {
    Off,
    Memory,
    Redis(String),
}

async fn app(mode: &Mode) -> Router {
    let store: BoxStore<_> = match mode {
        Mode::Off | Mode::Memory => MemoryStore::new().boxed(),
        Mode::Redis(url) => {
            let redis = RedisStore::connect(url).await.unwrap();
            redis.timeout(Duration::from_secs(10)).fail_closed().boxed()
        }
    };
    let limit =
        RateLimitLayer::new(Policy::new("api", Quota::per_hour(1)).by(header("x-api-key"))).store(store);
    limit.set_enabled(!matches!(mode, Mode::Off));
    Router::new().route("/", get(|| async { "hello" })).layer(limit)
}

#[tokio::test]
async fn the_mode_chooses_the_store_and_not_the_type() {
    let redis = Server::start(Kind::Redis8_2).unwrap();
    for (mode, second) in [(Mode::Off, 200), (Mode::Memory, 429), (Mode::Redis(redis.url()), 429)] {
        let mut client = Client::connect(serve(app(&mode).await).await).await;
        assert_eq!(client.get("/", &["x-api-key: a"]).await.status, 200);
        assert_eq!(client.get("/", &["x-api-key: a"]).await.status, second);
    }
}
