//! Another store decides, over a share of the quotas, while the store fails.

use std::time::Duration;

use http_body_util::BodyExt;
use tollgate::failure::{Answering, ByShare, Guarded};
use tollgate::{
    Algorithm, Fields, Head, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer, Reason,
    Share, StoreExt,
};
use tollgate_tests::{
    Connection, EVERY_ALGORITHM, Failing, Later, Strict, a_minute, call, clock, field, per_minute, per_user,
    request, store, timed, user,
};
use tower::Layer;

use crate::failure::{FAILURES, TIMEOUT, failing};

const THIRD: Share = Share::new(1, 3);

/// That store, and another in memory for a third of what it grants.
fn with_a_third(inner: &Failing) -> Answering<Guarded<Failing>, ByShare<MemoryStore>> {
    inner.clone().timeout(TIMEOUT).fall_back_to(store(&clock()), THIRD)
}

#[tokio::test(start_paused = true)]
async fn three_nodes_with_a_third_each_admit_at_most_the_limit() {
    for failure in FAILURES {
        for algorithm in EVERY_ALGORITHM {
            for limit in [3, 9, 10, 11, 100] {
                let mut admitted = 0;
                for _node in 0..3 {
                    let limiter = Limiter::new([a_minute("p", algorithm, limit)]);
                    let limiter = limiter.store(with_a_third(&failing(failure)));
                    let ada = Key::from("ada");
                    while let Ok(permit) = limiter.check(&ada, 1).await {
                        assert_eq!(permit.report().share(), Some(THIRD));
                        admitted += 1;
                    }
                }
                assert_eq!(admitted, limit / 3 * 3, "{algorithm:?} {limit} {failure:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fields_and_denials_report_the_share() {
    let rules = || {
        [
            Policy::new("burst", Quota::per_second(10).burst(31)).by(user()),
            Policy::new("daily", Quota::per_day(100)).with_algorithm(Algorithm::FIXED_WINDOW).by(user()),
        ]
    };
    for failure in FAILURES {
        let inner = failing(Connection::Works);
        let layer = RateLimitLayer::new(rules()).store(with_a_third(&inner));
        let mut service = layer.clone().layer(Strict::default());
        let told = |response: &http::Response<_>| {
            ["ratelimit-policy", "ratelimit"].map(|name| field(response, name).map(str::to_owned))
        };
        let response = call(&mut service, request("ada")).await;
        assert_eq!(
            told(&response).map(Option::unwrap),
            [r#""burst";q=31;w=4, "daily";q=100;w=86400"#, r#""burst";r=30;t=1, "daily";r=99;t=86400"#]
        );
        inner.set(failure);
        let mut response = call(&mut service, request("ada")).await;
        assert_eq!(
            told(&response).map(Option::unwrap),
            [r#""burst";q=10;w=4, "daily";q=33;w=86400"#, r#""burst";r=9;t=1, "daily";r=32;t=86400"#]
        );
        for _ in 0..10 {
            response = call(&mut service, request("ada")).await;
        }
        assert_eq!((response.status().as_u16(), field(&response, "retry-after")), (429, Some("1")));
        assert_eq!(told(&response)[0].as_deref(), Some(r#""burst";q=10;w=4, "daily";q=33;w=86400"#));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains(r#""violated-policies":["burst"]"#), "{body:?}");

        for (fields, user) in [(Fields::XDelta, "bob"), (Fields::XEpoch, "cleo")] {
            let mut service = layer.clone().fields(fields).layer(Strict::default());
            let response = call(&mut service, request(user)).await;
            assert_eq!(field(&response, "x-ratelimit-limit"), Some("10"));
            assert_eq!(field(&response, "x-ratelimit-remaining"), Some("9"));
        }
        let response = call(&mut layer.fields(Fields::None).layer(Strict::default()), request("eve")).await;
        assert!(response.headers().is_empty());
    }
}

/// Each tier has a share of its own. That of a small tier may be less than one unit.
#[tokio::test(start_paused = true)]
async fn a_share_applies_to_the_tier_of_the_request() {
    let tier = |head: &Head<'_>, _: &Key| Some(head.headers().get("x-tier")?.to_str().ok()?.to_owned());
    let rule = |least| {
        let tiers = [("pro", Quota::per_minute(90)), ("least", Quota::per_minute(least))];
        per_user("api", 30).tiers(tiers, tier)
    };
    let inner = failing(FAILURES[0]);
    let mut service = RateLimitLayer::new([rule(3)]).store(with_a_third(&inner)).layer(Strict::default());
    for (tier, told) in
        [("none", r#""api";q=10;w=60"#), ("pro", r#""api";q=30;w=60"#), ("least", r#""api";q=1;w=60"#)]
    {
        let mut request = request(tier);
        request.headers_mut().insert("x-tier", tier.parse().unwrap());
        assert_eq!(field(&call(&mut service, request).await, "ratelimit-policy"), Some(told));
    }
    let mut service = RateLimitLayer::new([rule(2)]).store(with_a_third(&inner)).layer(Strict::default());
    for (tier, status) in [("none", 200), ("pro", 200), ("least", 503)] {
        let mut request = request(tier);
        request.headers_mut().insert("x-tier", tier.parse().unwrap());
        assert_eq!(call(&mut service, request).await.status(), status, "{tier}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovered_store_decides_again() {
    for failure in FAILURES {
        let inner = failing(Connection::Works);
        let limiter = Limiter::new([per_minute("p", 30)]).store(with_a_third(&inner));
        let ada = Key::from("ada");
        let mut left = Vec::new();
        for connection in [Connection::Works, failure, failure, Connection::Works, failure, Connection::Works]
        {
            inner.set(connection);
            left.push(limiter.check(&ada, 1).await.unwrap().report().statuses()[0].remaining());
        }
        assert_eq!(
            left,
            [29, 9, 8, 28, 7, 27],
            "{failure:?}: an outage that returns finds what the last left"
        );
    }
}

/// A refund goes to the store that charged, even if the other one answers by then.
#[tokio::test(start_paused = true)]
async fn a_refund_goes_to_the_store_that_granted() {
    let ada = Key::from("ada");
    for failure in FAILURES {
        for algorithm in EVERY_ALGORITHM {
            let inner = failing(Connection::Works);
            let limiter = Limiter::new([a_minute("p", algorithm, 30)]).store(with_a_third(&inner));
            let left = async |connection| {
                inner.set(connection);
                limiter.look(&ada).await.unwrap().statuses()[0].remaining()
            };
            let by_store = limiter.check(&ada, 5).await.unwrap();
            inner.set(failure);
            let by_fallback = limiter.check(&ada, 4).await.unwrap();
            assert_eq!((left(Connection::Works).await, left(failure).await), (25, 6), "{algorithm:?}");
            inner.set(Connection::Works);
            by_fallback.refund().await;
            assert_eq!((left(Connection::Works).await, left(failure).await), (25, 10), "{algorithm:?}");
            inner.set(Connection::Works);
            by_store.refund().await;
            assert_eq!((left(Connection::Works).await, left(failure).await), (30, 10), "{algorithm:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_in_both_stores() {
    let ada = Key::from("ada");
    for failure in FAILURES {
        let inner = failing(failure);
        let limiter = Limiter::new([per_minute("p", 30)]).store(with_a_third(&inner));
        let _ = limiter.check(&ada, 5).await.unwrap();
        inner.set(Connection::Works);
        let _ = limiter.check(&ada, 5).await.unwrap();
        limiter.reset(&ada).await;
        assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 30);
        inner.set(failure);
        assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 10);
    }
}

/// With a 422 the client would never come back, and with a 429 it would come back without success.
#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_alone_is_refused_as_an_outage() {
    for failure in FAILURES {
        let limiter = Limiter::new([per_minute("p", 30)]).store(with_a_third(&failing(failure)));
        let ada = Key::from("ada");
        for (cost, reason) in
            [(11, Reason::Unavailable), (30, Reason::Unavailable), (31, Reason::NeverPossible)]
        {
            let denial = limiter.check(&ada, cost).await.unwrap_err();
            assert_eq!(denial.reason(), reason, "{cost}");
        }
        let report = limiter.look(&ada).await.unwrap();
        assert_eq!((report.share(), report.statuses()[0].remaining()), (Some(THIRD), 10));
        assert!(limiter.check(&ada, 10).await.is_ok(), "nothing was charged");
    }
}

/// Policies of which a third is less than one unit.
fn small() -> [Policy; 3] {
    let queue = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
    [
        Policy::new("p", Quota::per_minute(2)),
        Policy::new("p", Quota::per_minute(20).burst(2)),
        Policy::new("p", Quota::per_minute(20)).with_algorithm(queue),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_share_below_one_unit_refuses_during_the_outage_and_at_no_other_time() {
    for policy in small() {
        let inner = failing(Connection::Works);
        let limiter = Limiter::new([policy.clone()]).store(with_a_third(&inner));
        let ada = Key::from("ada");
        assert!(limiter.check(&ada, 1).await.is_ok(), "{policy:?}");
        limiter.replace([policy.clone(), per_minute("fine", 9)]).unwrap();
        inner.set(FAILURES[0]);
        assert_eq!(limiter.check(&ada, 1).await.unwrap_err().reason(), Reason::Unavailable);
        assert!(limiter.check_each(&[("fine", &ada, 1)]).await.is_ok(), "the others have their share");
        inner.set(Connection::Works);
        limiter.reset(&ada).await;
        assert!(limiter.check(&ada, 1).await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn at_least_one_unit_is_granted_to_each_key() {
    for policy in small() {
        let inner = failing(FAILURES[0]);
        let limiter = Limiter::new([policy.clone()]).store(with_a_third(&inner).at_least_one());
        for user in ["ada", "bob"] {
            let permit = limiter.check(&Key::from(user), 1).await.unwrap();
            assert_eq!(permit.report().share(), Some(THIRD));
            assert!(limiter.check(&Key::from(user), 1).await.is_err(), "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_unit_was_granted_for_is_refunded() {
    let limiter = Limiter::new([per_minute("p", 2)]);
    let limiter = limiter.store(with_a_third(&failing(FAILURES[0])).at_least_one());
    let ada = Key::from("ada");
    for _ in 0..3 {
        let permit = limiter.check(&ada, 1).await.unwrap();
        assert!(limiter.check(&ada, 1).await.is_err());
        permit.refund().await;
    }
}

/// Such as a rule that charges only some methods.
#[tokio::test(start_paused = true)]
async fn a_cost_of_zero_passes_under_a_share_of_nothing() {
    for failure in FAILURES {
        let limiter = Limiter::new([per_minute("heavy", 2), per_minute("pages", 9)]);
        let limiter = limiter.store(with_a_third(&failing(failure)));
        let ada = Key::from("ada");
        for _ in 0..3 {
            let permit = limiter.check_each(&[("heavy", &ada, 0), ("pages", &ada, 1)]).await.unwrap();
            assert_eq!(permit.report().share(), Some(THIRD));
        }
        let refused = limiter.check_each(&[("heavy", &ada, 0), ("pages", &ada, 1)]).await.unwrap_err();
        assert_eq!(refused.violated().collect::<Vec<_>>(), ["pages"]);
        assert_eq!(limiter.check(&ada, 1).await.unwrap_err().reason(), Reason::Unavailable);
    }
}

/// A fallback whose answer must be awaited too, such as a second server nearby.
#[tokio::test(start_paused = true)]
async fn an_awaited_fallback_store_decides() {
    for failure in FAILURES {
        let inner = failing(failure);
        let fallback = Later::deciding_last(store(&clock()));
        let limiter = Limiter::new([per_minute("p", 9)])
            .store(inner.clone().timeout(TIMEOUT).fall_back_to(fallback, THIRD));
        let ada = Key::from("ada");
        let (permit, elapsed) = timed(limiter.check(&ada, 2)).await;
        assert!(elapsed <= TIMEOUT);
        let permit = permit.unwrap();
        assert_eq!((permit.report().share(), permit.report().statuses()[0].remaining()), (Some(THIRD), 1));
        assert_eq!(limiter.check(&ada, 2).await.unwrap_err().reason(), Reason::QuotaExceeded);
        assert_eq!(limiter.check(&ada, 4).await.unwrap_err().reason(), Reason::Unavailable);
        permit.refund().await;
        assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 3);
        let _ = limiter.check(&ada, 1).await.unwrap();
        limiter.reset(&ada).await;
        assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 3);
    }
}
