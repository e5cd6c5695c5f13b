//! The cache of denials over a real Redis: calls, changes by others, errors, and memory.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate::scale::{DenyCache, Lease, Leases};
use tollgate::store::{Check, Grant, Source, Store, Times, Verdict};
use tollgate::{Algorithm, Key, Limiter, ManualClock, MemoryStore, Policy, Quota, StoreExt, Wait};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Connection, Failing, Later, at_hand, at_once, clock, store};

use crate::scale::{connect, shared};

const SECOND: Duration = Duration::from_secs(1);

/// Far longer than a confirmation and a round trip, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn policy(name: &str, limit: u64) -> Policy {
    Policy::new(name, Quota::per_day(limit))
}

async fn ask<S: Store<Error = tollgate_redis::Error>>(store: &S, policy: &Policy, key: &Key) -> Verdict {
    store.acquire(&[Check::new(policy, key, 1)], Times::ONCE).wait().await.unwrap()
}

/// A cache in front of a key that is denied.
async fn denied(policy: &Policy, key: &Key) -> (DenyCache<RedisStore>, RedisStore) {
    let store = connect(shared()).await;
    let cache = store.clone().deny_cache(1_000);
    while ask(&cache, policy, key).await.is_granted() {}
    (cache, store)
}

/// A cache in front of leases of a store in memory, and these.
fn with_leases(time: &ManualClock) -> (DenyCache<Leases<MemoryStore>>, Leases<MemoryStore>) {
    let leases = store(time).leased(Lease::default().clock(time));
    (leases.clone().deny_cache(1_000).clock(time), leases)
}

#[tokio::test]
async fn a_lease_is_spent_although_a_larger_cost_is_denied() {
    let time = clock();
    let (cache, leases) = with_leases(&time);
    let (policy, key) = (policy("costs", 1_000), Key::from("ada"));
    let ask = |cost| {
        let verdict = at_hand(cache.acquire(&[Check::new(&policy, &key, cost)], Times::ONCE)).unwrap();
        (verdict.is_granted(), verdict.source())
    };
    while leases.held(&policy, &key).is_none() {
        assert_eq!(ask(1), (true, Source::Store));
    }
    assert_eq!(ask(1_000), (false, Source::Store));
    for _ in 0..2 {
        assert_eq!(ask(1), (true, Source::Lease));
        assert_eq!(ask(1_000), (false, Source::DenyCache));
    }
}

#[tokio::test]
async fn a_denied_set_takes_no_leased_units_and_is_no_demand() {
    let time = clock();
    let (cache, leases) = with_leases(&time);
    let (all, each) = (policy("all", 1_000), policy("each", 1));
    let [everyone, ada] = ["everyone", "ada"].map(Key::from);
    let set = [Check::new(&all, &everyone, 1), Check::new(&each, &ada, 1)];
    let ask = |set: &[Check<'_>]| {
        let verdict = at_hand(cache.acquire(set, Times::ONCE)).unwrap();
        (verdict.is_granted(), verdict.source())
    };
    while leases.held(&all, &everyone).is_none() {
        assert_eq!(ask(&set[..1]), (true, Source::Store));
    }
    assert_eq!([ask(&set), ask(&set)], [(true, Source::Store), (false, Source::Store)]);
    let before = leases.stats();
    for _ in 0..100 {
        assert_eq!(ask(&set), (false, Source::DenyCache));
    }
    assert_eq!(leases.stats(), before);
    assert_eq!(ask(&set[..1]), (true, Source::Lease));
}

/// Otherwise a caller with a deadline of 0 ms would have all others refused.
#[tokio::test]
async fn a_denial_of_an_impatient_caller_is_not_that_of_a_patient_one() {
    let time = clock();
    let store = store(&time).deny_cache(1_000).clock(&time);
    let bucket = Algorithm::LeakyBucket { max_wait: 10 * SECOND };
    let policy = Policy::new("queue", Quota::per_second(10).burst(1)).with_algorithm(bucket);
    let (limiter, key) = (Limiter::new([policy]).store(store), Key::from("ada"));
    for place in 0..100 {
        let impatient = limiter.until_ready(&key, 1, Duration::ZERO).await;
        assert_eq!(impatient.is_ok(), place == 0);
        assert_eq!(limiter.check(&key, 1).await.is_ok(), place < 100, "place {place}");
    }
    // The queue is full. This denial is for those who wait for less, too.
    assert!(limiter.check(&key, 1).await.is_err());
    let sources = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&sources);
    let limiter = limiter.observe(move |decision| seen.lock().unwrap().push(decision.source()));
    // It waits for a place that is one second from the front, and all others for the tenth.
    let impatient = limiter.until_ready(&key, 1, SECOND).await.unwrap_err();
    let patient = limiter.check(&key, 1).await.unwrap_err();
    assert_eq!(*sources.lock().unwrap(), [Source::DenyCache; 2]);
    let (shorter, longer) = (patient.retry_after().unwrap(), impatient.retry_after().unwrap());
    assert!((9 * SECOND..9 * SECOND + SECOND / 2).contains(&(longer - shorter)), "{shorter:?}, {longer:?}");
}

#[tokio::test]
async fn a_denial_of_a_class_is_not_that_of_a_tier_with_the_same_quota() {
    let time = clock();
    let cache = store(&time).deny_cache(1_000).clock(&time);
    let class = Policy::new("api", Quota::per_minute(60).burst(10)).leaving(4).unwrap();
    let (tier, key) = (Policy::new("api", class.quota()), Key::from("ada"));
    let ask = |policy: &Policy| {
        let verdict = at_hand(cache.acquire(&[Check::new(policy, &key, 1)], Times::ONCE)).unwrap();
        (verdict.is_granted(), verdict.source())
    };
    while ask(&class).0 {}
    assert_eq!(ask(&class), (false, Source::DenyCache));
    assert_eq!(ask(&tier).1, Source::Store);
}

#[tokio::test]
async fn a_denied_key_next_to_invented_keys_is_answered_from_the_cache() {
    let time = clock();
    let store = Failing::new(store(&time), Connection::Works);
    let cache = store.clone().deny_cache(1_000).clock(&time);
    let (by_ip, by_token) = (policy("ip", 1), policy("token", 10));
    let ip = Key::from("192.0.2.1");
    for n in 0..100_u64 {
        let token = Key::from(n);
        let checks = [Check::new(&by_token, &token, 1), Check::new(&by_ip, &ip, 1)];
        let verdict = cache.acquire(&checks, Times::ONCE).wait().await.unwrap();
        assert_eq!((verdict.is_granted(), verdict.each().len()), (n == 0, 2));
        let from = if n == 0 { Source::Store } else { Source::DenyCache };
        assert_eq!(verdict.source(), from);
        let waits = verdict.each().iter().map(|status| status.wait() != Wait::None).collect::<Vec<_>>();
        assert_eq!(waits, [false, n > 0], "only the address is denied");
        // A cost that can never pass stays one.
        let checks = [Check::new(&by_token, &token, 11), Check::new(&by_ip, &ip, 1)];
        let verdict = cache.acquire(&checks, Times::ONCE).wait().await.unwrap();
        assert_eq!(verdict.each()[0].wait(), Wait::Never, "{n}");
    }
    assert_eq!((store.asked(), cache.denials()), (2, 2));
}

#[tokio::test]
async fn a_remembered_policy_shows_its_whole_quota_after_its_reset() {
    let time = clock();
    let cache = store(&time).deny_cache(1_000).clock(&time);
    let (slow, fast) = (policy("slow", 1), Policy::new("fast", Quota::per_second(50).burst(5)));
    let key = Key::from("ada");
    let ask = |cost| {
        at_hand(cache.acquire(&[Check::new(&fast, &key, cost), Check::new(&slow, &key, 1)], Times::ONCE))
    };
    assert!(ask(4).unwrap().is_granted());
    let denied = ask(1).unwrap();
    assert_eq!((denied.source(), denied.each()[0].remaining()), (Source::Store, 1));
    time.advance(SECOND / 5);
    let denied = ask(1).unwrap();
    assert_eq!((denied.source(), denied.each()[0].remaining()), (Source::DenyCache, 5));
    assert!(denied.each()[0].reset_after().is_zero());
}

/// The request that was to confirm the denial has not come back.
#[tokio::test]
async fn a_denial_that_is_not_confirmed_ends_after_two_seconds() {
    let time = clock();
    let inside = store(&time);
    let cache = Later::deciding_last(inside.clone()).deny_cache(1_000).clock(&time);
    let (policy, key) = (policy("unconfirmed", 1), Key::from("ada"));
    let check = [Check::new(&policy, &key, 1)];
    for is_granted in [true, false] {
        assert_eq!(cache.acquire(&check, Times::ONCE).wait().await.unwrap().is_granted(), is_granted);
    }
    at_once(inside.reset(&key, &[&policy])).unwrap();
    time.advance(3_600 * SECOND);
    let confirmation = cache.acquire(&check, Times::ONCE);
    assert!(cache.acquire(&check, Times::ONCE).wait().await.unwrap().is_granted());
    drop(confirmation);
}

/// The scripts that a server has run since the last `CONFIG RESETSTAT`.
fn scripts(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]).unwrap();
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_eval")?;
        line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

/// One key is limited by itself. The others are in sets with a rule that all callers share, and
/// that grants other callers all the time.
#[tokio::test]
async fn a_denied_key_costs_at_most_one_call_a_second() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let cache = connect(&server).await.deny_cache(1_000);
    let (each, all) = (policy("each", 1), policy("all", 1_000_000));
    let [ada, bob, eve, everyone] = ["ada", "bob", "eve", "everyone"].map(Key::from);
    let set_of = |key| [Check::new(&each, key, 1), Check::new(&all, &everyone, 1)];
    for key in [&bob, &eve] {
        assert!(cache.acquire(&set_of(key), Times::ONCE).wait().await.unwrap().is_granted());
        assert!(!cache.acquire(&set_of(key), Times::ONCE).wait().await.unwrap().is_granted());
    }
    let slow = policy("slow", 1);
    assert!(ask(&cache, &slow, &ada).await.is_granted());
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    let (start, mut granted, mut denied, mut n) = (Instant::now(), 0, 0, 0_u64);
    while start.elapsed() < 3 * SECOND {
        for _ in 0..50 {
            denied += u32::from(!ask(&cache, &slow, &ada).await.is_granted());
            for key in [&bob, &eve] {
                let verdict = cache.acquire(&set_of(key), Times::ONCE).wait().await.unwrap();
                assert_eq!((verdict.is_granted(), verdict.each().len()), (false, 2));
                denied += 1;
            }
        }
        // Another caller of the shared rule is granted.
        n += 1;
        let other = Key::from(n);
        let set = [Check::new(&each, &other, 1), Check::new(&all, &everyone, 1)];
        granted += cache.acquire(&set, Times::ONCE).wait().await.unwrap().times();
        sleep(Duration::from_millis(10)).await;
    }
    let seconds = start.elapsed().as_secs() + 1;
    let calls = scripts(&server) - u64::from(granted);
    // The first denial of each key, and a confirmation each second.
    assert!(calls <= 3 * (seconds + 1), "{calls} calls in {seconds} s for {denied} denials of 3 keys");
    assert!(calls >= 3, "denials are confirmed");
}

#[tokio::test]
async fn a_refund_or_a_reset_by_this_process_is_seen_at_once() {
    let (policy, key) = (policy("own changes", 3), Key::from("ada"));
    let store = connect(shared()).await;
    let cache = store.deny_cache(1_000);
    for _ in 0..20 {
        let stamp = ask(&cache, &policy, &key).await.each()[0].stamp();
        while ask(&cache, &policy, &key).await.is_granted() {}
        let grant = Grant { policy: &policy, key: &key, units: 1, stamp, share: None };
        cache.refund(&[grant]).await.unwrap();
        assert!(ask(&cache, &policy, &key).await.is_granted(), "after a refund");
        assert!(!ask(&cache, &policy, &key).await.is_granted());
        cache.reset(&key, &[&policy]).await.unwrap();
        assert!(ask(&cache, &policy, &key).await.is_granted(), "after a reset");
        cache.reset(&key, &[&policy]).await.unwrap();
    }
}

#[tokio::test]
async fn a_reset_by_another_process_is_seen_soon() {
    let (policy, key) = (policy("changes by others", 3), Key::from("ada"));
    let (cache, store) = denied(&policy, &key).await;
    let start = Instant::now();
    assert!(!ask(&cache, &policy, &key).await.is_granted());
    store.reset(&key, &[&policy]).await.unwrap();
    let seen = async {
        while !ask(&cache, &policy, &key).await.is_granted() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, seen).await.expect("the reset is seen");
    println!("seen after {:?}", start.elapsed());
}

/// A request of cost 0 asks the store anyway, and its answer confirms nothing.
#[tokio::test]
async fn requests_of_cost_0_do_not_put_off_the_confirmation() {
    let time = clock();
    let inside = store(&time);
    let cache = inside.clone().deny_cache(1_000).clock(&time);
    let (policy, key) = (policy("free", 1), Key::from("ada"));
    let costing = |cost| at_hand(cache.acquire(&[Check::new(&policy, &key, cost)], Times::ONCE)).unwrap();
    assert_eq!((costing(1).is_granted(), costing(1).is_granted()), (true, false));
    at_once(inside.reset(&key, &[&policy])).unwrap();
    time.advance(SECOND);
    assert!(costing(0).is_granted());
    assert!(costing(1).is_granted(), "the reset is seen after a second");
}

#[tokio::test]
async fn an_error_forgets_the_denial() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let (policy, key, time) = (policy("errors", 1), Key::from("ada"), clock());
    let cache = connect(&server).await.deny_cache(1_000).clock(&time);
    let check = || cache.acquire(&[Check::new(&policy, &key, 1)], Times::ONCE).wait();
    assert!(check().await.unwrap().is_granted());
    assert!(!check().await.unwrap().is_granted());
    server.kill();
    assert!(!check().await.unwrap().is_granted(), "denied by what is remembered");
    time.advance(SECOND);
    // The confirmation fails.
    let failed = async {
        while check().await.is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, failed).await.expect("the store is asked again");
    for _ in 0..10 {
        assert!(check().await.is_err(), "a failure policy decides, not an old denial");
    }
    server.restart().unwrap();
    let decided = async {
        while check().await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, decided).await.expect("the store decides again");
}

#[tokio::test]
async fn invented_keys_do_not_exceed_the_capacity() {
    let cache = connect(shared()).await.deny_cache(100);
    let policy = policy("invented", 1);
    for n in 0..1_000_u64 {
        let key = Key::from(n);
        assert!(ask(&cache, &policy, &key).await.is_granted());
        assert!(!ask(&cache, &policy, &key).await.is_granted());
        assert!(cache.denials() <= 100, "{} denials are remembered", cache.denials());
    }
    assert!(!ask(&cache, &policy, &Key::from(0_u64)).await.is_granted(), "the store still denies");
    // Refunds leave a mark, so that a late denial does not count.
    for n in 1_000..2_000_u64 {
        let key = Key::from(n);
        cache.reset(&key, &[&policy]).await.unwrap();
        assert!(cache.denials() <= 100, "{} denials are remembered", cache.denials());
    }
}

fn longest(verdict: &Verdict) -> Duration {
    match verdict.wait() {
        Wait::For(wait) => wait,
        other => panic!("denied with the wait {other:?}"),
    }
}

#[tokio::test]
async fn a_smaller_cost_passes_where_a_larger_one_is_denied() {
    let cache = connect(shared()).await.deny_cache(1_000);
    let (policy, key) = (policy("costs", 5), Key::from("ada"));
    let costing = |cost| cache.acquire(&[Check::new(&policy, &key, cost)], Times::ONCE).wait();
    assert!(costing(2).await.unwrap().is_granted());
    let before = costing(4).await.unwrap();
    assert!(!before.is_granted());
    assert!(costing(3).await.unwrap().is_granted());
    let after = costing(4).await.unwrap();
    assert!(!after.is_granted());
    assert_eq!(after.each()[0].remaining(), 0);
    assert!(longest(&after) > longest(&before), "the grant between them makes the wait longer");
}
