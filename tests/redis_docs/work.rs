//! What a check costs a server, in commands and in entries read, as `MONITOR` reports it. The
//! documentation of tollgate-redis has the table.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use tollgate::store::Boundaries;
use tollgate::store::{Check, Grant, Stamp, Store, Times};
use tollgate::{Algorithm, Key, ManualClock, Policy, Quota, Timestamp};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::clock;

const DOCS: &str = include_str!("../../crates/tollgate-redis/src/lib.rs");

const WINDOW: Duration = Duration::from_secs(1_000);

/// What each policy allows, and the largest cost.
const LIMIT: u64 = 100_000;

/// What a server did for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    commands: u32,
    /// Of a log: a time and a text. Of others, a value.
    read: u32,
}

impl Work {
    fn most(self, other: Work) -> Work {
        Work { commands: self.commands.max(other.commands), read: self.read.max(other.read) }
    }
}

/// A server that is watched, and a store in it.
struct Watched {
    server: Server,
    monitor: BufReader<TcpStream>,
    marks: u32,
    time: ManualClock,
    store: RedisStore,
    layout: SlidingLogLayout,
}

impl Watched {
    async fn new(layout: SlidingLogLayout) -> Watched {
        let (server, time) = (Server::start(Kind::Redis8_2).expect("a server"), clock());
        let store = RedisStore::builder(&server.url()).clock(&time).sliding_log(layout);
        let store = store.connect().await.expect("a store");
        let mut stream = TcpStream::connect(server.address()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream.write_all(b"MONITOR\r\n").expect("a command is sent");
        let mut monitor = BufReader::new(stream);
        monitor.read_line(&mut String::new()).expect("OK");
        Watched { server, monitor, marks: 0, time, store, layout }
    }

    /// The commands of scripts since the last call of this function.
    fn work(&mut self) -> Work {
        self.marks += 1;
        let mark = format!("mark{}", self.marks);
        self.server.command(&["ECHO", &mark]).expect("an echo");
        let mut work = Work::default();
        loop {
            let mut line = String::new();
            self.monitor.read_line(&mut line).expect("a line");
            if line.contains(&mark) {
                return work;
            }
            let Some((_, command)) = line.split_once("lua] ") else { continue };
            let words = command.split_whitespace().map(|word| word.trim_matches('"'));
            let words: Vec<&str> = words.take(4).collect();
            work.commands += 1;
            let span = || words[3].parse::<u32>().unwrap_or(0) - words[2].parse::<u32>().unwrap_or(0) + 1;
            work.read += match words[0].to_uppercase().as_str() {
                "LRANGE" | "ZRANGE" if words[2].starts_with('-') => 1,
                "LRANGE" => span() / 2,
                "ZRANGE" => span(),
                "LINDEX" | "MGET" => 1,
                _ => 0,
            };
        }
    }

    async fn acquire(&mut self, policy: &Policy, cost: u64, times: Times) -> (bool, Stamp, Work) {
        self.work();
        let key = Key::from("ada");
        let verdict = self.store.acquire(&[Check::new(policy, &key, cost)], times).wait().await;
        let verdict = verdict.expect("an answer");
        (verdict.is_granted(), verdict.each()[0].stamp(), self.work())
    }

    async fn refund(&mut self, policy: &Policy, units: u64, stamp: Stamp) -> Work {
        self.work();
        let key = Key::from("ada");
        let grant = Grant { policy, key: &key, units, stamp, share: None };
        self.store.refund(&[grant]).await.expect("an answer");
        self.work()
    }

    /// Fills a key with `LIMIT` units in so many runs at even distances, of which `over` have
    /// expired. Returns their stamps.
    async fn fill(&mut self, policy: &Policy, runs: u32, over: u32) -> Vec<Stamp> {
        let key = Key::from("ada");
        self.store.reset(&key, &[policy]).await.expect("an answer");
        let span = match policy.algorithm() {
            Algorithm::SlidingBuckets { buckets } => micros(WINDOW).div_ceil(buckets.into()),
            _ => 1,
        };
        let slots = micros(WINDOW) / span;
        // Begins with a sub-window.
        let now = self.time.now().as_micros().next_multiple_of(span);
        self.time.set(Timestamp::from_micros(now));
        assert!(self.acquire(policy, 1, Times::ONCE).await.0);
        let name = self.server.command(&["KEYS", "*"]).expect("a name");

        let distance = slots / u64::from(runs);
        let newest = now / span;
        let oldest = newest - distance * u64::from(runs - 1);
        let add = if self.layout == SlidingLogLayout::SortedSet { "ZADD" } else { "RPUSH" };
        // A thousand runs in a command: the monitor repeats each command.
        let script = format!(
            "redis.call('DEL', KEYS[1])
             local runs = {{}}
             for i = 1, ARGV[1] do
               runs[#runs + 1] = string.format('%.0f', ARGV[2] + (i - 1) * ARGV[3])
               runs[#runs + 1] = i * ARGV[4]
               if #runs == 2000 or i == tonumber(ARGV[1]) then
                 redis.call('{add}', KEYS[1], unpack(runs))
                 runs = {{}}
               end
             end
             return redis.call('PEXPIRE', KEYS[1], 36000000)"
        );
        let numbers = [u64::from(runs), oldest, distance, LIMIT / u64::from(runs)].map(|one| one.to_string());
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let eval = [&["EVAL", &script, "1", &name], &*numbers].concat();
        assert_eq!(self.server.command(&eval).expect("a number"), "1");

        // The oldest run expires a window after its time; in a ring, after its sub-window.
        let window = if span > 1 { slots + 1 } else { slots };
        let ahead = if over == 0 { 0 } else { oldest + u64::from(over - 1) * distance + window - newest };
        self.time.advance(Duration::from_micros(ahead * span));
        (0..u64::from(runs)).map(|run| Stamp::new(oldest + run * distance, 0)).collect()
    }

    /// The most work for a check, over states of so many runs.
    async fn of_log(&mut self, policy: &Policy, runs: u32) -> Row {
        let mut row = Row::default();
        for was_refunded in [false, true] {
            for over in [0, 1, runs / 2, runs - 1] {
                let stamps = self.fill(policy, runs, over).await;
                if was_refunded {
                    for stamp in stamps.iter().step_by(runs.div_ceil(40) as usize) {
                        self.refund(policy, 1, *stamp).await;
                    }
                }
                for cost in [1, LIMIT / 2, LIMIT] {
                    row.look = row.look.most(self.acquire(policy, cost, Times::LOOK).await.2);
                }
                for cost in [LIMIT / 2, LIMIT] {
                    let (is_granted, _, work) = self.acquire(policy, cost, Times::ONCE).await;
                    if is_granted {
                        row.charge = row.charge.most(work);
                    } else {
                        row.denial = row.denial.most(work);
                    }
                }
                // One in part, one whole, and the newest one whole.
                let newest = stamps.len() - 1;
                // As old as can be refunded.
                let (part, whole) = (newest - (newest / 4).min(1_023), newest - (newest / 3).min(1_022));
                for (at, units) in [(part, 1), (whole, LIMIT), (newest, LIMIT)] {
                    row.refund = row.refund.most(self.refund(policy, units, stamps[at]).await);
                }
                let (is_granted, _, work) = self.acquire(policy, 1, Times::ONCE).await;
                assert!(is_granted);
                row.charge = row.charge.most(work);
            }
        }
        row
    }

    /// The most work for a check of a policy whose state is a value.
    async fn of_value(&mut self, policy: &Policy) -> Row {
        let mut row = Row::default();
        for (cost, rest) in [(1, 1), (1, 99_998), (LIMIT - 1, 1), (LIMIT, 1)] {
            let key = Key::from("ada");
            self.store.reset(&key, &[policy]).await.expect("an answer");
            let (is_granted, stamp, work) = self.acquire(policy, cost, Times::ONCE).await;
            assert!(is_granted);
            row.charge = row.charge.most(work);
            row.look = row.look.most(self.acquire(policy, rest, Times::LOOK).await.2);
            row.charge = row.charge.most(self.acquire(policy, rest, Times::ONCE).await.2);
            let (is_granted, _, work) = self.acquire(policy, LIMIT, Times::ONCE).await;
            assert!(!is_granted);
            row.denial = row.denial.most(work);
            row.refund = row.refund.most(self.refund(policy, cost, stamp).await);
        }
        row
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).expect("a span")
}

/// The work of each kind of request.
#[derive(Default)]
struct Row {
    charge: Work,
    denial: Work,
    look: Work,
    refund: Work,
}

/// The policies whose state is a log of runs, in each layout.
const LOGS: [(Algorithm, SlidingLogLayout); 3] = [
    (Algorithm::SLIDING_LOG, SlidingLogLayout::List),
    (Algorithm::SLIDING_LOG, SlidingLogLayout::SortedSet),
    (Algorithm::SlidingBuckets { buckets: 1_000 }, SlidingLogLayout::List),
];

#[tokio::test]
async fn a_large_cost_takes_no_more_commands_than_a_cost_of_one() {
    for (algorithm, layout) in LOGS {
        let mut watched = Watched::new(layout).await;
        let policy = Policy::new("p", Quota::new(LIMIT, WINDOW)).with_algorithm(algorithm);
        let mut works = Vec::new();
        for cost in [1, LIMIT] {
            let key = Key::from("ada");
            watched.store.reset(&key, &[&policy]).await.expect("an answer");
            let (is_granted, stamp, charge) = watched.acquire(&policy, cost, Times::ONCE).await;
            assert!(is_granted);
            let look = watched.acquire(&policy, LIMIT, Times::LOOK).await.2;
            works.push((charge, look, watched.refund(&policy, cost, stamp).await));
        }
        assert_eq!(works[0], works[1], "{policy:?} {layout:?}");
    }
}

/// The rows of the documented table, measured.
async fn measured() -> Vec<String> {
    let ring = |buckets| Algorithm::SlidingBuckets { buckets };
    let (list, set) = (SlidingLogLayout::List, SlidingLogLayout::SortedSet);
    let leaky = Algorithm::LeakyBucket { max_wait: Duration::ZERO };
    let mut rows = Vec::new();
    for (name, algorithm, layout, runs) in [
        ("`Gcra`", Algorithm::Gcra, list, None),
        ("`LeakyBucket`", leaky, list, None),
        ("`FixedWindow`", Algorithm::FIXED_WINDOW, list, None),
        ("`CalendarWindow`", Algorithm::CalendarWindow { boundaries: Boundaries::NONE }, list, None),
        ("`SlidingWindow`", Algorithm::SlidingWindow, list, None),
        ("`SlidingBuckets` of 10", ring(10), list, Some(10)),
        ("`SlidingBuckets` of 1,000", ring(1_000), list, Some(1_000)),
        ("`SlidingLog`, 10 runs", Algorithm::SLIDING_LOG, list, Some(10)),
        ("`SlidingLog`, 100,000 runs", Algorithm::SLIDING_LOG, list, Some(100_000)),
        ("the same as a sorted set, 10 runs", Algorithm::SLIDING_LOG, set, Some(10)),
        ("the same as a sorted set, 100,000 runs", Algorithm::SLIDING_LOG, set, Some(100_000)),
    ] {
        let mut watched = Watched::new(layout).await;
        let mut quota = Quota::new(LIMIT, WINDOW);
        if matches!(algorithm, Algorithm::LeakyBucket { .. }) {
            quota = quota.burst(LIMIT);
        }
        let policy = Policy::new("p", quota).with_algorithm(algorithm);
        let row = match runs {
            Some(runs) => watched.of_log(&policy, runs).await,
            None => watched.of_value(&policy).await,
        };
        let cell = |work: Work| format!("{} ({})", work.commands, work.read);
        let cells = [row.charge, row.denial, row.look, row.refund].map(cell);
        rows.push(format!("| {name} | {} |", cells.join(" | ")));
    }
    rows
}

#[tokio::test]
async fn a_check_costs_the_server_no_more_than_documented() {
    let rows = measured().await;
    let documented: Vec<&str> = DOCS
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .skip_while(|line| !line.starts_with("| commands (entries read)"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(documented, rows, "measured:\n{}", rows.join("\n"));
}
