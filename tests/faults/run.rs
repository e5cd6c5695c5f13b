//! A fault and its policies: many callers of each layer, before, during and after the fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::store::Source;
use tollgate::store::{Check, ErrorKind, Store, Times};
use tollgate::{Algorithm, Key, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_redis::RedisStore;
use tollgate_tests::{lateness, serve, user};

use crate::faults::caller::{Caller, Seen, Way, name};
use crate::faults::fault::Fault;
use crate::faults::policy::{Guard, Heard};
use crate::faults::scene::{ADA, Scene};

/// The quota of each user. None of it comes back within a test.
pub(crate) const LIMIT: u64 = 150;

/// The number of callers in each cell.
const CALLERS: u32 = 8;

/// Between two requests of a caller.
const PAUSE: Duration = Duration::from_millis(25);

/// Longer than anything takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) fn policy() -> Policy {
    Policy::new("p", Quota::per_day(LIMIT)).with_algorithm(Algorithm::FIXED_WINDOW)
}

/// One policy under one fault.
pub(crate) struct Cell {
    pub(crate) guard: Guard,
    pub(crate) heard: Arc<Heard>,
    pub(crate) seen: Vec<Seen>,
    /// What is charged to ada in the end.
    pub(crate) used_by_ada: u64,
    /// What is charged in the end to each of the others.
    pub(crate) used_by_others: Vec<u64>,
    /// From the fault's end to the first decision of the store.
    pub(crate) back_after: Duration,
    /// The same from the breaker's probe, if one was needed.
    pub(crate) back_after_probe: Option<Duration>,
}

/// All policies under one fault.
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) way: Way,
    pub(crate) begun: Instant,
    pub(crate) ending: Instant,
    /// The lateness of tasks that only sleep, at the 95th percentile.
    pub(crate) lateness: Duration,
    pub(crate) cells: Vec<Cell>,
}

/// State that callers share with the test.
#[derive(Default)]
struct Progress {
    is_over: AtomicBool,
    next_user: AtomicU32,
    requests: AtomicU32,
    granted_to_ada: AtomicU32,
    denied_to_ada: AtomicU32,
}

struct Running {
    guard: Guard,
    heard: Arc<Heard>,
    progress: Arc<Progress>,
    prefix: String,
    callers: JoinSet<Vec<Seen>>,
}

pub(crate) async fn run(fault: Fault, way: Way) -> Row {
    let mut scene = Scene::of(fault).await;
    let is_over = Arc::<AtomicBool>::default();
    let sleepers = tokio::spawn(lateness(CALLERS, PAUSE, Arc::clone(&is_over)));
    let mut cells = Vec::new();
    for (n, guard) in Guard::EVERY.into_iter().enumerate() {
        cells.push(start(&scene.url, fault, guard, format!("cell{n}"), way).await);
    }
    until(&cells, "the store decides", |cell| cell.progress.granted_to_ada.load(Ordering::Relaxed) >= 20)
        .await;

    scene.begin().await;
    let begun = Instant::now();
    let before: Vec<u32> = cells.iter().map(|cell| cell.progress.requests.load(Ordering::Relaxed)).collect();
    while begun.elapsed() < fault.lasts() {
        scene.goes_on();
        sleep(Duration::from_millis(20)).await;
    }
    for (cell, before) in cells.iter().zip(before) {
        let more = |cell: &Running| cell.progress.requests.load(Ordering::Relaxed) >= before + 3 * CALLERS;
        until(std::slice::from_ref(cell), "requests during the fault", more).await;
    }
    if fault == Fault::PasswordSet {
        // A breaker that the killed connections have opened probes only now and then.
        let is_told = |cell: &Running| cell.heard.failed(ErrorKind::Misconfigured) > 0;
        until(&cells, "whoever watches is told that it is misconfigured", is_told).await;
    }
    // Before the end, because some faults end by themselves before the test knows.
    cells.iter().for_each(|cell| cell.heard.watch_for_the_store());
    let ending = Instant::now();
    scene.end().await;
    let ended = Instant::now();
    until(&cells, "the store is back", |cell| cell.heard.back().is_some()).await;
    until(&cells, "ada has used up her quota", |cell| {
        cell.progress.denied_to_ada.load(Ordering::Relaxed) >= 10
    })
    .await;
    assert!(scene.has_come_about(), "{} has not come about", fault.name());

    is_over.store(true, Ordering::Relaxed);
    let lateness = sleepers.await.expect("the sleepers end");
    let mut row = Row { fault, way, begun, ending, lateness, cells: Vec::new() };
    for cell in cells {
        let back = cell.heard.back().expect("it is back");
        cell.progress.is_over.store(true, Ordering::Relaxed);
        // A caller that panicked fails the test here.
        let seen: Vec<Seen> = cell.callers.join_all().await.into_iter().flatten().collect();
        let store = connect(&scene.url, &cell.prefix, PATIENCE).await;
        let users = cell.progress.next_user.load(Ordering::Relaxed);
        row.cells.push(Cell {
            guard: cell.guard,
            heard: cell.heard,
            seen,
            used_by_ada: used(&store, &[Key::from(ADA)]).await[0],
            used_by_others: used(&store, &(0..users).map(|n| Key::from(&*name(n))).collect::<Vec<_>>()).await,
            back_after: back.at.saturating_duration_since(ended),
            back_after_probe: back.probed.map(|at| back.at - at),
        });
    }
    row
}

async fn start(url: &str, fault: Fault, guard: Guard, prefix: String, way: Way) -> Running {
    let heard = Arc::<Heard>::default();
    // One second is the default.
    let patience = fault.timeout().max(Duration::from_secs(1));
    let store = guard.around(connect(url, &prefix, patience).await, fault.timeout(), &heard);
    let layer = RateLimitLayer::new([policy().by(user())]).store(store);
    let progress = Arc::<Progress>::default();
    let server = match way {
        Way::InProcess => None,
        Way::Sockets => {
            Some(serve(Router::new().route("/", get(|| async { "hello" })).layer(layer.clone())).await)
        }
    };
    let mut callers = JoinSet::new();
    for n in 0..CALLERS {
        let mut caller = Caller::new(&layer, server).await;
        let progress = Arc::clone(&progress);
        callers.spawn(async move {
            // Callers start at different times.
            sleep(PAUSE * n / CALLERS).await;
            let mut seen = Vec::new();
            while !progress.is_over.load(Ordering::Relaxed) {
                let user = (seen.len() % 2 == 1).then(|| progress.next_user.fetch_add(1, Ordering::Relaxed));
                let one = caller.ask(user).await;
                progress.note(&one);
                seen.push(one);
                sleep(PAUSE).await;
            }
            seen
        });
    }
    Running { guard, heard, progress, prefix, callers }
}

impl Progress {
    fn note(&self, seen: &Seen) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if (seen.user, seen.by) == (None, Source::Store) {
            let counter = if seen.status == 200 { &self.granted_to_ada } else { &self.denied_to_ada };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A store that gives up a connection that is silent for so long.
async fn connect(url: &str, prefix: &str, patience: Duration) -> RedisStore {
    let builder = RedisStore::builder(url).prefix(prefix);
    builder.connect_timeout(patience).response_timeout(patience).connect().await.expect("a store")
}

/// What is charged to each key.
async fn used(store: &RedisStore, keys: &[Key]) -> Vec<u64> {
    let policy = policy();
    let looks: Vec<_> =
        keys.iter().map(|key| store.acquire(&[Check::new(&policy, key, 1)], Times::LOOK)).collect();
    let mut used = Vec::new();
    for look in looks {
        let verdict = look.wait().await.expect("the store answers again");
        used.push(LIMIT - verdict.each()[0].remaining());
    }
    used
}

async fn until(cells: &[Running], what: &str, is_so: impl Fn(&Running) -> bool) {
    let all = async {
        while !cells.iter().all(&is_so) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    if timeout(PATIENCE, all).await.is_err() {
        let left: Vec<String> = cells
            .iter()
            .filter(|cell| !is_so(cell))
            .map(|cell| format!("{} {:?}", cell.guard, cell.heard))
            .collect();
        panic!("not in {PATIENCE:?}: {what}: {left:#?}");
    }
}
