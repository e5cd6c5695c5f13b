//! How long keys live, by the server's clock: always with an end, never shorter than their state,
//! and at most a second longer.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::{Check, Grant, Stamp, Store, Times, Verdict};
use tollgate::{Algorithm, Key, Policy, Quota, Wait};
use tollgate_test_servers::{Kind, Server};

use crate::redis::calls::calls;
use crate::redis::{BothLayouts, Fresh, acquire, at_once, crowd, every_policy, longest, look, shared};

/// The server's time and the end of a key, read in one step, in microseconds since the epoch.
struct Life {
    now: u64,
    ends: u64,
}

/// The life of a key, or `None` if the key does not exist.
///
/// # Panics
/// If it has no end.
fn life(server: &Server, name: &str) -> Option<Life> {
    let script = "local time = redis.call('TIME') \
                  return { time[1], time[2], redis.call('PTTL', KEYS[1]) }";
    let told = server.command(&["EVAL", script, "1", name]).unwrap();
    let numbers: Vec<i64> = told.lines().map(|line| line.parse().unwrap()).collect();
    assert_ne!(numbers[2], -1, "{name} has no end");
    let now = u64::try_from(numbers[0] * 1_000_000 + numbers[1]).unwrap();
    // Milliseconds, rounded down.
    let left = u64::try_from(numbers[2]).ok()?;
    Some(Life { now, ends: now + left * 1_000 })
}

/// The server's time, in microseconds since the epoch.
fn now(server: &Server) -> u64 {
    let time = server.command(&["TIME"]).unwrap();
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

/// When the state of a grant ends, in microseconds since the epoch.
fn state_ends(policy: &Policy, stamp: Stamp) -> u64 {
    let window = u64::try_from(policy.quota().window().as_micros()).unwrap();
    match policy.algorithm() {
        Algorithm::SlidingWindow => stamp.micros() + 2 * window,
        Algorithm::SlidingBuckets { buckets } => {
            (stamp.micros() + u64::from(buckets) + 1) * window.div_ceil(buckets.into())
        }
        Algorithm::FixedWindow { .. } | Algorithm::SlidingLog { .. } => stamp.micros() + window,
        Algorithm::CalendarWindow { .. } => stamp.micros(),
        _ => stamp.micros() + u64::from(stamp.fraction() > 0),
    }
}

/// How much longer than its state a key may live. Buckets do not set the end with each request.
fn slack(policy: &Policy) -> u64 {
    match policy.algorithm() {
        Algorithm::Gcra | Algorithm::LeakyBucket { .. } => 1_000_000,
        // The server reads the clock of key ends before the script reads its own, and the machine
        // may be busy.
        _ => 200_000,
    }
}

/// Whether a key lives as long as its state, or why it ends too early. The server reads the clock
/// of key ends before the script reads its own. If the machine stops it in between, one key ends
/// early.
///
/// # Panics
/// If it lives too long.
fn lives_as_long_as_its_state(
    server: &Server,
    fresh: &Fresh,
    policy: &Policy,
    key: &str,
    granted: &Verdict,
) -> Result<(), String> {
    let due = state_ends(policy, granted.each()[0].stamp());
    let what = format!("{} on {}", fresh.name(policy, key), server.kind());
    match life(server, &fresh.name(policy, key)) {
        // It may have ended in between.
        None => {
            let now = now(server);
            if now < due {
                return Err(format!("{what} is forgotten {} µs early", due - now));
            }
        }
        Some(life) => {
            if life.ends + 1_000 < due {
                return Err(format!("{what} is forgotten {} µs early", due - life.ends));
            }
            let over = life.ends.saturating_sub(due);
            assert!(over <= slack(policy), "{what} outlives its state by {over} µs");
        }
    }
    Ok(())
}

/// # Panics
/// If four of five keys end too early.
async fn two_of_five(lives: impl AsyncFn(&str) -> Result<(), String>) {
    let (mut exact, mut early) = (0, Vec::new());
    for key in ["ada", "bob", "cid", "dan", "eve"] {
        match lives(key).await {
            Ok(()) => exact += 1,
            Err(why) => early.push(why),
        }
        if exact == 2 {
            return;
        }
    }
    panic!("{early:?}");
}

/// Asserts that no key outlives its reported state, if there is no grant to compare with.
async fn ends_with_its_state(server: &Server, fresh: &Fresh, policy: &Policy, key: &str) {
    let reset = look(&fresh.store, policy, key).await.each()[0].reset_after();
    if let Some(life) = life(server, &fresh.name(policy, key)) {
        let left = Duration::from_micros(life.ends - life.now);
        let over = left.saturating_sub(reset);
        let what = fresh.name(policy, key);
        assert!(over <= Duration::from_micros(slack(policy)), "{what} outlives its state by {over:?}");
    }
}

async fn on_every_server(test: impl AsyncFn(&Server, &Fresh, &Policy)) {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let stores = BothLayouts::on(server).await;
        for window in [60, 1_000, 3_600_000, 366 * 86_400_000].map(Duration::from_millis) {
            for limit in [1, 7] {
                for (policy, layout) in every_policy(limit, window) {
                    test(server, stores.of(layout), &policy).await;
                }
            }
        }
    }
}

/// Other limiters take `count == 1` as the sign of a new key.
#[tokio::test]
async fn a_first_request_of_cost_two_leaves_a_key_that_expires() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let stores = BothLayouts::on(server).await;
        for (policy, layout) in every_policy(7, Duration::from_secs(600)) {
            let fresh = stores.of(layout);
            two_of_five(async |key| {
                let granted = acquire(&fresh.store, &policy, key, 2).await;
                assert!(granted.is_granted());
                assert!(life(server, &fresh.name(&policy, key)).is_some(), "nothing rests there");
                lives_as_long_as_its_state(server, fresh, &policy, key, &granted)
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_key_lives_exactly_as_long_as_its_state() {
    on_every_server(async |server, fresh, policy| {
        two_of_five(async |key| {
            for _ in 0..policy.capacity() + 2 {
                let verdict = acquire(&fresh.store, policy, key, 1).await;
                if verdict.is_granted() {
                    lives_as_long_as_its_state(server, fresh, policy, key, &verdict)?;
                } else {
                    ends_with_its_state(server, fresh, policy, key).await;
                }
            }
            Ok(())
        })
        .await;
    })
    .await;
}

/// Some of the keys that a call charges lie ahead, some lie behind, and some are new.
#[tokio::test]
async fn the_keys_of_a_call_live_exactly_as_long_as_their_states() {
    at_once(Kind::EVERY, the_keys_of_a_call_on).await;
}

async fn the_keys_of_a_call_on(kind: Kind) {
    // A server of its own, because its commands are counted.
    let server = Server::start(kind).unwrap();
    let fresh = Fresh::on(&server).await;
    // A unit is 86.4 s, 86.4 ms or 10 ms of a TAT.
    for quota in [Quota::per_day(1_000), Quota::per_day(1_000_000), Quota::per_second(100)] {
        let policy = Policy::new(&format!("bucket {}", quota.limit()), quota);
        let mut early = Vec::new();
        for (round, pause) in [0, 0, 0, 30, 30, 200, 1_100, 0, 30].into_iter().enumerate() {
            sleep(Duration::from_millis(pause)).await;
            // The first key of a call lies ahead, so the script charges the others without reading
            // them. These are new keys, a third of the earlier ones, and keys as far behind as
            // allowed.
            let ahead = format!("ahead-{round}");
            acquire(&fresh.store, &policy, &ahead, policy.capacity() / 2).await;
            let behind = (0..5).map(|n| format!("behind-{n}-{round}"));
            let others = (0..10 * (round + 1)).filter(|n| n / 10 == round || n % 3 == round % 3);
            let others = others.map(|n| n.to_string());
            let keys: Vec<String> = [ahead].into_iter().chain(behind.clone()).chain(others).collect();
            crowd(&fresh.store).await;
            server.command(&["CONFIG", "RESETSTAT"]).unwrap();
            for key in behind {
                let tat = (now(&server) - 850_000).to_string();
                server.command(&["SET", &fresh.name(&policy, &key), &tat, "PX", "900"]).unwrap();
            }
            let asked = keys.iter().enumerate().flat_map(|(n, key)| vec![key; 1 + n % 3]);
            let ask =
                |key: &str| fresh.store.acquire(&[Check::new(&policy, &Key::from(key), 1)], Times::ONCE);
            let replies: Vec<_> = asked.map(|key| (key, ask(key))).collect();
            let mut last = BTreeMap::new();
            for (key, reply) in replies {
                let verdict = reply.wait().await.unwrap();
                assert!(verdict.is_granted());
                last.insert(key, verdict);
            }
            assert_eq!(calls(&server, "evalsha"), 1, "{kind}");
            let lives = |(key, verdict): (&String, Verdict)| {
                lives_as_long_as_its_state(&server, &fresh, &policy, key, &verdict)
            };
            early.extend(last.into_iter().try_for_each(lives).err());
        }
        assert!(early.len() < 4, "in most of nine calls: {early:?}");
    }
}

/// Laravel and others set the end again with each hit, so a busy caller never sees its window end.
#[tokio::test]
async fn hits_do_not_prolong_the_life_of_a_window() {
    for (policy, layout) in every_policy(1_000, Duration::from_secs(600)) {
        if !matches!(policy.algorithm(), Algorithm::FixedWindow { .. } | Algorithm::SlidingWindow) {
            continue;
        }
        let server = shared(Kind::Redis8_2);
        let fresh = Fresh::with(server, layout, |builder| builder).await;
        let first = acquire(&fresh.store, &policy, "ada", 1).await.each()[0].stamp();
        let name = fresh.name(&policy, "ada");
        let Life { now: began, ends: before } = life(server, &name).unwrap();
        let last = loop {
            let last = acquire(&fresh.store, &policy, "ada", 1).await.each()[0];
            // Until some time has passed, by the server's clock.
            if life(server, &name).unwrap().now > began + 50_000 {
                break last.stamp();
            }
        };
        let after = life(server, &name).unwrap().ends;
        if last == first {
            assert!(after.abs_diff(before) < 5_000, "{name} ended at {before}, and now ends at {after}");
        }
    }
}

#[tokio::test]
async fn refunds_and_resets_leave_no_key_without_an_end() {
    on_every_server(async |server, fresh, policy| {
        let (key, name) = (Key::from("ada"), fresh.name(policy, "ada"));
        let mut stamps = Vec::new();
        for _ in 0..policy.capacity() {
            let verdict = acquire(&fresh.store, policy, "ada", 1).await;
            stamps.extend(verdict.is_granted().then(|| verdict.each()[0].stamp()));
        }
        for stamp in stamps.into_iter().rev() {
            let grant = Grant { policy, key: &key, units: 1, stamp, share: None };
            fresh.store.refund(&[grant]).await.unwrap();
            ends_with_its_state(server, fresh, policy, "ada").await;
            // A second refund, which is too much.
            fresh.store.refund(&[grant]).await.unwrap();
            ends_with_its_state(server, fresh, policy, "ada").await;
        }
        acquire(&fresh.store, policy, "ada", policy.capacity()).await;
        fresh.store.reset(&key, &[policy]).await.unwrap();
        assert!(life(server, &name).is_none(), "{name} is there after a reset");
    })
    .await;
}

#[tokio::test]
async fn a_refund_that_comes_too_late_creates_no_key() {
    on_every_server(async |server, fresh, policy| {
        let key = Key::from("ada");
        let stamp = acquire(&fresh.store, policy, "ada", 1).await.each()[0].stamp();
        fresh.store.reset(&key, &[policy]).await.unwrap();
        for units in [1, u64::MAX] {
            fresh.store.refund(&[Grant { policy, key: &key, units, stamp, share: None }]).await.unwrap();
        }
        assert!(life(server, &fresh.name(policy, "ada")).is_none());
        assert_eq!(look(&fresh.store, policy, "ada").await.each()[0].remaining(), policy.capacity());
    })
    .await;
}

#[tokio::test]
async fn no_wait_exceeds_the_life_of_its_key() {
    on_every_server(async |_, fresh, policy| {
        acquire(&fresh.store, policy, "ada", policy.largest_cost()).await;
        let denied = acquire(&fresh.store, policy, "ada", policy.largest_cost()).await;
        // A short window may be over.
        if !denied.is_granted() {
            let Wait::For(wait) = denied.wait() else { panic!("{denied:?}") };
            assert!(wait > Duration::ZERO && wait <= longest(policy), "{wait:?} under {policy:?}");
        }
    })
    .await;
}
