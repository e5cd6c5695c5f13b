//! Calls that carry many checks. They cost less than as many single calls and decide the same.

use std::time::Duration;

use tollgate::store::{Check, Store, Times, Verdict};
use tollgate::time::Clock;
use tollgate::{Algorithm, Key, ManualClock, MemoryStore, Policy, Quota, Timestamp, Wait};
use tollgate_conformance::random::Random;
use tollgate_redis::{RedisStoreBuilder, SlidingLogLayout};
use tollgate_test_servers::{Kind, Server};

use crate::redis::{BothLayouts, Fresh, crowd, every_policy, shared, used};

const KEYS: u32 = 60;
const ROUNDS: u32 = 40;

/// Asks for all keys at once, and returns their verdicts. After `crowd` one call carries all of
/// them.
async fn ask(fresh: &Fresh, policy: &Policy, keys: &[String], cost: u64, times: Times) -> Vec<Verdict> {
    let ask =
        |key: &String| fresh.store.acquire(&[Check::new(policy, &Key::from(key.as_str()), cost)], times);
    // All are queued before the runtime sends any.
    let replies: Vec<_> = keys.iter().map(ask).collect();
    let mut verdicts = Vec::new();
    for reply in replies {
        verdicts.push(reply.wait().await.unwrap());
    }
    verdicts
}

fn numbered(count: u32) -> Vec<String> {
    (0..count).map(|n| n.to_string()).collect()
}

/// How often clients and scripts have run a command since the last `CONFIG RESETSTAT`.
pub(crate) fn calls(server: &Server, command: &str) -> u32 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let found = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    found.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// A store in Redis and one in memory, with the same clock.
struct Both<'a> {
    redis: &'a Fresh,
    model: &'a MemoryStore,
}

impl Both<'_> {
    /// Asks both, and compares their verdicts.
    async fn agree(&self, policy: &Policy, keys: &[String], cost: u64, times: Times) {
        crowd(&self.redis.store).await;
        let told = ask(self.redis, policy, keys, cost, times).await;
        for (key, told) in keys.iter().zip(told) {
            let asked = Key::from(key.as_str());
            let expected = self.model.acquire(&[Check::new(policy, &asked, cost)], times);
            let expected = expected.wait().await.unwrap();
            let what = format!("{key} of {policy:?}, cost {cost} {times:?}, in a call of {}", keys.len());
            assert_eq!(told.times(), expected.times(), "{what}");
            assert_eq!(told.delay(), expected.delay(), "{what}");
            let (told, expected) = (told.each()[0], expected.each()[0]);
            assert_eq!(told.remaining(), expected.remaining(), "{what}");
            assert_eq!(told.wait(), expected.wait(), "{what}");
            assert_eq!(told.reset_after(), expected.reset_after(), "{what}");
        }
    }
}

/// Mixes keys with room, full keys, old keys, new keys and foreign values in all proportions. A
/// store in memory decides the same checks one by one.
#[tokio::test]
async fn checks_that_share_a_call_are_decided_as_if_alone() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let time = ManualClock::new(Timestamp::from_micros(1_700_000_000_123_457));
        let clocked = |builder: RedisStoreBuilder| builder.clock(Clock::from(&time));
        let stores = BothLayouts([
            Fresh::with(server, SlidingLogLayout::List, clocked).await,
            Fresh::with(server, SlidingLogLayout::SortedSet, clocked).await,
        ]);
        let model = MemoryStore::builder().clock(&time).build();
        let mut policies = every_policy(7, Duration::from_secs(2));
        for (limit, window) in [(1, 1), (3, 10), (1_000_000, 1), (1_000, 86_400), (999, 1)] {
            let quota = Quota::new(limit, Duration::from_secs(window));
            let policy = Policy::new(&format!("bucket {limit}"), quota);
            policies.push((policy, SlidingLogLayout::List));
        }
        for (n, (policy, layout)) in policies.into_iter().enumerate() {
            let both = Both { redis: stores.of(layout), model: &model };
            let mut random = Random::new(n as u64);
            let all: Vec<String> = (0..KEYS).map(|key| format!("{n}-{key}")).collect();
            for round in 0..ROUNDS {
                let window = u64::try_from(policy.quota().window().as_micros()).unwrap();
                let each = window / policy.quota().limit();
                let passed = random.one_of(&[0, 0, 1, each / 2, each, 3 * each, 900_000, window, 3 * window]);
                time.advance(Duration::from_micros(passed));
                let one_in = random.one_of(&[1, 2, 4, 8, 16, 1_000]);
                let full: Vec<String> = all.iter().filter(|_| random.below(one_in) == 0).cloned().collect();
                both.agree(&policy, &full, policy.largest_cost(), Times::ONCE).await;
                let mut keys: Vec<String> = Vec::new();
                for key in &all {
                    let times = random.one_of(&[0, 1, 1, 1, 1, 1, 1, 1, 2, 3, 9]);
                    keys.extend(vec![key.clone(); times]);
                    // Only a request gives a foreign value an end, so the key is asked for below.
                    if times > 0 && random.below(30) == 0 {
                        let name = both.redis.name(&policy, key);
                        let foreign =
                            random.one_of(&["abc", "-5", "0", "007", "12345", "1e3", "", " 12", "{"]);
                        server.command(&["DEL", &name]).unwrap();
                        let command = if foreign == "{" { "SADD" } else { "SET" };
                        server.command(&[command, &name, foreign]).unwrap();
                        model.reset(&Key::from(key.as_str()), &[&policy]).await.unwrap();
                    }
                }
                let cost = random.one_of(&[1, 1, 1, policy.largest_cost().min(3), policy.largest_cost()]);
                // Partial grants of one key are not decided in turn, so a key appears once.
                let times = random.one_of(&[Times::ONCE, Times::ONCE, Times::up_to(3), Times::between(2, 3)]);
                if times != Times::ONCE {
                    keys.dedup();
                }
                both.agree(&policy, &keys, cost, times).await;
                // Each command opens a connection, so this is not done after every round.
                for key in keys.iter().filter(|_| round % 8 == 7) {
                    let left = server.command(&["PTTL", &both.redis.name(&policy, key)]).unwrap();
                    assert_ne!(left, "-1", "{key} of {policy:?} lives for ever, in round {round} on {kind}");
                }
            }
        }
    }
}

/// Together they take more units than a `u32` holds, and the queue has room for each.
#[tokio::test]
async fn merged_callers_are_delayed_as_if_alone() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let quota = Quota::per_second(1_000_000_000);
        let max_wait = Duration::from_secs(60);
        let policy = Policy::new("p", quota).with_algorithm(Algorithm::LeakyBucket { max_wait });
        for (cost, callers) in [(50_000_000, 100), (3_000_000_000, 15)] {
            crowd(&fresh.store).await;
            let key = cost.to_string();
            let verdicts = ask(&fresh, &policy, &vec![key; callers], cost, Times::ONCE).await;
            let delay = verdicts.iter().map(Verdict::delay).max().unwrap();
            assert!(verdicts.iter().all(Verdict::is_granted), "a cost of {cost} on {kind}");
            assert!(
                delay > Duration::from_nanos((callers as u64 - 2) * cost),
                "{delay:?} for {cost} on {kind}"
            );
        }
    }
}

/// The longest horizon ends at 2^53. Beyond it Lua's numbers are even.
#[tokio::test]
async fn a_limit_is_not_exceeded_at_the_end_of_time() {
    const END: u64 = 1 << 53;
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let time = ManualClock::new(Timestamp::MAX);
        let clocked = |builder: RedisStoreBuilder| builder.clock(Clock::from(&time));
        let fresh = Fresh::with(server, SlidingLogLayout::List, clocked).await;
        // T is a microsecond, and the burst is one unit.
        for max_wait in [(1 << 52) - 1, (1 << 52) - 2] {
            let queue = Algorithm::LeakyBucket { max_wait: Duration::from_micros(max_wait) };
            let policy = Policy::new(&format!("queue {max_wait}"), Quota::per_second(1_000_000));
            let policy = policy.with_algorithm(queue);
            let end = END - (1 << 52) + 1 + max_wait;
            let keys = numbered(20);
            for key in &keys {
                let value = (end - 3).to_string();
                server.command(&["SET", &fresh.name(&policy, key), &value, "PX", "99999999999"]).unwrap();
            }
            for left in [3, 2, 1, 0, 0] {
                crowd(&fresh.store).await;
                for verdict in ask(&fresh, &policy, &keys, 1, Times::ONCE).await {
                    assert_eq!(verdict.is_granted(), left > 0, "{left} left, {max_wait} on {kind}");
                }
                let alone = &keys[..1];
                if left == 0 {
                    assert!(!ask(&fresh, &policy, alone, 1, Times::ONCE).await[0].is_granted(), "{kind}");
                }
            }
        }
    }
}

/// If the first key of a call has room, the script charges the next keys before it looks at them.
/// It stops that at the first denial.
#[tokio::test]
async fn a_call_of_denials_charges_no_key_and_rarely_writes() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let fresh = Fresh::on(&server).await;
        let policy = Policy::new("api", Quota::per_day(3));
        let keys = numbered(100);
        for _ in 0..3 {
            assert!(
                ask(&fresh, &policy, &keys, 1, Times::ONCE).await.iter().all(Verdict::is_granted),
                "{kind}"
            );
        }
        let states = || {
            let state = |key: &String| {
                let name = fresh.name(&policy, key);
                let text = server.command(&["GET", &name]).unwrap();
                (text, server.command(&["PEXPIRETIME", &name]).ok())
            };
            keys.iter().map(state).collect::<Vec<_>>()
        };
        let before = states();
        let writes = || ["incrby", "pexpire", "psetex"].map(|command| calls(&server, command));
        for count in [100, 8, 7, 1] {
            crowd(&fresh.store).await;
            server.command(&["CONFIG", "RESETSTAT"]).unwrap();
            let told = ask(&fresh, &policy, &keys[..count], 1, Times::ONCE).await;
            assert!(told.iter().all(|verdict| !verdict.is_granted()), "{kind}");
            assert_eq!(calls(&server, "evalsha"), 1, "{kind}");
            assert_eq!(writes(), [0; 3], "{count} on {kind}");
        }
        let mut behind_one_with_room = vec!["new".to_owned()];
        ask(&fresh, &policy, &behind_one_with_room, 1, Times::ONCE).await;
        behind_one_with_room.extend(keys.iter().cloned());
        crowd(&fresh.store).await;
        server.command(&["CONFIG", "RESETSTAT"]).unwrap();
        let told = ask(&fresh, &policy, &behind_one_with_room, 1, Times::ONCE).await;
        assert!(told[0].is_granted() && !told[1..].iter().any(Verdict::is_granted), "{kind}");
        // One for the key with room. Two for the next key: charged and taken back.
        assert_eq!(writes()[0], 3, "{kind}");
        assert_eq!(states(), before, "{kind}");
    }
}

#[tokio::test]
async fn a_busy_call_takes_one_command_for_each_bucket_in_use() {
    for &kind in Kind::EVERY {
        let server = Server::start(kind).unwrap();
        let fresh = Fresh::on(&server).await;
        let policy = Policy::new("api", Quota::new(1_000_000, Duration::from_secs(366 * 86_400)));
        let keys = numbered(100);
        ask(&fresh, &policy, &keys, 1, Times::ONCE).await;
        crowd(&fresh.store).await;
        server.command(&["CONFIG", "RESETSTAT"]).unwrap();
        assert!(ask(&fresh, &policy, &keys, 1, Times::ONCE).await.iter().all(Verdict::is_granted), "{kind}");
        // Only the first key is read, to see whether it is in use.
        assert_eq!((calls(&server, "incrby"), calls(&server, "mget")), (100, 1), "{kind}");
    }
}

/// A verdict grants at least `min` times, or it charges nothing.
#[tokio::test]
async fn an_impossible_number_of_grants_charges_no_key() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        // Twice that cost is more than a `u32` holds.
        let policy = Policy::new("api", Quota::new(4_000_000_000, Duration::from_secs(366 * 86_400)));
        let keys = numbered(20);
        crowd(&fresh.store).await;
        let told = ask(&fresh, &policy, &keys, 2_200_000_000, Times::between(2, 2)).await;
        for (key, verdict) in keys.iter().zip(told) {
            assert!(
                !verdict.is_granted() && verdict.each()[0].wait() == Wait::Never,
                "{verdict:?} on {kind}"
            );
            assert_eq!(used(&fresh.store, &policy, key).await, 0, "{kind}");
        }
    }
}
