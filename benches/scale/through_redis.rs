//! Tasks that ask a store in Redis, each for one key after the other.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tollgate::store::{Check, Store, Times};
use tollgate::{Key, Policy, Quota};
use tollgate_benches::{ServerCost, callers};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};

const KEYS: u32 = 10_000;

/// Opens the connections and makes the keys.
const WARM_UP: Duration = Duration::from_millis(500);
const LENGTH: Duration = Duration::from_secs(3);

/// A busy machine may let an answer wait.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Setup {
    server: Server,
    /// Two threads, as in a small service.
    runtime: Runtime,
}

impl Setup {
    pub(crate) fn new() -> Result<Setup, Box<dyn Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Setup { server: Server::start(Kind::Redis8_2)?, runtime })
    }

    /// Decisions a second, the median microseconds of one, and the processor time of the server for
    /// one.
    pub(crate) fn run(&self, tasks: u32) -> Result<[f64; 3], Box<dyn Error>> {
        self.server.command(&["FLUSHALL"])?;
        self.runtime.block_on(async {
            let builder = RedisStore::builder(&self.server.url()).response_timeout(PATIENCE);
            let store = builder.connect().await?;
            decide(&store, tasks, WARM_UP).await?;
            let (before, start) = (ServerCost::of(&self.server), Instant::now());
            let times = decide(&store, tasks, LENGTH).await?;
            let (wall, after) = (start.elapsed(), ServerCost::of(&self.server));
            let decisions = times.len() as f64;
            Ok([
                decisions / wall.as_secs_f64(),
                times.value_at_quantile(0.5) as f64 / 1e3,
                (after.processor - before.processor) / decisions,
            ])
        })
    }
}

/// The nanoseconds of each decision.
async fn decide(store: &RedisStore, tasks: u32, length: Duration) -> Result<Histogram<u64>, Box<dyn Error>> {
    let times = Arc::new(Mutex::new(Histogram::new_with_bounds(1, 60_000_000_000, 3)?));
    let end = Instant::now() + length;
    let running: JoinSet<()> =
        (0..tasks).map(|task| ask(store.clone(), task, end, Arc::clone(&times))).collect();
    running.join_all().await;
    let times = times.lock().expect("no task panics").clone();
    Ok(times)
}

async fn ask(store: RedisStore, task: u32, end: Instant, times: Arc<Mutex<Histogram<u64>>>) {
    let policy = Policy::new("api", Quota::per_day(1_000_000));
    // Tasks that start together ask for different keys.
    for caller in callers(KEYS).map(|caller| (caller + task) % KEYS) {
        let (key, start) = (Key::from(caller), Instant::now());
        if start >= end {
            return;
        }
        let verdict = store.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait().await;
        assert!(verdict.expect("an answer").is_granted(), "it is not denied");
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        times.lock().expect("no task panics").saturating_record(nanos);
    }
}
