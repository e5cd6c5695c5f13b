//! A server whose requests hold slots, of which tests start four, kill one and stop another.

mod plan;
mod twice;

use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Extension, Path, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use http::StatusCode;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tollgate::extract::global;
use tollgate::store::{Check, NeverFails, Store, Times};
use tollgate::{Key, MemoryStore, Policy, PolicyExt, RateLimitLayer, Share, Slot, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_tests::{Claims, serve};

use plan::{rate, renewed, slots};
use twice::Twice;

/// How long a request takes and how long the server lets it take, in milliseconds, and whether its
/// handler panics.
type Work = Path<(u64, u64, bool)>;

/// How long callers wait in the mode `hasty`: less than Redis stalls.
const HASTE: Duration = Duration::from_millis(50);

/// Between two looks that show whether Redis answers.
const LOOKS: Duration = Duration::from_millis(10);

/// `URL JOURNAL MODE TTL` prints the address. The time to live is in milliseconds. Serves until its
/// input ends.
#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub(crate) async fn run(words: &[String]) -> Result<(), Box<dyn Error>> {
    let [url, path, mode, ttl] = words else { panic!("what is {words:?}?") };
    let slots = slots(Duration::from_millis(ttl.parse()?));
    let journal = Journal(Arc::new(File::create(path)?), Arc::default());
    let is_hasty = mode == "hasty";
    // Shorter than the time to live: a store that is silent refuses in time. If callers do not wait
    // that long, no stall is a reason to replace a connection.
    let silence = if is_hasty { Duration::from_secs(60) } else { Duration::from_millis(500) };
    let redis = RedisStore::builder(url).response_timeout(silence).connect().await?;
    let claims = Claims::route(&redis);
    if is_hasty {
        tokio::spawn(look(redis.clone(), slots.clone(), journal.clone()));
    }
    let redis = Twice::new(redis, journal.clone());
    let rules = [slots.by(global()), rate().by(global())];
    let app = match &**mode {
        "closed" => app(RateLimitLayer::new(rules).store(redis.fail_closed()), &journal),
        "hasty" => {
            let rules = rules.into_iter().chain([renewed().by(global())]);
            app(RateLimitLayer::new(rules).store(redis.timeout(HASTE).fail_closed()), &journal)
        }
        _ => {
            let fallback = redis.fall_back_to(MemoryStore::new(), Share::new(1, 4));
            app(RateLimitLayer::new(rules).store(fallback), &journal)
        }
    };
    let address = serve(app.route("/claims", claims)).await;
    println!("{address}");
    spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

/// Looks again and again, and writes down when Redis has answered.
async fn look(store: RedisStore, slots: Policy, journal: Journal) {
    loop {
        let look = store.acquire(&[Check::new(&slots, &Key::global(), 1)], Times::LOOK);
        // A connection that was cut is replaced.
        if look.wait().await.is_ok() {
            journal.note("answered");
        }
        sleep(LOOKS).await;
    }
}

fn app<S: Store<Error: NeverFails>>(layer: RateLimitLayer<S>, journal: &Journal) -> Router {
    Router::new()
        .route("/{time}/{limit}/{panics}", get(work))
        .layer(layer)
        .layer(from_fn(in_time))
        .layer(Extension(journal.clone()))
}

/// Drops a request that takes too long.
async fn in_time(Path((_, limit, _)): Work, request: Request, next: Next) -> Response {
    let answer = timeout(Duration::from_millis(limit), next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::GATEWAY_TIMEOUT.into_response())
}

/// Works in steps, before each of which it asks whether its slot is lost.
async fn work(
    Path((time, _, panics)): Work,
    slot: Slot,
    Extension(journal): Extension<Journal>,
) -> StatusCode {
    let id = journal.1.fetch_add(1, Ordering::Relaxed);
    for step in 0..=time / 10 {
        // Before the question: from the first of these times to the last, the slot is held.
        let asked = micros();
        if slot.is_lost() {
            journal.write(asked, &format!("lost {id}"));
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        journal.write(asked, &format!("works {id}"));
        assert!(!(panics && step == 2), "the handler panics");
        sleep(Duration::from_millis(10)).await;
    }
    StatusCode::OK
}

/// The file to which a process writes each step, and the number of its next request.
#[derive(Clone, Debug)]
pub(crate) struct Journal(Arc<File>, Arc<AtomicU64>);

impl Journal {
    fn write(&self, time: u64, step: &str) {
        // One call for each line, so that the lines of two threads do not mix.
        (&*self.0).write_all(format!("{time} {step}\n").as_bytes()).expect("the journal is written");
    }

    /// Writes what happens now.
    pub(crate) fn note(&self, step: &str) {
        self.write(micros(), step);
    }
}

/// The clock that all processes share.
#[expect(clippy::disallowed_methods, reason = "it is no clock of a decision")]
fn micros() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(since_epoch.as_micros()).expect("a time before the year 584,000")
}
