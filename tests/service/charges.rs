//! Charges that handlers and responses correct.

#![expect(clippy::unwrap_used, reason = "what tests are made of panics where they fail, as they do")]

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::task::JoinSet;
use tollgate::charge::{Charges, ResponseHead};
use tollgate::extract::header;
use tollgate::store::Settled;
use tollgate::{
    Algorithm, Charge, Fields, Head, Key, Limiter, Outcome, Policy, PolicyExt, Quota, RateLimitLayer, Rule,
    SetupError, Share,
};
use tollgate_tests::{EVERY_ALGORITHM, a_minute, bucket, clock, store};
use tower::{Layer, Service, ServiceExt, service_fn};

/// What a handler does with its charges.
type Work = Arc<dyn Fn(Charges) -> Response<String> + Send + Sync>;

fn ada() -> Request<String> {
    Request::get("/").header("x-user", "ada").body(String::new()).unwrap()
}

fn works(
    layer: &RateLimitLayer,
    work: impl Fn(Charges) -> Response<String> + Send + Sync + 'static,
) -> impl Service<Request<String>, Response = Response<impl Sized>, Error = Infallible, Future: Send> + Clone
{
    let work: Work = Arc::new(work);
    layer.layer(service_fn(move |request: Request<String>| {
        let charges = request.extensions().get::<Charges>().cloned().unwrap_or_default();
        let response = work(charges);
        async move { Ok::<_, Infallible>(response) }
    }))
}

/// The answer of a store in memory.
fn now<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("a store in memory answers at once"),
    }
}

fn done() -> Response<String> {
    Response::new(String::new())
}

/// The algorithms that have debt.
fn each_algorithm() -> impl Iterator<Item = Algorithm> {
    EVERY_ALGORITHM.into_iter().filter(|algorithm| !matches!(algorithm, Algorithm::LeakyBucket { .. }))
}

fn tokens(algorithm: Algorithm, limit: u64, estimate: u64) -> Rule {
    a_minute("tokens", algorithm, limit).by(header("x-user")).reserve(move |_: &Head<'_>| estimate)
}

async fn left(layer: &RateLimitLayer) -> u64 {
    layer.limiter().look(&Head::from(&ada())).await.unwrap().statuses()[0].remaining()
}

/// The charge of a request, whose handler leaves it to the test.
async fn charge_of_a_request(layer: &RateLimitLayer) -> Charge {
    let kept = Arc::<Mutex<Option<Charge>>>::default();
    let keeps = Arc::clone(&kept);
    let service = works(layer, move |charges| {
        *keeps.lock().unwrap() = charges.of("tokens").cloned();
        done()
    });
    service.oneshot(ada()).await.unwrap();
    let charge = kept.lock().unwrap().take();
    charge.unwrap()
}

#[tokio::test]
async fn a_handler_settles_less_than_reserved() {
    for algorithm in each_algorithm() {
        let layer = super::layer(&clock(), [tokens(algorithm, 1_000, 500)]);
        let charge = charge_of_a_request(&layer).await;
        assert_eq!((charge.policy(), charge.reserved(), left(&layer).await), ("tokens", 500, 500));
        let settled = charge.settle(137).await;
        assert_eq!(settled, Settled { charged: 137, ..Settled::default() }, "{algorithm:?}");
        assert_eq!(left(&layer).await, 863);
        assert_eq!(charge.clone().settle(900).await, Settled::default(), "the first counts");
        assert_eq!((left(&layer).await, charge.reserved()), (863, 0));
    }
}

#[tokio::test]
async fn what_exceeds_the_quota_is_owed_up_to_one_more_capacity() {
    let all_is_owed = Settled { charged: 1_800, debt: 800, forgiven: 0, ..Settled::default() };
    let some_is_forgiven = Settled { charged: 2_000, debt: 1_000, forgiven: 1_600, ..Settled::default() };
    let cases = [(450, all_is_owed), (900, some_is_forgiven)];
    for (algorithm, (used, expected)) in
        each_algorithm().flat_map(|algorithm| cases.map(|case| (algorithm, case)))
    {
        let layer = super::layer(&clock(), [tokens(algorithm, 1_000, 10)]);
        let open = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&open);
        let service = works(&layer, move |charges| {
            keeps.lock().unwrap().extend(charges.of("tokens").cloned());
            done()
        });
        for _ in 0..4 {
            service.clone().oneshot(ada()).await.unwrap();
        }
        let mut settled = Settled::default();
        for charge in open.lock().unwrap().drain(..) {
            let Settled { charged, debt, forgiven, .. } = now(charge.settle(used));
            settled.charged += charged;
            settled.debt += debt;
            settled.forgiven += forgiven;
        }
        assert_eq!(settled, expected, "{algorithm:?}");
        assert_eq!(left(&layer).await, 0);
        assert_eq!(service.oneshot(ada()).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    }
}

#[tokio::test]
async fn requests_wait_until_the_debt_is_paid() {
    let time = clock();
    let layer = super::layer(&time, [tokens(Algorithm::Gcra, 60, 10)]);
    let service = works(&layer, |charges| {
        charges.of("tokens").unwrap().used(90);
        done()
    });
    service.clone().oneshot(ada()).await.unwrap();
    let mut statuses = Vec::new();
    for wait in [0, 39_999, 1] {
        time.advance(Duration::from_millis(wait));
        let limiter = layer.limiter();
        statuses.push(limiter.look(&Head::from(&ada())).await.unwrap().statuses()[0].wait());
    }
    let ms = |ms| tollgate::Wait::For(Duration::from_millis(ms));
    assert_eq!(statuses, [ms(40_000), ms(1), tollgate::Wait::None]);
}

/// Usage that is added after the response lets all requests in flight pass.
#[tokio::test]
async fn requests_in_flight_hold_their_estimates() {
    for algorithm in each_algorithm() {
        let layer = super::layer(&clock(), [tokens(algorithm, 1_000, 100)]);
        let in_flight = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&in_flight);
        let service = works(&layer, move |charges| {
            keeps.lock().unwrap().extend(charges.of("tokens").cloned());
            done()
        });
        for _ in 0..30 {
            service.clone().oneshot(ada()).await.unwrap();
        }
        assert_eq!(in_flight.lock().unwrap().len(), 10, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_correction_refunds_the_window_that_paid_and_no_other() {
    for algorithm in each_algorithm() {
        let time = clock();
        let layer = super::layer(&time, [tokens(algorithm, 1_000, 500)]);
        let open = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&open);
        let service = works(&layer, move |charges| {
            keeps.lock().unwrap().extend(charges.of("tokens").cloned());
            done()
        });
        service.clone().oneshot(ada()).await.unwrap();
        time.advance(Duration::from_secs(180));
        service.oneshot(ada()).await.unwrap();
        let [first, second] = &open.lock().unwrap()[..] else { panic!("two requests") };
        assert_eq!(now(first.settle(0)).charged, 0);
        assert_eq!(now(left(&layer)), 500, "{algorithm:?}");
        now(second.settle(100));
        assert_eq!(now(left(&layer)), 900, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_reservation_lasts_as_long_as_the_work() {
    for algorithm in each_algorithm() {
        let time = clock();
        let policy = Policy::try_from_parts("tokens", Quota::per_day(1_000), algorithm).unwrap();
        let layer = super::layer(&time, [policy.by(header("x-user")).reserve(|_| 900)]);
        let charge = charge_of_a_request(&layer).await;
        // Of a clock that is aligned to the day, midnight is not reached.
        time.advance(Duration::from_secs(3_600));
        let refilled = if algorithm == Algorithm::Gcra { 41 } else { 0 };
        assert_eq!(left(&layer).await, 100 + refilled, "{algorithm:?}");
        charge.extend(100).await.unwrap();
        assert_eq!(charge.settle(300).await.charged, 300);
        assert_eq!(left(&layer).await, 700 + refilled, "{algorithm:?}");
    }
}

/// Clients that go away pay for what was produced.
#[tokio::test]
async fn the_drop_of_the_last_handle_settles_to_what_was_used() {
    for algorithm in each_algorithm() {
        let layer = super::layer(&clock(), [tokens(algorithm, 1_000, 500)]);
        let service = works(&layer, |charges| {
            let charge = charges.of("tokens").unwrap().clone();
            (0..40).for_each(|_| charge.used(1));
            assert_eq!(charge.used_so_far(), 40);
            done()
        });
        service.clone().oneshot(ada()).await.unwrap();
        assert_eq!(left(&layer).await, 960, "{algorithm:?}");
        // Nothing was said: the estimate stays.
        works(&layer, |_| done()).oneshot(ada()).await.unwrap();
        assert_eq!(left(&layer).await, 460, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_charge_is_extended_while_there_is_room() {
    let layer = super::layer(&clock(), [tokens(Algorithm::SLIDING_LOG, 100, 40)]);
    let charge = charge_of_a_request(&layer).await;
    charge.extend(40).await.unwrap();
    let denial = charge.extend(40).await.unwrap_err();
    assert_eq!((denial.violated().collect::<Vec<_>>(), charge.reserved()), (vec!["tokens"], 80));
    assert_eq!(charge.settle(70).await, Settled { charged: 70, ..Settled::default() });
    assert_eq!(left(&layer).await, 30);
}

#[tokio::test]
async fn an_estimate_is_bounded_by_a_share_of_the_quota() {
    let rule = tokens(Algorithm::Gcra, 100, 1_000).reserve_at_most(Share::new(1, 4));
    let layer = super::layer(&clock(), [rule]);
    let service = works(&layer, |charges| {
        assert_eq!(charges.of("tokens").unwrap().reserved(), 25);
        done()
    });
    service.clone().oneshot(ada()).await.unwrap();
    assert_eq!(left(&layer).await, 75);
    let smallest = tokens(Algorithm::Gcra, 1, 1_000).reserve_at_most(Share::new(1, 4));
    let layer = super::layer(&clock(), [smallest]);
    assert_eq!(works(&layer, |_| done()).oneshot(ada()).await.unwrap().status(), StatusCode::OK);
}

/// Otherwise a caller that names its estimate would pass for ever, and owe what is then forgiven.
#[tokio::test]
async fn an_estimate_of_zero_does_not_let_a_caller_in_debt_pass() {
    for algorithm in each_algorithm() {
        let layer = super::layer(&clock(), [tokens(algorithm, 100, 0)]);
        let service = works(&layer, |charges| {
            let charge = charges.of("tokens").unwrap();
            assert_eq!(charge.reserved(), 1);
            charge.used(150);
            done()
        });
        let statuses = [(); 2].map(|()| now(service.clone().oneshot(ada())).unwrap().status().as_u16());
        assert_eq!(statuses, [200, 429], "{algorithm:?}");
    }
}

/// The rule refunds errors, and the handler settles all else.
#[tokio::test]
async fn a_condition_refunds_errors_and_leaves_other_charges_to_the_handler() {
    let succeeded = |response: &ResponseHead<'_>| response.status().is_success();
    let layer = super::layer(&clock(), [tokens(Algorithm::Gcra, 1_000, 500).count_if(succeeded)]);
    for (status, used, expected) in
        [(404, None, 1_000), (502, Some(40), 1_000), (200, Some(40), 960), (200, None, 460)]
    {
        let service = works(&layer, move |charges| {
            if let Some(used) = used {
                charges.of("tokens").unwrap().used(used);
            }
            Response::builder().status(status).body(String::new()).unwrap()
        });
        service.oneshot(ada()).await.unwrap();
        assert_eq!(left(&layer).await, expected, "{status}");
    }
}

/// A rule that does not apply leaves a charge that costs nothing, so that handlers need no case for
/// it.
#[tokio::test]
async fn an_exempt_request_has_a_charge_that_costs_nothing() {
    let layer = super::layer(&clock(), [tokens(Algorithm::Gcra, 100, 10).exempt(|_: &Head<'_>| true)]);
    let service = works(&layer, |charges| {
        let charge = charges.of("tokens").unwrap();
        assert!(now(charge.extend(1_000)).is_ok());
        assert_eq!(
            now(charge.settle(1_000)),
            Settled { charged: 0, debt: 0, forgiven: 1_000, ..Settled::default() }
        );
        done()
    });
    service.oneshot(ada()).await.unwrap();
}

/// Five failures refuse the sixth attempt, and successes do not count.
#[tokio::test]
async fn only_responses_that_fulfil_the_condition_count() {
    for algorithm in each_algorithm() {
        let failures = a_minute("failures", algorithm, 5)
            .by(header("x-user"))
            .count_if(|response| response.status() == StatusCode::UNAUTHORIZED);
        let layer = super::layer(&clock(), [failures]);
        let answers = |status| {
            works(&layer, move |charges| {
                assert!(charges.iter().next().is_none(), "there is nothing for the handler to settle");
                Response::builder().status(status).body(String::new()).unwrap()
            })
        };
        let mut statuses = Vec::new();
        for status in [401, 200, 401, 200, 500, 200, 401, 401, 401, 401, 200] {
            statuses.push(answers(status).oneshot(ada()).await.unwrap().status().as_u16());
        }
        assert_eq!(statuses, [401, 200, 401, 200, 500, 200, 401, 401, 401, 429, 429], "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_response_says_what_the_request_has_cost() {
    let tokens = Policy::new("tokens", Quota::per_minute(1_000)).by(header("x-user")).cost(|_| 500).cost_by(
        |response| {
            response.headers().get("x-tokens").map_or(500, |tokens| tokens.to_str().unwrap().parse().unwrap())
        },
    );
    let layer = super::layer(&clock(), [tokens]);
    for (tokens, expected) in [("137", 863), ("700", 163)] {
        let service = works(&layer, move |_| {
            Response::builder().header("x-tokens", tokens).body(String::new()).unwrap()
        });
        service.oneshot(ada()).await.unwrap();
        assert_eq!(left(&layer).await, expected);
    }
}

/// A failed service, or a caller that leaves, keeps the charge.
#[tokio::test]
async fn without_a_response_the_charge_stays() {
    let failures = a_minute("failures", Algorithm::Gcra, 5).by(header("x-user")).count_if(|_: &_| false);
    let layer = super::layer(&clock(), [failures]);
    let fails = layer.layer(service_fn(async |_: Request<String>| Err::<Response<String>, _>("failed")));
    fails.oneshot(ada()).await.map(drop).unwrap_err();
    assert_eq!(left(&layer).await, 4);
    let hangs = layer.layer(service_fn(async |_: Request<String>| {
        std::future::pending::<Result<Response<String>, Infallible>>().await
    }));
    let waits = tokio::time::timeout(Duration::from_millis(1), hangs.oneshot(ada()));
    assert!(waits.await.is_err());
    assert_eq!(left(&layer).await, 3);
}

/// The unit of one rule stays when the tokens of another are settled.
#[tokio::test]
async fn a_charge_is_of_one_policy() {
    let requests = Policy::new("requests", Quota::per_minute(5)).by(header("x-user"));
    let layer = super::layer(&clock(), [requests, tokens(Algorithm::Gcra, 1_000, 100)]);
    let service = works(&layer, |charges| {
        assert!(charges.of("requests").is_none());
        charges.of("tokens").unwrap().used(1);
        done()
    });
    let mut passed = 0;
    for _ in 0..12 {
        passed += u64::from(service.clone().oneshot(ada()).await.unwrap().status() == StatusCode::OK);
    }
    let report = layer.limiter().look(&Head::from(&ada())).await.unwrap();
    assert_eq!((passed, report.statuses()[1].remaining()), (5, 995));
}

#[tokio::test]
async fn observers_see_what_was_settled_and_forgiven() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let layer = super::layer(&clock(), [tokens(Algorithm::FIXED_WINDOW, 100, 10)])
        .fields(Fields::None)
        .observe(move |decision| sees.lock().unwrap().push((decision.outcome(), decision.units())));
    let service = works(&layer, |charges| {
        charges.of("tokens").unwrap().used(250);
        done()
    });
    service.oneshot(ada()).await.unwrap();
    let expected = [(Outcome::Allowed, 10), (Outcome::Settled, 200), (Outcome::Forgiven, 50)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn observers_see_an_estimate_that_stays_as_settled() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let failures = a_minute("failures", Algorithm::Gcra, 5).by(header("x-user")).count_if(|_: &_| true);
    let layer = super::layer(&clock(), [tokens(Algorithm::Gcra, 100, 10), failures])
        .observe(move |decision| sees.lock().unwrap().push((decision.outcome(), decision.units())));
    works(&layer, |_| done()).oneshot(ada()).await.unwrap();
    let expected =
        [(Outcome::Allowed, 10), (Outcome::Allowed, 1), (Outcome::Settled, 10), (Outcome::Settled, 1)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// The other rules have decided about the request before.
#[tokio::test]
async fn observers_see_an_extension_under_its_own_policy_only() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let requests = || a_minute("requests", Algorithm::Gcra, 5).by(header("x-user"));
    let layer =
        super::layer(&clock(), [requests(), tokens(Algorithm::Gcra, 100, 60)]).observe(move |decision| {
            sees.lock().unwrap().push((decision.policy().name().to_owned(), decision.outcome()));
        });
    let service = works(&layer, |charges| {
        let charge = charges.of("tokens").unwrap();
        assert!(now(charge.extend(30)).is_ok());
        assert!(now(charge.extend(30)).is_err());
        done()
    });
    service.oneshot(ada()).await.unwrap();
    let seen = seen.lock().unwrap();
    let seen: Vec<_> = seen.iter().map(|(policy, outcome)| (policy.as_str(), *outcome)).collect();
    let expected = [
        ("requests", Outcome::Allowed),
        ("tokens", Outcome::Allowed),
        ("tokens", Outcome::Allowed),
        ("tokens", Outcome::Denied),
        ("tokens", Outcome::Settled),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn rules_that_cannot_be_corrected_are_refused() {
    let leaky = Algorithm::LeakyBucket { max_wait: Duration::from_secs(1) };
    let rule = a_minute("tokens", leaky, 5).by(header("x-user"));
    let refused = |rule: Rule| RateLimitLayer::try_new(rule).unwrap_err();
    let no_debt = SetupError::NoDebt("tokens".to_owned());
    assert_eq!(refused(rule.clone().reserve(|_| 1)), no_debt);
    assert_eq!(refused(rule.clone().count_if(|_| true)), no_debt);
    assert_eq!(refused(rule.cost_by(|_| 1)), no_debt);
    let bounded =
        a_minute("tokens", Algorithm::Gcra, 5).by(header("x-user")).reserve_at_most(Share::new(1, 2));
    assert_eq!(refused(bounded), SetupError::NothingReserved("tokens".to_owned()));
}

/// Work that asks for more does not wait for it, and must not go on before its time.
#[tokio::test]
async fn a_charge_of_a_leaky_bucket_is_not_extended_by_a_place_in_its_queue() {
    let limiter = Limiter::new([bucket("mails", Duration::from_secs(60))]).store(store(&clock()));
    let (key, emission) = (Key::from("ada"), Duration::from_millis(100));
    let mut permit = limiter.check(&key, 1).await.unwrap();
    let charge = permit.charge("mails");
    let denial = charge.extend(1).await.unwrap_err();
    assert_eq!((denial.retry_after(), charge.reserved()), (Some(emission), 1));
    assert_eq!(limiter.check(&key, 1).await.unwrap().delay(), emission, "nothing was charged");
}

/// Tiers made before and after `reserve` are corrected too.
#[tokio::test]
async fn tiers_are_reserved_in_any_order() {
    let tiers = |rule: Rule| rule.tiers([("pro", Quota::per_minute(50))], |_, _| Some("pro"));
    let rule = || Policy::new("tokens", Quota::per_minute(5)).by(|_: &Head<'_>| Some(Key::from("ada")));
    for rule in [tiers(rule()).reserve(|_| 40), tiers(rule().reserve(|_| 40))] {
        let layer = super::layer(&clock(), [rule]);
        assert!(layer.limiter().policies().iter().all(|policy| policy.numbers().is_reserved()));
        let service = works(&layer, |charges| {
            charges.of("tokens").unwrap().used(10);
            done()
        });
        service.oneshot(ada()).await.unwrap();
        assert_eq!(left(&layer).await, 40);
    }
}

/// A thousand guesses at once: at most as many reach the password check as may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_guesses_do_not_pass_the_limit_together() {
    let checked = Arc::new(AtomicU32::new(0));
    let checks = Arc::clone(&checked);
    let failures = a_minute("failures", Algorithm::SLIDING_LOG, 5)
        .by(header("x-user"))
        .count_if(|response| response.status() == StatusCode::UNAUTHORIZED);
    let service = super::layer(&clock(), [failures]).layer(service_fn(move |_: Request<String>| {
        checks.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Response::builder().status(401).body(String::new())
        }
    }));
    let guesses: JoinSet<_> = (0..1_000).map(|_| service.clone().oneshot(ada())).collect();
    let answers = guesses.join_all().await;
    let refused = answers.iter().flatten().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((checked.load(Ordering::Relaxed), refused.count()), (5, 995));
}
