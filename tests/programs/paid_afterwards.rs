//! What was used is charged afterwards: of several policies at once, and without a permit.

use std::time::Duration;

use tollgate::store::{NeverFails, Settled, Store};
use tollgate::usage::UsageTotals;
use tollgate::{Algorithm, Key, Limit, Limiter, Policy, Question, Quota, SetupError, StoreExt};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, clock, per_minute, store};

fn ada() -> Key {
    Key::from("ada")
}

/// In a day a slow machine does not refill a unit.
fn a_day(algorithm: Algorithm) -> Policy {
    Policy::try_from_parts("p", Quota::per_day(100), algorithm).expect("a valid policy")
}

fn charged(units: u64) -> Settled {
    Settled { charged: units, ..Settled::default() }
}

async fn left<S: Store<Error: NeverFails>>(limiter: &Limiter<S>) -> Vec<u64> {
    limiter.look(&ada()).await.unwrap().statuses().iter().map(|status| status.remaining()).collect()
}

async fn each_is_settled<S: Store<Error: NeverFails>>(store: S) {
    let policies = ["tpm", "tpd", "requests"].map(|name| Policy::new(name, Quota::per_day(1_000)));
    let limiter = Limiter::new(policies).store(store);
    let mut permit = limiter.check(&ada(), 100).await.unwrap();
    let settled = permit.settle_each(&[("tpd", 30), ("tpm", 130)]).await;
    assert_eq!(settled, [charged(30), charged(130)]);
    assert_eq!(left(&limiter).await, [870, 970, 900]);
    // What was settled stays, and what was not is refunded.
    permit.refund().await;
    assert_eq!(left(&limiter).await, [870, 970, 1_000]);
}

#[tokio::test]
async fn several_policies_are_settled_each_to_its_total() {
    each_is_settled(store(&clock())).await;
    let server = Server::start(Kind::Redis8_2).unwrap();
    each_is_settled(RedisStore::connect(&server.url()).await.unwrap().fail_closed()).await;
}

#[tokio::test]
async fn several_policies_are_settled_in_one_call() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap().fail_closed();
    let limiter =
        Limiter::new(["tpm", "tpd"].map(|name| Policy::new(name, Quota::per_day(1_000)))).store(redis);
    let scripts = || {
        let stats = server.command(&["INFO", "commandstats"]).unwrap();
        let of = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.map_or(0, |rest| rest.split(',').next().unwrap().parse::<u32>().unwrap())
        };
        of("evalsha") + of("eval")
    };
    let mut calls = 0;
    // The first settlement loads the script.
    for _ in 0..2 {
        let mut permit = limiter.check(&ada(), 100).await.unwrap();
        let before = scripts();
        permit.settle_each(&[("tpm", 37), ("tpd", 37)]).await;
        calls = scripts() - before;
    }
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn an_unknown_name_settles_nothing() {
    let limiter = Limiter::new([per_minute("tpm", 1_000)]).store(store(&clock()));
    let mut permit = limiter.check(&ada(), 100).await.unwrap();
    let unknown = permit.try_settle_each(&[("tpm", 5), ("tpd", 5)]).await;
    assert!(matches!(unknown, Err(SetupError::UnknownPolicy(name, _)) if name == "tpd"));
    let twice = permit.try_settle_each(&[("tpm", 5), ("tpm", 6)]).await;
    assert_eq!(twice, Err(SetupError::AskedTwice("tpm".to_owned())));
    assert_eq!(left(&limiter).await, [900]);
    assert_eq!(permit.settle_each(&[("tpm", 5)]).await, [charged(5)]);
    assert_eq!(permit.settle_each(&[("tpm", 5)]).await, [Settled { forgiven: 5, ..Settled::default() }]);
}

/// The key of the block is the key of its policy.
#[tokio::test]
async fn what_was_settled_is_not_settled_again_by_its_block() {
    let limiter = Limiter::new([per_minute("tpm", 1_000).block_after(20, Duration::from_secs(900))]);
    let forgiven = |units| Settled { forgiven: units, ..Settled::default() };
    let mut permit = limiter.check(&ada(), 10).await.unwrap();
    assert_eq!(permit.settle_each(&[("tpm", 7)]).await, [charged(7)]);
    assert_eq!(permit.settle_each(&[("tpm", 50)]).await, [forgiven(50)]);
    assert_eq!(permit.charge("tpm").settle(50).await, forgiven(50));
    assert_eq!(limiter.blocked("tpm", &ada()).await, None);
    assert!(limiter.check(&ada(), 1).await.is_ok());
}

async fn debits_are_charged<S: Store<Error: NeverFails>>(store: S, algorithm: Algorithm) {
    let limiter = Limiter::new([a_day(algorithm)]).store(store);
    assert_eq!(limiter.debit(("p", &ada(), 30)).await, charged(30), "{algorithm:?}");
    let rest = left(&limiter).await[0];
    assert!((70..=71).contains(&rest), "{algorithm:?} has {rest}");
    let beyond = limiter.debit(("p", &ada(), 1_000)).await;
    assert_eq!(beyond.charged + beyond.forgiven, 1_000, "{algorithm:?}");
    assert!((99..=100).contains(&beyond.debt), "one more capacity: {beyond:?} {algorithm:?}");
    assert!(limiter.check(&ada(), 1).await.is_err(), "{algorithm:?}");
    assert_eq!(limiter.debit(("p", &Key::from(""), 5)).await.charged, 0, "no caller has the empty key");
}

#[tokio::test]
async fn a_debit_is_charged_without_a_permit() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap().fail_closed();
    for algorithm in EVERY_ALGORITHM {
        if matches!(algorithm, Algorithm::LeakyBucket { .. }) {
            continue;
        }
        debits_are_charged(store(&clock()), algorithm).await;
        debits_are_charged(redis.clone(), algorithm).await;
    }
}

#[tokio::test]
async fn slots_and_queues_take_no_debit_and_no_credit() {
    let queue = EVERY_ALGORITHM.into_iter().find(|one| matches!(one, Algorithm::LeakyBucket { .. }));
    let queue = a_minute("queue", queue.unwrap(), 10);
    let limiter = Limiter::new([queue, Policy::in_flight("slots", 2)]).store(store(&clock()));
    for name in ["queue", "slots"] {
        let refused = limiter.try_debit((name, &ada(), 1)).await;
        assert_eq!(refused, Err(SetupError::NoDebt(name.to_owned())));
        let refused = limiter.try_credit((name, &ada(), 1)).await;
        assert_eq!(refused, Err(SetupError::NoDebt(name.to_owned())));
    }
    assert!(matches!(limiter.try_debit(("no", &ada(), 1)).await, Err(SetupError::UnknownPolicy(..))));
}

async fn credits_are_given<S: Store<Error: NeverFails>>(store: S, algorithm: Algorithm) {
    let limiter = Limiter::new([a_day(algorithm)]).store(store);
    limiter.debit(("p", &ada(), 130)).await;
    limiter.credit(("p", &ada(), 20)).await;
    assert_eq!(left(&limiter).await, [0], "debt is paid first: {algorithm:?}");
    limiter.credit(("p", &ada(), 50)).await;
    let rest = left(&limiter).await[0];
    assert!((40..=41).contains(&rest), "{algorithm:?} has {rest}");
    limiter.credit(("p", &ada(), u64::MAX)).await;
    assert_eq!(left(&limiter).await, [100], "no more than were used: {algorithm:?}");
    limiter.credit(("p", &Key::from(""), 5)).await;
    // All that it used and owes, at once.
    limiter.debit(("p", &ada(), 190)).await;
    limiter.credit(("p", &ada(), 190)).await;
    assert_eq!(left(&limiter).await, [100], "{algorithm:?}");
}

#[tokio::test]
async fn a_credit_pays_debt_first_and_gives_no_more_than_was_used() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap().fail_closed();
    for algorithm in EVERY_ALGORITHM {
        if matches!(algorithm, Algorithm::LeakyBucket { .. }) {
            continue;
        }
        credits_are_given(store(&clock()), algorithm).await;
        credits_are_given(redis.clone(), algorithm).await;
    }
}

async fn a_row_is_corrected_by_its_limit<S: Store<Error: NeverFails>>(store: S, algorithm: Algorithm) {
    let limiter = Limiter::new([a_day(algorithm)]).store(store);
    let ada = ada();
    let question = |units| Question::new("p", &ada, units).limit(Quota::per_day(1_000));
    let left = async || {
        let report = limiter.look_each(&[question(1)]).await.unwrap();
        report.get("p").unwrap().1.remaining()
    };
    let settled = limiter.debit(question(700)).await;
    assert_eq!(settled, charged(700), "no debt by the limit of the row: {algorithm:?}");
    assert!((300..=301).contains(&left().await), "{algorithm:?}");
    limiter.credit(question(200)).await;
    assert!((500..=501).contains(&left().await), "{algorithm:?}");

    for limit in [Limit::Unlimited, Limit::Nothing] {
        let settled = limiter.debit(question(100).limit(limit)).await;
        assert_eq!(settled, Settled { forgiven: 100, ..Settled::default() }, "{algorithm:?}");
        limiter.credit(question(u64::MAX).limit(limit)).await;
    }
    assert!((500..=501).contains(&left().await), "such a row changes nothing: {algorithm:?}");
}

#[tokio::test]
async fn a_key_with_a_limit_of_its_own_is_debited_and_credited_by_it() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap().fail_closed();
    for algorithm in EVERY_ALGORITHM {
        if matches!(algorithm, Algorithm::LeakyBucket { .. }) {
            continue;
        }
        a_row_is_corrected_by_its_limit(store(&clock()), algorithm).await;
        a_row_is_corrected_by_its_limit(redis.clone(), algorithm).await;
    }
}

#[tokio::test]
async fn a_limit_that_the_policy_does_not_allow_corrects_nothing() {
    let limiter = Limiter::new([a_day(Algorithm::FIXED_WINDOW)]).store(store(&clock()));
    let (ada, hour) = (ada(), Quota::per_hour(100));
    let question = Question::new("p", &ada, 50).limit(hour);
    let refused = SetupError::QuotaNotAllowed("p".to_owned(), hour);
    assert_eq!(limiter.try_debit(question).await, Err(refused.clone()));
    assert_eq!(limiter.try_credit(question).await, Err(refused));
    assert_eq!(left(&limiter).await, [100]);
}

/// The units were used.
#[tokio::test]
async fn a_credit_leaves_what_is_tracked_of_the_key() {
    let server = Server::start(Kind::Redis8_2).unwrap();
    let (redis, memory) = (RedisStore::connect(&server.url()).await.unwrap(), store(&clock()));
    let policy = || per_minute("p", 100).track_usage();
    let of_redis = Limiter::new([policy()]).store(redis.clone().fail_closed());
    let of_memory = Limiter::new([policy()]).store(memory.clone());
    of_redis.debit(("p", &ada(), 30)).await;
    of_memory.debit(("p", &ada(), 30)).await;
    of_redis.credit(("p", &ada(), 10)).await;
    of_memory.credit(("p", &ada(), 10)).await;
    let totals = [redis.total_of("p", &ada()).await, memory.total_of("p", &ada()).await];
    assert_eq!(totals.map(|total| total.unwrap().unwrap().total), [30, 30]);
}

#[tokio::test]
async fn a_denial_that_is_remembered_ends_with_a_credit() {
    let limiter = Limiter::new([per_minute("p", 10)]).store(store(&clock()).deny_cache(10));
    let _first = limiter.check(&ada(), 10).await.unwrap();
    assert!(limiter.check(&ada(), 1).await.is_err());
    limiter.credit(("p", &ada(), 3)).await;
    assert!(limiter.check(&ada(), 3).await.is_ok());
}
