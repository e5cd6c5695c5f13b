//! A process that the tests kill. It counts decisions and stores their counts in Redis.

use std::error::Error;
use std::io::{self, Read};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tollgate::StoreExt;
use tollgate::store::{Check, Store, Times};
use tollgate::usage::top_keys::{Recording, TopKeys};
use tollgate::{Key, MemoryStore, Policy, Quota};
use tollgate_redis::RedisStore;

/// `URL PREFIX` counts 50 decisions, stores them, and prints `flushed 50`. Then it counts 7 more,
/// prints `counted 57`, and waits until it is killed.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, prefix] = words else { panic!("what is {words:?}?") };
    let usage = TopKeys::new(RedisStore::builder(url).prefix(&**prefix).connect().await?);
    // No flush but the one below, on a slow machine too.
    let recorder = usage.record(Recording::default().flush_every(Duration::from_secs(3_600)));
    let store = MemoryStore::new().count_usage(&recorder);
    let (policy, key) = (Policy::new("api", Quota::per_day(1_000)), Key::from("ada"));
    for n in 1..=57 {
        let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await?;
        assert!(verdict.is_granted(), "the quota is ample");
        if n == 50 {
            recorder.flush().await?;
            println!("flushed {n}");
        }
    }
    println!("counted 57");
    // Until the other end is closed, which does not happen.
    spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
