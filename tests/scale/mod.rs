//! Leases and the cache of denials: fewer round trips, within the bounds of `tollgate::scale`.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

mod blocks;
mod classes;
mod contract;
mod denials;
mod fleets;
mod outages;
mod returns;
mod runtimes;
mod stops;
mod versions;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

/// A server that all tests share that leave it unchanged.
fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Kind::Redis8_2).expect("a server"))
}

/// A prefix that no other test has.
fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A store in which nothing is used.
async fn connect(server: &Server) -> RedisStore {
    RedisStore::builder(&server.url()).prefix(prefix()).connect().await.expect("a store")
}
