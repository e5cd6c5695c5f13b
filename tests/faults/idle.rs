//! Connections that a server closes because they are idle.

use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::sleep;
use tollgate::Key;
use tollgate::store::{Check, Store, Times};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Cluster, Kind, Sentinel, Server};

use crate::faults::run::policy;

async fn decides(store: &RedisStore) -> Result<(), tollgate_redis::Error> {
    store.acquire(&[Check::new(&policy(), &Key::from("ada"), 1)], Times::ONCE).wait().await.map(drop)
}

/// Closed by the server's own timeout and by hand: on a server, under Sentinels, in a Cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_request_after_an_idle_hour_passes() {
    let server = Server::start(Kind::Redis6_2).unwrap();
    let sentinel = block_in_place(|| Sentinel::start(Kind::Redis8_2)).unwrap();
    let cluster = block_in_place(|| Cluster::start(Kind::Valkey9_1)).unwrap();
    let list = |servers: &[Server]| -> String {
        servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>().join(",")
    };
    let sentinels = format!("redis-sentinel://{}/{}", list(sentinel.sentinels()), sentinel.master_name());
    tokio::join!(
        passes_when_connections_were_closed(server.url(), std::slice::from_ref(&server)),
        passes_when_connections_were_closed(sentinels, sentinel.servers()),
        passes_when_connections_were_closed(
            format!("redis-cluster://{}", list(cluster.nodes())),
            cluster.nodes()
        ),
    );
}

async fn passes_when_connections_were_closed(url: String, servers: &[Server]) {
    let store = RedisStore::connect(&url).await.unwrap();
    decides(&store).await.unwrap();
    for server in servers {
        command(server, &["CONFIG", "SET", "timeout", "1"]);
    }
    // The server looks for idle clients now and then.
    sleep(Duration::from_secs(4)).await;
    for server in servers {
        command(server, &["CONFIG", "SET", "timeout", "0"]);
    }
    decides(&store).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    for _ in 0..3 {
        for server in servers {
            command(server, &["CLIENT", "KILL", "TYPE", "normal"]);
        }
        // Long enough for a busy machine to notice.
        sleep(Duration::from_secs(1)).await;
        decides(&store).await.unwrap_or_else(|error| panic!("{url}, after a kill: {error}"));
    }
}

fn command(server: &Server, words: &[&str]) {
    block_in_place(|| server.command(words)).unwrap();
}
