//! The bytes of a key in Redis and Valkey, by `MEMORY USAGE` and by the growth of `used_memory` per
//! key. The documentation of tollgate-redis has the table that this prints:
//! `cargo test -p tollgate-tests --test over_redis redis_docs::memory -- --nocapture`

use std::time::Duration;

use tollgate::store::{Check, Store, Times};
use tollgate::{Algorithm, Key, ManualClock, Policy, Quota};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::clock;

/// A server, and stores in it.
struct Bench {
    server: Server,
    time: ManualClock,
    lists: RedisStore,
    sets: RedisStore,
}

impl Bench {
    async fn new(kind: Kind) -> Bench {
        let (server, time) = (Server::start(kind).expect("a server"), clock());
        let store = |layout| RedisStore::builder(&server.url()).clock(&time).sliding_log(layout).connect();
        let lists = store(SlidingLogLayout::List).await.expect("a store");
        let sets = store(SlidingLogLayout::SortedSet).await.expect("a store");
        Bench { server, time, lists, sets }
    }

    /// Charges a caller `units` times at even distances over `span`. Returns the bytes of its key.
    async fn bytes(&self, store: &RedisStore, policy: &Policy, units: u64, span: Duration) -> Bytes {
        let key = Key::network("192.0.2.1".parse().expect("an address"), 64);
        self.flush();
        for unit in 0..units {
            if unit > 0 {
                self.time.advance(span / u32::try_from(units).expect("few units"));
            }
            let verdict = store.acquire(&[Check::new(policy, &key, 1)], Times::ONCE).wait().await;
            assert!(verdict.expect("an answer").is_granted(), "{policy:?}");
        }
        let name = self.server.command(&["KEYS", "tollgate:2:{@192.0.2.1}:*"]).expect("names");
        assert!(!name.is_empty() && !name.contains('\n'), "one key: {name}");
        let bytes = self.bytes_of(&name);
        store.reset(&key, &[policy]).await.expect("an answer");
        bytes
    }

    /// The bytes of a counter of that name with an end: the minimum for any key.
    fn counter(&self, name: &str) -> Bytes {
        self.flush();
        self.server.command(&["SET", name, "100", "PX", "3600000"]).expect("OK");
        let bytes = self.bytes_of(name);
        self.server.command(&["DEL", name]).expect("1");
        bytes
    }

    fn bytes_of(&self, name: &str) -> Bytes {
        let usage = self.server.command(&["MEMORY", "USAGE", name, "SAMPLES", "0"]).expect("a number");
        let usage = usage.parse().expect("a number");
        let copies: u64 = if usage < 10_000 { 10_000 } else { 200 };
        let before = self.used_memory();
        // Names of the same length.
        let copy = "for i = 1, ARGV[1] do
                      local name = string.sub(KEYS[1], 1, -6) .. string.format('%05d', i)
                      redis.call('COPY', KEYS[1], name, 'REPLACE')
                    end
                    return 0";
        self.server.command(&["EVAL", copy, "1", name, &copies.to_string()]).expect("0");
        let growth = (self.used_memory() - before) / copies;
        let remove = "for i = 1, ARGV[1] do
                        redis.call('DEL', string.sub(KEYS[1], 1, -6) .. string.format('%05d', i))
                      end
                      return 0";
        self.server.command(&["EVAL", remove, "1", name, &copies.to_string()]).expect("0");
        Bytes { usage, growth }
    }

    /// Leaves no key, and no large hash table.
    fn flush(&self) {
        self.server.command(&["FLUSHALL"]).expect("OK");
    }

    fn used_memory(&self) -> u64 {
        let info = self.server.command(&["INFO", "memory"]).expect("a text");
        let bytes = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("a field");
        bytes.trim().parse().expect("a number")
    }

    fn version(&self) -> String {
        let info = self.server.command(&["INFO", "server"]).expect("a text");
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        match (field("valkey_version:"), field("redis_version:")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, version) => format!("Redis {}", version.unwrap_or_default()),
        }
    }
}

/// The bytes of one key.
struct Bytes {
    /// By `MEMORY USAGE`.
    usage: u64,
    /// The growth of `used_memory` per key.
    growth: u64,
}

/// Of a key whose name has 56 bytes, for every algorithm.
fn policy(algorithm: Algorithm, layout: SlidingLogLayout) -> Policy {
    let policy = |name: &str| Policy::new(name, Quota::per_minute(1_000)).with_algorithm(algorithm);
    let suffix = match (algorithm, layout) {
        (Algorithm::SlidingLog { .. }, SlidingLogLayout::SortedSet) => "~sums~sorted-set",
        (Algorithm::SlidingLog { .. } | Algorithm::SlidingBuckets { .. }, _) => "~sums",
        _ => "",
    };
    let rest = format!("tollgate:2:{{@192.0.2.1}}:{}{suffix}", policy("x").scope()).len();
    policy(&"x".repeat(57 - rest))
}

const MINUTE: Duration = Duration::from_secs(60);

/// The state of a caller, by each algorithm.
async fn rows(bench: &Bench) -> Vec<(&'static str, Bytes)> {
    let leaky = Algorithm::LeakyBucket { max_wait: MINUTE };
    // Less than a window, because the oldest entries would expire.
    let (at_once, spread) = (Duration::ZERO, MINUTE / 2);
    let list = async |algorithm, units, span| {
        bench.bytes(&bench.lists, &policy(algorithm, SlidingLogLayout::List), units, span).await
    };
    let set = async |units| {
        bench
            .bytes(&bench.sets, &policy(Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet), units, spread)
            .await
    };
    vec![
        ("a counter with a TTL", bench.counter(&"x".repeat(56))),
        ("`Gcra`", list(Algorithm::Gcra, 10, at_once).await),
        ("`LeakyBucket`", list(leaky, 10, at_once).await),
        ("`FixedWindow`", list(Algorithm::FIXED_WINDOW, 10, at_once).await),
        ("`SlidingWindow`", list(Algorithm::SlidingWindow, 100, 2 * MINUTE).await),
        ("`SlidingBuckets`, 1 of 11 in use", list(Algorithm::SLIDING_BUCKETS, 10, at_once).await),
        ("`SlidingBuckets`, all in use", list(Algorithm::SLIDING_BUCKETS, 100, MINUTE).await),
        ("`SlidingLog`, 10 runs", list(Algorithm::SLIDING_LOG, 10, spread).await),
        ("`SlidingLog`, 100 runs", list(Algorithm::SLIDING_LOG, 100, spread).await),
        ("`SlidingLog`, 1,000 runs", list(Algorithm::SLIDING_LOG, 1_000, spread).await),
        ("the same as a sorted set, 10 runs", set(10).await),
        ("the same as a sorted set, 100 runs", set(100).await),
        ("the same as a sorted set, 1,000 runs", set(1_000).await),
    ]
}

#[tokio::test]
async fn bytes_per_key_are_as_documented() {
    let mut table: Vec<String> = Vec::new();
    for kind in Kind::EVERY {
        let bench = Bench::new(*kind).await;
        let rows = rows(&bench).await;
        table.resize(rows.len() + 2, "|".to_owned());
        if table[0].len() == 1 {
            table[0] += " bytes a key |";
            table[1] += "---|";
            for (line, (name, _)) in table[2..].iter_mut().zip(&rows) {
                *line += &format!(" {name} |");
            }
        }
        table[0] += &format!(" {} |", bench.version());
        table[1] += "--:|";
        for (line, (_, bytes)) in table[2..].iter_mut().zip(&rows) {
            *line += &format!(" {} ({}) |", bytes.usage, bytes.growth);
        }
    }
    println!("{}", table.join("\n"));
}

#[tokio::test]
async fn a_gcra_key_takes_no_more_than_a_counter() {
    for kind in Kind::EVERY {
        let bench = Bench::new(*kind).await;
        // These two use the allocator of the C library, which may round a name up by a few bytes.
        let chunk = if matches!(kind, Kind::Redis6_2 | Kind::Valkey9_1) { 16 } else { 0 };
        // Valkey keeps a value as text until it is incremented.
        let as_text = if *kind == Kind::Valkey9_1 { 32 } else { 0 };
        for (quota, window, is_whole) in [
            (Quota::per_second(10), "1s", true),
            (Quota::per_second(1_000), "1s", true),
            (Quota::per_minute(100).burst(20), "1m", true),
            (Quota::per_hour(1_000), "1h", true),
            (Quota::per_day(5_000), "1d", true),
            // A third of a second, and a seventh of a minute, are not whole microseconds. So these
            // are written with `SET` each time.
            (Quota::per_second(3), "1s", false),
            (Quota::per_minute(7), "1m", false),
        ] {
            let policy = Policy::new("api", quota);
            let counter = bench.counter(&format!("tollgate:2:{{@192.0.2.1}}:api~gcra~{window}")).usage;
            let first = bench.bytes(&bench.lists, &policy, 1, Duration::ZERO).await.usage;
            assert!(
                first <= counter + chunk + as_text,
                "{kind}, {quota:?}: {first} bytes, a counter {counter}"
            );
            let later = bench.bytes(&bench.lists, &policy, 3, Duration::ZERO).await.usage;
            let text = if is_whole { 0 } else { as_text };
            assert!(later <= counter + chunk + text, "{kind}, {quota:?}: {later} bytes, a counter {counter}");
        }
    }
}
