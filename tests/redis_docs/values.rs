//! The examples of stored values in the documentation of tollgate-redis, on real servers.

use std::time::Duration;

use tollgate::calendar::CalendarWindow;
use tollgate::store::{Check, Grant, Stamp, Store, Times};
use tollgate::{Algorithm, Key, ManualClock, Policy, Quota, Timestamp};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};

const DOCS: &str = include_str!("../../crates/tollgate-redis/docs/stored-values.md");

/// Seconds since the epoch at which each example begins.
const START: u64 = 1_767_225_600;

struct Caller {
    store: RedisStore,
    time: ManualClock,
    policy: Policy,
    key: Key,
}

impl Caller {
    async fn new(server: &Server, name: &str, limit: u64, algorithm: Algorithm) -> Caller {
        Caller::with(server, name, limit, algorithm, SlidingLogLayout::List).await
    }

    async fn with(
        server: &Server,
        name: &str,
        limit: u64,
        algorithm: Algorithm,
        layout: SlidingLogLayout,
    ) -> Caller {
        let time = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
        let store = RedisStore::builder(&server.url()).clock(&time).sliding_log(layout);
        Caller {
            store: store.connect().await.expect("a store"),
            time,
            policy: Policy::new(name, Quota::per_minute(limit)).with_algorithm(algorithm),
            key: Key::network("192.0.2.1".parse().expect("an address"), 64),
        }
    }

    /// Charges `units`, so many seconds after the start.
    async fn charge(&self, seconds: u64, units: u64) -> Stamp {
        self.time.set(Timestamp::from_micros((START + seconds) * 1_000_000));
        let verdict =
            self.store.acquire(&[Check::new(&self.policy, &self.key, units)], Times::ONCE).wait().await;
        let verdict = verdict.expect("an answer");
        assert!(verdict.is_granted());
        verdict.each()[0].stamp()
    }

    /// The units in use, so many seconds after the start.
    async fn used(&self, seconds: u64) -> u64 {
        self.time.set(Timestamp::from_micros((START + seconds) * 1_000_000));
        let look = self.store.acquire(&[Check::new(&self.policy, &self.key, 1)], Times::LOOK).wait().await;
        self.policy.capacity() - look.expect("an answer").each()[0].remaining()
    }
}

/// Writes every key that the examples read, and compares the units in use.
async fn prepare(server: &Server) {
    let bucket = Caller::new(server, "api", 100, Algorithm::Gcra).await;
    bucket.charge(0, 3).await;
    assert_eq!(bucket.used(0).await, 3);
    Caller::new(server, "seven", 7, Algorithm::Gcra).await.charge(0, 1).await;

    let mut edited = Caller::new(server, "edited", 1, Algorithm::Gcra).await;
    edited.policy = Policy::new("edited", Quota::per_hour(10).burst(50));
    edited.charge(0, 50).await;
    edited.policy = Policy::new("edited", Quota::per_hour(600).burst(50));
    let asked = edited.store.acquire(&[Check::new(&edited.policy, &edited.key, 1)], Times::ONCE).wait().await;
    assert!(!asked.expect("an answer").is_granted());
    assert_eq!((edited.used(0).await, edited.used(300).await), (50, 0));

    let mut tracked = Caller::new(server, "tracked", 100, Algorithm::Gcra).await;
    tracked.policy = tracked.policy.track_usage();
    tracked.charge(0, 3).await;

    let fixed = Caller::new(server, "api", 100, Algorithm::FIXED_WINDOW).await;
    fixed.charge(0, 3).await;
    assert_eq!((fixed.used(59).await, fixed.used(60).await), (3, 0));

    let mut monthly = Caller::new(server, "monthly", 100, Algorithm::Gcra).await;
    monthly.policy = CalendarWindow::month("UTC").policy("monthly", 100);
    monthly.charge(0, 3).await;
    let last = 31 * 86_400 - 1;
    assert_eq!((monthly.used(last).await, monthly.used(last + 1).await), (3, 0));

    let mut blocked = Caller::new(server, "api", 100, Algorithm::Gcra).await;
    let block = blocked.policy.clone().block_after(1, Duration::from_secs(900)).numbers().block();
    blocked.policy = block.and_then(|block| block.numbers().with_debt()).expect("a block");
    blocked.charge(0, 1).await;

    let sliding = Caller::new(server, "api", 100, Algorithm::SlidingWindow).await;
    for (seconds, units) in [(0, 3), (0, 40), (60, 5)] {
        sliding.charge(seconds, units).await;
    }
    assert_eq!(sliding.used(75).await, 38);

    for layout in [SlidingLogLayout::List, SlidingLogLayout::SortedSet] {
        let log = Caller::with(server, "api", 100, Algorithm::SLIDING_LOG, layout).await;
        log.charge(0, 3).await;
        log.charge(1, 2).await;
        assert_eq!((log.used(59).await, log.used(60).await, log.used(61).await), (5, 2, 0));
    }
    let later = Caller::new(server, "later", 100, Algorithm::SLIDING_LOG).await;
    for (seconds, units) in [(0, 3), (1, 2), (60, 1)] {
        later.charge(seconds, units).await;
    }
    assert_eq!(later.used(60).await, 3);
    // Units that come back leave no trace.
    let back = Caller::new(server, "back", 100, Algorithm::SLIDING_LOG).await;
    let stamp = back.charge(0, 3).await;
    back.charge(1, 2).await;
    let grant = Grant { policy: &back.policy, key: &back.key, units: 1, stamp, share: None };
    back.store.refund(&[grant]).await.expect("an answer");
    assert_eq!(back.used(1).await, 4);

    let ring = Caller::new(server, "api", 100, Algorithm::SLIDING_BUCKETS).await;
    ring.charge(0, 3).await;
    ring.charge(6, 2).await;
    assert_eq!((ring.used(65).await, ring.used(66).await), (5, 2));
}

/// An answer as `redis-cli` prints it.
fn printed(command: &str, answer: &str) -> String {
    if command.starts_with("GET") {
        return format!("\"{answer}\"");
    }
    let lines = (1..).zip(answer.lines()).map(|(n, line)| format!("{n}) \"{line}\""));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn stored_values_are_as_documented() {
    let blocks: Vec<&str> =
        DOCS.split("```text\n> ").skip(1).map(|rest| rest.split_once("\n```").expect("its end").0).collect();
    assert_eq!(blocks.len(), 13);
    for kind in Kind::EVERY {
        let server = Server::start(*kind).expect("a server");
        prepare(&server).await;
        for block in &blocks {
            let (command, documented) = block.split_once('\n').expect("an answer");
            let words: Vec<&str> = command.split(' ').collect();
            let answer = server.command(&words).expect("an answer");
            assert_eq!(printed(command, &answer), documented, "{command} on {kind}");
        }
    }
}
