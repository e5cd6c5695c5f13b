//! A server that is stopped under load. The calls that wait for it do not fill the memory.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tollgate::failure::Event;
use tollgate::store::ErrorKind;
use tollgate::store::Source;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Strict, call, request, user};
use tower::Layer;

const CALLERS: u32 = 1_000;

/// The server is stopped until so many requests were refused.
const REFUSED: u32 = 110_000;

/// How much the process may grow. 250 bytes kept for each refused request would be too much.
const MOST: u64 = 24 << 20;

#[derive(Default)]
struct Counts {
    is_over: AtomicBool,
    by_store: AtomicU32,
    by_policy: AtomicU32,
    timeouts: AtomicU32,
    others: AtomicU32,
}

/// Without a breaker each request waits. Each is of another user, so none are merged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_does_not_fill_the_memory() {
    if crate::ran_in_own_process(a_stopped_server_does_not_fill_the_memory) {
        return;
    }
    let server = Server::start(Kind::Redis8_2).unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    let counts = Arc::<Counts>::default();
    let heard = Arc::clone(&counts);
    let store = store.timeout(Duration::from_millis(50)).fail_closed().observe(move |event| {
        let counter = match event {
            Event::Decided(Source::Store) => &heard.by_store,
            Event::Decided(_) => &heard.by_policy,
            Event::Failed(ErrorKind::Timeout) => &heard.timeouts,
            _ => &heard.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let layer = RateLimitLayer::new([Policy::new("p", Quota::per_day(1_000)).by(user())]).store(store);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (mut service, counts) = (layer.layer(Strict::default()), Arc::clone(&counts));
        callers.spawn(async move {
            for n in 0_u32.. {
                if counts.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let response = call(&mut service, request(&format!("user {caller} {n}"))).await;
                assert!(matches!(response.status().as_u16(), 200 | 503), "{}", response.status());
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    // Until connections, buffers and the allocator's own memory exist.
    until("load", || counts.by_store.load(Ordering::Relaxed) > 20 * CALLERS).await;
    let before = resident();
    server.pause().unwrap();
    let (stopped, most) = (Instant::now(), AtomicU64::new(before));
    until("requests are refused", || {
        most.fetch_max(resident(), Ordering::Relaxed);
        counts.by_policy.load(Ordering::Relaxed) > REFUSED
    })
    .await;
    let (stopped, most) = (stopped.elapsed(), most.into_inner());
    let refused = counts.by_policy.load(Ordering::Relaxed);
    server.resume().unwrap();
    let (resumed, decided) = (Instant::now(), counts.by_store.load(Ordering::Relaxed));
    until("the store decides", || counts.by_store.load(Ordering::Relaxed) > decided + CALLERS).await;
    let back = resumed.elapsed();
    counts.is_over.store(true, Ordering::Relaxed);
    callers.join_all().await;

    let mega = |bytes: u64| bytes >> 20;
    let table = format!(
        "\nstopped for {stopped:.1?} under {CALLERS} callers: {refused} refused ({} timeouts, {} otherwise), {} MB before, {} MB \
         at most, {} MB in the end, back in {} ms\n",
        counts.timeouts.load(Ordering::Relaxed),
        counts.others.load(Ordering::Relaxed),
        mega(before),
        mega(most),
        mega(resident()),
        back.as_millis(),
    );
    // `println!` prints nothing if a test passes.
    std::io::stdout().write_all(table.as_bytes()).unwrap();
    assert!(most - before <= MOST, "{} MB more", mega(most - before));
}

/// The resident memory of the process, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    let kilo: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kilo << 10
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("not in a minute: {what}");
}
