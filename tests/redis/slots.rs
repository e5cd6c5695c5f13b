//! Requests in flight: slots, on real servers.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::collections::HashSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::store::{Check, Grant, Renewal, Stamp, Store, Times, renewals};
use tollgate::{Key, ManualClock, Policy, Quota, Timestamp, Wait};
use tollgate_redis::{RedisStore, SlidingLogLayout};
use tollgate_test_servers::{Cluster, Kind, Server};

use crate::redis::calls::calls;
use crate::redis::cluster;
use crate::redis::{Fresh, acquire, look, prefix, shared};

const TTL: Duration = Duration::from_secs(15);

fn exports(limit: u64) -> Policy {
    Policy::in_flight("exports", limit).with_ttl(TTL)
}

/// A store whose clock a test moves.
async fn with_clock(server: &Server) -> (Fresh, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_micros(1_767_225_600_000_000));
    let fresh = Fresh::with(server, SlidingLogLayout::List, |builder| builder.clock(&clock)).await;
    (fresh, clock)
}

fn slot<'a>(policy: &'a Policy, key: &'a Key, stamp: Stamp) -> Grant<'a> {
    Grant { policy, key, units: 1, stamp, share: None }
}

async fn claim(store: &RedisStore, policy: &Policy) -> Option<Stamp> {
    let verdict = acquire(store, policy, "ada", 1).await;
    verdict.is_granted().then(|| verdict.each()[0].stamp())
}

async fn release(store: &RedisStore, policy: &Policy, stamp: Stamp) {
    store.refund(&[slot(policy, &Key::from("ada"), stamp)]).await.unwrap();
}

async fn renew(store: &RedisStore, policy: &Policy, stamp: Stamp) -> Renewal {
    let renewals = renewals(store, &[slot(policy, &Key::from("ada"), stamp)]).await.unwrap();
    let [renewal] = renewals[..] else { panic!("{renewals:?}") };
    renewal
}

async fn free(store: &RedisStore, policy: &Policy) -> u64 {
    look(store, policy, "ada").await.each()[0].remaining()
}

#[tokio::test]
async fn a_lower_limit_releases_what_a_higher_one_claimed() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let (five, two, ada) = (exports(5), exports(2), Key::from("ada"));
        let claimed =
            fresh.store.acquire(&[Check::new(&five, &ada, 1)], Times::up_to(5)).wait().await.unwrap();
        assert_eq!(claimed.times(), 5, "{kind}");
        let grant = Grant { units: 5, ..slot(&two, &ada, claimed.each()[0].stamp()) };
        fresh.store.refund(&[grant]).await.unwrap();
        assert_eq!(free(&fresh.store, &five).await, 5, "{kind}");
    }
}

/// Callers that are merged into one call have an identity each.
#[tokio::test]
async fn each_of_many_at_once_has_a_slot_of_its_own() {
    for &kind in Kind::EVERY {
        let fresh = Fresh::on(shared(kind)).await;
        let policy = exports(20);
        let claims: JoinSet<Option<Stamp>> = (0..500)
            .map(|_| {
                let (store, policy) = (fresh.store.clone(), policy.clone());
                async move { claim(&store, &policy).await }
            })
            .collect();
        let stamps: Vec<Stamp> = claims.join_all().await.into_iter().flatten().collect();
        assert_eq!((stamps.len(), stamps.iter().collect::<HashSet<_>>().len()), (20, 20), "{kind:?}");
        for (n, stamp) in (1..).zip(stamps) {
            release(&fresh.store, &policy, stamp).await;
            release(&fresh.store, &policy, stamp).await;
            assert_eq!(free(&fresh.store, &policy).await, n, "a second release frees nothing");
        }
    }
}

#[tokio::test]
async fn a_slot_ends_a_time_to_live_after_its_last_renewal() {
    let (fresh, clock) = with_clock(shared(Kind::Installed)).await;
    let (store, policy) = (&fresh.store, exports(1));
    let first = claim(store, &policy).await.unwrap();
    clock.advance(TTL / 3);
    assert_eq!(renew(store, &policy, first).await, Renewal::Held);
    clock.advance(TTL - Duration::from_micros(1));
    let denial = acquire(store, &policy, "ada", 1).await;
    assert_eq!(denial.wait(), Wait::For(Duration::from_micros(1)));
    assert_eq!(denial.each()[0].remaining(), 0);
    clock.advance(Duration::from_micros(1));
    assert_eq!(free(store, &policy).await, 1);
    let second = claim(store, &policy).await.unwrap();
    assert_eq!(renew(store, &policy, first).await, Renewal::Lost, "another has it");
    release(store, &policy, first).await;
    assert_eq!(free(store, &policy).await, 0, "a release after the time to live frees nothing");
    release(store, &policy, second).await;
    assert_eq!(renew(store, &policy, first).await, Renewal::Held, "it is taken again if there is room");
    assert_eq!(free(store, &policy).await, 0);
}

#[tokio::test]
async fn a_slot_that_the_server_has_lost_is_taken_again() {
    let server = Server::start(Kind::Valkey9_1).unwrap();
    let fresh = Fresh::on(&server).await;
    let policy = exports(2);
    let stamps = [claim(&fresh.store, &policy).await.unwrap(), claim(&fresh.store, &policy).await.unwrap()];
    server.command(&["FLUSHALL"]).unwrap();
    let other = claim(&fresh.store, &policy).await.unwrap();
    assert_eq!(renew(&fresh.store, &policy, stamps[0]).await, Renewal::Held);
    assert_eq!(renew(&fresh.store, &policy, stamps[1]).await, Renewal::Lost);
    release(&fresh.store, &policy, other).await;
    assert_eq!(free(&fresh.store, &policy).await, 1);
}

#[tokio::test]
async fn what_a_clock_that_stepped_back_left_ahead_ends_in_time() {
    let (fresh, clock) = with_clock(shared(Kind::Redis6_2)).await;
    let (store, policy) = (&fresh.store, exports(2));
    for _ in 0..2 {
        claim(store, &policy).await.unwrap();
    }
    let now = clock.now().as_micros();
    clock.set(Timestamp::from_micros(now - 3_600_000_000));
    assert_eq!(acquire(store, &policy, "ada", 1).await.wait(), Wait::For(TTL));
    clock.advance(TTL);
    assert_eq!(free(store, &policy).await, 2);
}

/// By the server's clock, whose TTL of the key must not follow the shorter time to live.
#[tokio::test]
async fn an_edit_of_the_time_to_live_ends_no_slot_that_runs() {
    for &kind in Kind::EVERY {
        let server = shared(kind);
        let fresh = Fresh::on(server).await;
        let store = &fresh.store;
        let of = |limit, ttl| Policy::in_flight("exports", limit).with_ttl(Duration::from_secs(ttl));
        assert!(claim(store, &of(1, 3_600)).await.is_some());
        for ttl in [3_600, 60, 15, 1] {
            assert!(claim(store, &of(1, ttl)).await.is_none(), "{kind}, {ttl} s");
        }
        // One more with a short time to live, and its renewal.
        let short = claim(store, &of(2, 1)).await.unwrap();
        assert_eq!(renew(store, &of(2, 1), short).await, Renewal::Held);
        let ttl = || {
            let left = server.command(&["PTTL", &fresh.name(&of(1, 1), "ada")]).unwrap();
            left.trim().parse::<i64>().unwrap()
        };
        assert!(ttl() > 3_000_000, "{kind}: {}", ttl());
        server.command(&["PERSIST", &fresh.name(&of(1, 1), "ada")]).unwrap();
        assert!(claim(store, &of(1, 1)).await.is_none());
        assert!(ttl() > 3_000_000, "{kind}: a refusal gives the key an end again, {}", ttl());
    }
}

/// The holder of a slot with the longer time to live may still run.
#[tokio::test]
async fn a_refusal_by_a_shorter_time_to_live_cuts_no_longer_one() {
    let (fresh, clock) = with_clock(shared(Kind::Valkey9_1)).await;
    let (store, long) = (&fresh.store, exports(1).with_ttl(4 * TTL));
    let stamp = claim(store, &long).await.unwrap();
    clock.advance(TTL);
    assert_eq!(renew(store, &long, stamp).await, Renewal::Held);
    for _ in 0..4 {
        assert_eq!(acquire(store, &exports(1), "ada", 1).await.wait(), Wait::For(TTL));
        clock.advance(TTL - Duration::from_micros(1));
    }
    assert!(claim(store, &exports(1)).await.is_none());
    clock.advance(Duration::from_micros(4));
    assert!(claim(store, &exports(1)).await.is_some());
}

#[tokio::test]
async fn a_set_takes_all_of_its_slots_and_rates_or_none() {
    let fresh = Fresh::on(shared(Kind::Redis8_2)).await;
    let (slots, tenant) = (exports(1), Policy::in_flight("tenant", 2).with_ttl(TTL));
    let rate = Policy::new("rate", Quota::per_day(9));
    let (ada, acme) = (Key::from("ada"), Key::from("acme"));
    let set = [Check::new(&slots, &ada, 1), Check::new(&rate, &ada, 1), Check::new(&tenant, &acme, 1)];
    let ask = async || fresh.store.acquire(&set, Times::ONCE).wait().await.unwrap();
    let granted = ask().await;
    assert_eq!(granted.times(), 1);
    let denied = ask().await;
    let left: Vec<u64> = denied.each().iter().map(|status| status.remaining()).collect();
    assert_eq!((denied.times(), &left[..]), (0, &[0, 8, 1][..]));
    let stamps: Vec<Stamp> = granted.each().iter().map(|status| status.stamp()).collect();
    fresh.store.refund(&[slot(&slots, &ada, stamps[0]), slot(&tenant, &acme, stamps[2])]).await.unwrap();
    for _ in 0..2 {
        assert!(acquire(&fresh.store, &tenant, "acme", 1).await.is_granted());
    }
    let denied = ask().await;
    assert_eq!((denied.times(), denied.each()[0].remaining()), (0, 1), "no slot is taken by a refusal");
}

#[tokio::test]
async fn a_key_of_another_type_is_no_slot() {
    let server = shared(Kind::Installed);
    let fresh = Fresh::on(server).await;
    let policy = exports(1);
    for foreign in [&["SET", "text"][..], &["HSET", "field", "value"], &["RPUSH", "item"]] {
        let name = fresh.name(&policy, "ada");
        let command: Vec<&str> =
            [foreign[0], &*name].into_iter().chain(foreign[1..].iter().copied()).collect();
        server.command(&["DEL", &name]).unwrap();
        server.command(&command).unwrap();
        let stamp = Stamp::new(1, 2);
        release(&fresh.store, &policy, stamp).await;
        assert_eq!(free(&fresh.store, &policy).await, 1);
        assert_eq!(renew(&fresh.store, &policy, stamp).await, Renewal::Held);
        assert!(claim(&fresh.store, &policy).await.is_none());
    }
}

/// Otherwise those of processes that were killed would add up.
#[tokio::test]
async fn slots_that_have_ended_are_removed_by_the_next() {
    let server = shared(Kind::Installed);
    let (fresh, clock) = with_clock(server).await;
    let policy = exports(100);
    for _ in 0..50 {
        claim(&fresh.store, &policy).await.unwrap();
    }
    clock.advance(TTL / 2);
    claim(&fresh.store, &policy).await.unwrap();
    clock.advance(TTL / 2);
    claim(&fresh.store, &policy).await.unwrap();
    let stored = server.command(&["ZCARD", &fresh.name(&policy, "ada")]).unwrap();
    assert_eq!(stored.trim(), "2");
}

#[tokio::test]
async fn slots_of_several_keys_are_renewed_and_released_together() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let fresh = Fresh::on(&server).await;
    let (policy, keys) = (exports(1_000_000), [Key::from("ada"), Key::from("bob")]);
    let check = [Check::new(&policy, &keys[0], 1), Check::new(&policy, &keys[1], 1)];
    let granted = fresh.store.acquire(&check, Times::up_to(5_000)).wait().await.unwrap();
    assert_eq!(granted.times(), 5_000);
    let of_key = |at: usize| {
        let stamp = granted.each()[at].stamp();
        (0..5_000).map(move |n| (at, stamp.after_refund(&exports(1), n)))
    };
    let stamps: Vec<(usize, Stamp)> = of_key(0).chain(of_key(1)).collect();
    let grants: Vec<Grant<'_>> = stamps.iter().map(|(at, stamp)| slot(&policy, &keys[*at], *stamp)).collect();
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
    assert_eq!(renewals(&fresh.store, &grants).await.unwrap(), vec![Renewal::Held; 10_000]);
    assert_eq!(calls(&server, "evalsha"), 100);
    fresh.store.refund(&grants).await.unwrap();
    assert_eq!(renewals(&fresh.store, &[]).await.unwrap(), []);
    assert_eq!(free(&fresh.store, &policy).await, 1_000_000);
}

#[tokio::test]
async fn slots_are_renewed_over_all_masters_of_a_cluster() {
    let cluster = Cluster::start(Kind::Valkey9_1).unwrap();
    let store = cluster::store(&cluster, &prefix()).await;
    let policy = exports(1);
    let keys: Vec<Key> = (0..1_000_u32).map(Key::from).collect();
    let mut grants = Vec::new();
    for key in &keys {
        let verdict = store.acquire(&[Check::new(&policy, key, 1)], Times::ONCE).wait().await.unwrap();
        grants.push(slot(&policy, key, verdict.each()[0].stamp()));
    }
    assert_eq!(renewals(&*store, &grants).await.unwrap(), vec![Renewal::Held; 1_000]);
    // Others take every second one.
    for grant in grants.iter().step_by(2) {
        store.refund(&[*grant]).await.unwrap();
        let verdict = store.acquire(&[Check::new(&policy, grant.key, 1)], Times::ONCE).wait().await.unwrap();
        assert!(verdict.is_granted());
    }
    let renewals = renewals(&*store, &grants).await.unwrap();
    let expected = (0..1_000).map(|n| if n % 2 == 0 { Renewal::Lost } else { Renewal::Held });
    assert!(renewals.into_iter().eq(expected));
}

/// Two checks of a set in two slots of a Cluster are acquired one after the other.
#[tokio::test]
async fn a_set_over_masters_gives_back_the_slots_of_the_others() {
    let cluster = Cluster::start(Kind::Installed).unwrap();
    let store = cluster::store(&cluster, &prefix()).await;
    let (slots, tenants) = (exports(3), Policy::in_flight("tenants", 2).with_ttl(TTL));
    let keys: Vec<Key> = (0..20_u32).map(Key::from).collect();
    let shared = Key::from("shared");
    let claims: JoinSet<Option<(Stamp, Stamp)>> = (0..60)
        .map(|n| {
            let (store, slots, tenants) = (RedisStore::clone(&store), slots.clone(), tenants.clone());
            let (key, shared) = (keys[n % 20].clone(), shared.clone());
            async move {
                let set = [Check::new(&slots, &key, 1), Check::new(&tenants, &shared, 1)];
                let verdict = store.acquire(&set, Times::ONCE).wait().await.unwrap();
                verdict.is_granted().then(|| (verdict.each()[0].stamp(), verdict.each()[1].stamp()))
            }
        })
        .collect();
    let granted = claims.join_all().await.into_iter().flatten().count();
    assert!((1..=2).contains(&granted), "{granted}");
    let mut held = 0;
    for key in &keys {
        let verdict = store.acquire(&[Check::new(&slots, key, 1)], Times::LOOK).wait().await.unwrap();
        held += 3 - verdict.each()[0].remaining();
    }
    assert_eq!(held, granted as u64);
}
