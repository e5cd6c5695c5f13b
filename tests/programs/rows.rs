//! Limits that a program reads from rows: a quota, none, nothing at all, or the policy's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use tollgate::store::{NeverFails, Source, Store};
use tollgate::{
    Algorithm, Key, Limit, Limiter, Outcome, Policy, Question, Quota, QuotaError, Reason, SetupError,
};
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, clock, per_minute, store};

/// What a table says: `-1` is unlimited, and 0 nothing at all.
fn limit(row: Option<i64>) -> Result<Limit, QuotaError> {
    Ok(match row {
        None => Limit::Own,
        Some(-1) => Limit::Unlimited,
        Some(0) => Limit::Nothing,
        // A negative number is an error, as a quota of 0 is.
        Some(n) => Limit::Of(Quota::try_per_minute(n.try_into().unwrap_or(0))?),
    })
}

fn limiter<S: Store<Error: NeverFails>>(store: S) -> Limiter<S> {
    let requests = a_minute("requests", Algorithm::FIXED_WINDOW, 2);
    Limiter::new([requests, per_minute("tokens", 100)]).store(store)
}

/// How many of ten requests pass by this row.
async fn passed<S: Store<Error: NeverFails>>(limiter: &Limiter<S>, user: &str, row: Option<i64>) -> usize {
    let (key, limit) = (Key::from(user), limit(row).unwrap());
    let mut passed = 0;
    for _ in 0..10 {
        let question = Question::new("requests", &key, 1).limit(limit);
        passed += usize::from(limiter.check_each(&[question]).await.is_ok());
    }
    passed
}

async fn rows_decide<S: Store<Error: NeverFails>>(store: S) {
    let limiter = limiter(store);
    assert_eq!(passed(&limiter, "own", None).await, 2);
    assert_eq!(passed(&limiter, "five", Some(5)).await, 5);
    assert_eq!(passed(&limiter, "unlimited", Some(-1)).await, 10);
    assert_eq!(passed(&limiter, "nothing", Some(0)).await, 0);
    // A row that changes: what is used stays used, and what was not counted is not.
    assert_eq!(passed(&limiter, "five", Some(9)).await, 4);
    assert_eq!(passed(&limiter, "unlimited", Some(3)).await, 3);
    assert_eq!(passed(&limiter, "nothing", Some(1)).await, 1);
}

#[tokio::test]
async fn each_row_is_a_limit_of_its_key() {
    rows_decide(store(&clock())).await;
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::connect(&server.url()).await.unwrap();
    rows_decide(tollgate::StoreExt::fail_closed(redis)).await;
}

/// As the guide writes it.
async fn upgrade<S: Store<Error: NeverFails>>(limits: &Limiter<S>, key: &Key, before: Limit, now: Limit) {
    let Ok(report) = limits.look_each(&[Question::new("requests", key, 1).limit(before)]).await else {
        return;
    };
    let used = report.get("requests").map_or(0, |(policy, status)| policy.capacity() - status.remaining());
    limits.reset(key).await;
    limits.debit(Question::new("requests", key, used).limit(now)).await;
}

async fn upgrades_keep_what_was_used<S: Store<Error: NeverFails>>(store: S) {
    for (user, algorithm) in (0_u64..).zip(EVERY_ALGORITHM) {
        if matches!(algorithm, Algorithm::LeakyBucket { .. }) {
            continue;
        }
        let limit = |units| Limit::Of(a_minute("requests", algorithm, units).quota());
        let (before, now) = (limit(10), limit(100));
        let limits = Limiter::new([a_minute("requests", algorithm, 5)]).store(store.clone());
        let key = Key::from(user);
        let ask = |cost, limit| [Question::new("requests", &key, cost).limit(limit)];
        assert!(limits.check_each(&ask(10, before)).await.is_ok());
        upgrade(&limits, &key, before, now).await;
        assert!(limits.check_each(&ask(91, now)).await.is_err(), "{algorithm:?}");
        assert!(limits.check_each(&ask(90, now)).await.is_ok(), "{algorithm:?}");
        limits.reset(&key).await;
        upgrade(&limits, &key, Limit::Nothing, now).await;
        assert!(limits.check_each(&ask(100, now)).await.is_ok(), "{algorithm:?}");
    }
}

#[tokio::test]
async fn after_an_upgrade_what_was_used_stays_used_and_the_rest_is_there() {
    upgrades_keep_what_was_used(store(&clock())).await;
    let server = Server::start(Kind::Redis8_2).unwrap();
    let redis = RedisStore::builder(&server.url()).clock(&clock()).connect().await.unwrap();
    upgrades_keep_what_was_used(tollgate::StoreExt::fail_closed(redis)).await;
}

#[test]
fn a_row_that_cannot_be_read_is_no_limit() {
    assert!(limit(Some(-2)).is_err());
    let error = "0/min".parse::<Limit>().unwrap_err().to_string();
    assert!(!error.contains("unlimited"), "not of a part of the text: {error}");
    for text in ["", "0/min", "-1", "Unlimited", "null", "100"] {
        assert!(text.parse::<Limit>().is_err(), "{text:?}");
    }
    let error = "60".parse::<Limit>().unwrap_err().to_string();
    assert!(error.ends_with("such as 100/min or 5/10s burst 20, or unlimited, none or own"), "{error}");
    assert_eq!("unlimited".parse(), Ok(Limit::Unlimited));
    assert_eq!("own".parse(), Ok(Limit::Own));
    assert_eq!("5/10s burst 20".parse(), Ok(Limit::Of(Quota::new(5, Duration::from_secs(10)).burst(20))));
    assert_eq!(Limit::from(None::<Quota>), Limit::Own);
}

#[tokio::test]
async fn nothing_at_all_is_refused_before_anything_is_charged() {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let seen_too = Arc::clone(&seen);
    let blocking = per_minute("tokens", 100).block_after(1, Duration::from_secs(60));
    let limiter = Limiter::new([per_minute("requests", 2), blocking]).store(store(&clock()));
    let limiter = limiter.observe(move |decision| {
        let (policy, outcome) = (decision.policy().name().to_owned(), decision.outcome());
        seen_too.lock().unwrap().push((policy, outcome, decision.source()));
    });
    let key = Key::from("ada");
    for _ in 0..3 {
        let questions =
            [Question::new("requests", &key, 1), Question::new("tokens", &key, 1).limit(Limit::Nothing)];
        let denial = limiter.check_each(&questions).await.unwrap_err();
        assert_eq!((denial.reason(), denial.status()), (Reason::NothingAllowed, StatusCode::FORBIDDEN));
        assert_eq!((denial.retry_after(), denial.retry_after_seconds()), (None, None));
        assert_eq!(denial.to_string(), "nothing is allowed: tokens");
    }
    assert_eq!(*seen.lock().unwrap(), vec![("tokens".to_owned(), Outcome::Denied, Source::Rule); 3]);
    assert_eq!(limiter.look(&key).await.unwrap().statuses()[0].remaining(), 2);
    assert_eq!(limiter.blocked("tokens", &key).await, None, "it counts for no block");
}

#[tokio::test]
async fn a_permit_without_a_limit_has_its_name_and_keeps_nothing() {
    let limiter = limiter(store(&clock()));
    let key = Key::from("ada");
    let questions =
        [Question::new("requests", &key, 1), Question::new("tokens", &key, 5_000).limit(Limit::Unlimited)];
    let mut permit = limiter.check_each(&questions).await.unwrap();
    let charge = permit.charge("tokens");
    assert_eq!((charge.policy(), charge.reserved()), ("tokens", 0));
    charge.settle(9_000).await;
    permit.refund().await;
    let left: Vec<_> = limiter.look(&key).await.unwrap().statuses().iter().map(|s| s.remaining()).collect();
    assert_eq!(left, [2, 100]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_a_limit_does_not_wait() {
    let limiter = limiter(store(&clock()));
    let key = Key::from("ada");
    limiter.check_each(&[("requests", &key, 2)]).await.map(drop).unwrap();
    let unlimited = [Question::new("requests", &key, 1).limit(Limit::Unlimited)];
    limiter.until_ready_each(&unlimited, Duration::ZERO).await.map(drop).unwrap();
    let more = [Question::new("requests", &key, 1).limit(Quota::per_minute(3))];
    limiter.until_ready_each(&more, Duration::ZERO).await.map(drop).unwrap();
}

#[tokio::test]
async fn a_quota_that_a_policy_does_not_allow_is_an_error() {
    let limiter = limiter(store(&clock()));
    let key = Key::from("ada");
    for quota in [Quota::per_hour(5), Quota::per_minute(5).burst(9)] {
        let question = Question::new("requests", &key, 1).limit(quota);
        let error = limiter.try_check_each(&[question]).await.unwrap_err();
        assert_eq!(error, SetupError::QuotaNotAllowed("requests".to_owned(), quota));
    }
    assert_eq!(limiter.look(&key).await.unwrap().statuses()[0].remaining(), 2);
}

/// More limits than a policy keeps policies for, each of them used again.
#[tokio::test]
async fn many_limits_in_turn_each_hold() {
    let limiter = Limiter::new([Policy::new("requests", Quota::per_minute(1))]).store(store(&clock()));
    for round in 0..2 {
        for n in 1..=10_000_u64 {
            let (key, quota) = (Key::from(n), Quota::per_minute(n));
            let question = Question::new("requests", &key, n).limit(quota);
            let passes = limiter.check_each(&[question]).await.is_ok();
            assert_eq!(passes, round == 0, "{n} in round {round}");
        }
    }
}
