//! Open and closed, through a layer and through a limiter, for each way to fail.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::BodyExt;
use tollgate::store::{BoxStore, Check, Store, Times, Verdict};
use tollgate::{Denial, Fields, Head, Key, Limiter, RateLimitLayer, Reason, Report, RequestLimiter, Wait};
use tollgate_tests::{
    Connection, EVERY_ALGORITHM, Strict, a_minute, bucket, call, field, per_minute, per_user, queue, request,
    timed,
};
use tower::Layer;

use crate::failure::{FAILURES, TIMEOUT, closed, failing, open};

/// How long a request waits for a store that fails in this way.
fn wait(failure: Connection) -> Duration {
    if failure == Connection::IsSilent { TIMEOUT } else { Duration::ZERO }
}

#[tokio::test(start_paused = true)]
async fn fail_open_admits_requests_without_quota_fields() {
    for failure in FAILURES {
        for fields in [Fields::Ietf, Fields::XDelta, Fields::XEpoch, Fields::None] {
            let (store, inner) = (failing(failure), Strict::default());
            let rules = [per_user("one", 1), queue("q", Duration::from_secs(5))];
            let layer = RateLimitLayer::new(rules).store(open(&store)).fields(fields);
            let mut service = layer.layer(inner.clone());
            for n in 1..=3 {
                let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
                assert_eq!((response.status().as_u16(), elapsed), (200, wait(failure)), "{failure:?}");
                assert!(response.headers().is_empty(), "{:?}", response.headers());
                assert_eq!(inner.calls(), n);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fail_closed_refuses_requests_with_retry_after() {
    for failure in FAILURES {
        for fields in [Fields::Ietf, Fields::XDelta] {
            let (store, inner) = (failing(failure), Strict::default());
            let rules = [per_user("p", 5), per_user("q", 5)];
            let layer = RateLimitLayer::new(rules).store(closed(&store)).fields(fields);
            let (response, elapsed) = timed(call(&mut layer.layer(inner.clone()), request("ada"))).await;
            assert_eq!((response.status().as_u16(), elapsed), (503, wait(failure)), "{failure:?}");
            assert_eq!(field(&response, "retry-after"), Some("1"));
            assert_eq!(response.headers().len(), 2, "{:?}", response.headers());
            let denial = response.extensions().get::<Denial>().unwrap();
            assert_eq!((denial.reason(), denial.violated().count()), (Reason::Unavailable, 0));
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(String::from_utf8_lossy(&body).contains("#temporary-reduced-capacity"), "{body:?}");
            assert_eq!(inner.calls(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovered_store_decides_and_has_not_counted_the_outage() {
    for failure in FAILURES {
        for (policy, meanwhile) in [(open as fn(&_) -> _, 200), (closed, 503)] {
            let store = failing(Connection::Works);
            let layer = RateLimitLayer::new([per_user("p", 2)]).store(policy(&store));
            let mut service = layer.layer(Strict::default());
            let mut told = Vec::new();
            for connection in [Connection::Works, failure, Connection::IsSlow(TIMEOUT / 2), Connection::Works]
            {
                store.set(connection);
                let response = call(&mut service, request("ada")).await;
                told.push((response.status().as_u16(), field(&response, "ratelimit").map(str::to_owned)));
            }
            let due = [
                (200, Some("\"p\";r=1;t=30".to_owned())),
                (meanwhile, None),
                (200, Some("\"p\";r=0;t=60".to_owned())),
                (429, Some("\"p\";r=0;t=30".to_owned())),
            ];
            assert_eq!(told, due, "{failure:?}");
        }
    }
}

/// Asks for these costs, each under a policy of its own.
async fn ask(store: &BoxStore<Infallible>, costs: &[u64], times: Times) -> Verdict {
    let key = Key::from("ada");
    let policies: Vec<_> =
        EVERY_ALGORITHM.iter().map(|algorithm| a_minute(algorithm.name(), *algorithm, 5)).collect();
    let set: Vec<_> =
        costs.iter().zip(&policies).map(|(cost, policy)| Check::new(policy, &key, *cost)).collect();
    let Ok(verdict) = store.acquire(&set, times).wait().await;
    verdict
}

#[tokio::test(start_paused = true)]
async fn fail_open_grants_all_times_asked_and_fail_closed_none() {
    for failure in FAILURES {
        let store = failing(failure);
        for times in [Times::ONCE, Times::LOOK, Times::up_to(8), Times::between(2, 3), Times::between(0, 4)] {
            let granted = ask(&open(&store), &[1, 9, 0], times).await;
            assert_eq!((granted.times(), granted.delay()), (times.max(), Duration::ZERO));
            let refused = ask(&closed(&store), &[1, 9, 0], times).await;
            assert_eq!((refused.times(), refused.delay()), (0, Duration::ZERO));
            for verdict in [granted, refused] {
                assert_eq!((verdict.each(), verdict.wait()), (&[][..], Wait::None), "nothing is known");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_cost_zero_always_passes() {
    for failure in FAILURES {
        let store = closed(&failing(failure));
        assert_eq!(ask(&store, &[0, 0], Times::ONCE).await.times(), 1);
        assert_eq!(ask(&store, &[], Times::up_to(3)).await.times(), 3);
        assert_eq!(ask(&store, &[0, 0], Times::LOOK).await.times(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_limiter_permits_or_denies_and_a_look_reports_nothing() {
    let ada = Key::from("ada");
    let request = request("ada");
    let head = Head::from(&request);
    for failure in FAILURES {
        let store = failing(failure);
        let wait = Duration::from_secs(5);
        let of_keys = || Limiter::new([per_minute("p", 5), bucket("q", wait)]);
        let of_requests = || RequestLimiter::new([per_user("p", 5), queue("q", wait)]);
        let (open_keys, open_requests) = (of_keys().store(open(&store)), of_requests().store(open(&store)));
        let (closed_keys, closed_requests) =
            (of_keys().store(closed(&store)), of_requests().store(closed(&store)));

        for permit in [open_requests.check(&head).await, open_keys.check(&ada, 1).await] {
            let permit = permit.expect("open");
            assert_eq!((permit.delay(), permit.report().statuses().len()), (Duration::ZERO, 0));
        }
        for denial in [closed_requests.check(&head).await, closed_keys.check(&ada, 1).await] {
            let denial = denial.unwrap_err();
            assert_eq!((denial.reason(), denial.status().as_u16()), (Reason::Unavailable, 503));
            assert_eq!((denial.retry_after(), denial.retry_after_seconds()), (None, Some(1)));
            assert_eq!(denial.report().statuses(), []);
        }
        for report in [
            open_requests.look(&head).await,
            open_keys.look(&ada).await,
            closed_requests.look(&head).await,
            closed_keys.look(&ada).await,
        ] {
            let report = report.expect("a look is not refused");
            let names: Vec<_> = report.policies().map(tollgate::Policy::name).collect();
            assert_eq!((names, report.statuses()), (vec!["p", "q"], &[][..]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_failed_open_is_not_refunded() {
    for failure in FAILURES {
        let store = failing(failure);
        let limiter = Limiter::new([per_minute("p", 5)]).store(open(&store));
        let ada = Key::from("ada");
        let permit = limiter.check(&ada, 3).await.expect("open");
        store.set(Connection::Works);
        let _ = limiter.check(&ada, 2).await.expect("room");
        let asked = store.asked();
        permit.refund().await;
        assert_eq!(store.asked(), asked, "the store is not bothered");
        assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_refunds_and_resets_change_nothing() {
    let ada = Key::from("ada");
    for failure in FAILURES {
        for policy in [open, closed] {
            let store = failing(Connection::Works);
            let limiter = Limiter::new([per_minute("p", 5)]).store(policy(&store));
            let permit = limiter.check(&ada, 3).await.expect("room");
            store.set(failure);
            assert_eq!(timed(permit.refund()).await.1, wait(failure));
            assert_eq!(timed(limiter.reset(&ada)).await.1, wait(failure));
            store.set(Connection::Works);
            assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 2);
            limiter.reset(&ada).await;
            assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_exposed_verdict_has_no_statuses_while_the_store_fails() {
    for failure in FAILURES {
        let layer = RateLimitLayer::new([per_user("p", 5)]).store(open(&failing(failure)));
        let response = call(&mut layer.expose_report().layer(Strict::default()), request("ada")).await;
        assert_eq!(response.extensions().get::<Report>().unwrap().statuses(), []);
    }
}
