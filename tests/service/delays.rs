//! Leaky buckets delay early requests exactly until their slot.

use std::time::Duration;

use tollgate::{Algorithm, Fields, Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Later, Strict, call, clock, field, per_user, queue, request, store, user};
use tower::{Layer, Service, ServiceExt};

use crate::service::{layer, timed};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn requests_that_arrive_at_once_leave_one_by_one() {
    let mut service = layer(&clock(), [queue("q", 500 * MS)]).layer(Strict::default());
    let mut pending = Vec::new();
    for n in 0..6_u32 {
        let response = service.ready().await.unwrap().call(request("ada"));
        pending.push((n, tokio::spawn(timed(response))));
    }
    for (n, response) in pending {
        let (response, elapsed) = response.await.unwrap();
        assert_eq!(response.unwrap().status(), 200);
        assert_eq!(elapsed, n * 100 * MS, "request {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_user_has_its_own_queue() {
    let mut service = layer(&clock(), [queue("q", 500 * MS)]).layer(Strict::default());
    for user in ["ada", "bob", "cy"] {
        assert_eq!(timed(call(&mut service, request(user))).await.1, Duration::ZERO, "{user}");
    }
    assert_eq!(timed(call(&mut service, request("bob"))).await.1, 100 * MS);
}

/// The fields show the state at the time when the request passes.
#[tokio::test(start_paused = true)]
async fn fields_of_a_delayed_request_count_from_when_it_passes() {
    let slow = || {
        Policy::new("q", Quota::per_second(1))
            .with_algorithm(Algorithm::LeakyBucket { max_wait: 30_000 * MS })
    };
    for (fields, told) in [(Fields::Ietf, "ratelimit"), (Fields::XDelta, "x-ratelimit-reset")] {
        let mut service = layer(&clock(), [slow().by(user())]).fields(fields).layer(Strict::default());
        let mut pending = Vec::new();
        for _ in 0..4 {
            pending.push(tokio::spawn(timed(service.ready().await.unwrap().call(request("ada")))));
        }
        for (n, response) in (0_u32..).zip(pending) {
            let (response, elapsed) = response.await.unwrap();
            assert_eq!(elapsed, n * 1_000 * MS);
            let expected = if fields == Fields::Ietf { "\"q\";r=0;t=1" } else { "1" };
            assert_eq!(field(&response.unwrap(), told), Some(expected), "request {n}");
        }
    }
}

/// One task may hold several responses, and poll one after another.
#[tokio::test(start_paused = true)]
async fn a_delay_begins_with_the_call_and_not_with_the_first_poll() {
    let mut service = layer(&clock(), [queue("q", 500 * MS)]).layer(Strict::default());
    let mut responses = Vec::new();
    for _ in 0..4 {
        responses.push(service.ready().await.unwrap().call(request("ada")));
    }
    let (_, elapsed) = timed(async {
        for response in responses {
            response.await.unwrap();
        }
    })
    .await;
    assert_eq!(elapsed, 300 * MS);
}

/// Time passes in the store as it does for callers.
#[tokio::test(start_paused = true)]
async fn sequential_requests_are_evenly_spaced() {
    let clock = clock();
    let mut service = layer(&clock, [queue("q", 500 * MS)]).layer(Strict::default());
    assert_eq!(timed(call(&mut service, request("ada"))).await.1, Duration::ZERO);
    for _ in 0..5 {
        let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
        clock.advance(elapsed);
        assert_eq!((response.status().as_u16(), elapsed), (200, 100 * MS));
    }
    clock.advance(130 * MS);
    assert_eq!(timed(call(&mut service, request("ada"))).await.1, Duration::ZERO, "the slot had come");
    clock.advance(70 * MS);
    assert_eq!(timed(call(&mut service, request("ada"))).await.1, 30 * MS, "slots are not made up for");
}

#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_longest_is_refused_at_once() {
    let mut service = layer(&clock(), [queue("q", 250 * MS)]).layer(Strict::default());
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let response = service.ready().await.unwrap().call(request("ada"));
        statuses.push(tokio::spawn(timed(response)));
    }
    let mut answers = Vec::new();
    for response in statuses {
        let (response, elapsed) = response.await.unwrap();
        let response = response.unwrap();
        answers.push((response.status().as_u16(), elapsed));
        if response.status() == 429 {
            assert_eq!(field(&response, "retry-after"), Some("1"), "50 ms, rounded up");
            assert_eq!(field(&response, "ratelimit"), Some("\"q\";r=0;t=1"));
        }
    }
    let passed = [0, 100, 200].map(|ms| (200, ms * MS));
    assert_eq!(answers[..3], passed);
    assert_eq!(answers[3..], [(429, Duration::ZERO); 2]);
}

#[tokio::test(start_paused = true)]
async fn several_leaky_buckets_delay_by_the_longest_delay() {
    let slow = |name, per_second| {
        Policy::new(name, Quota::per_second(per_second))
            .with_algorithm(Algorithm::LeakyBucket { max_wait: Duration::from_secs(10) })
            .by(user())
    };
    for rules in [[slow("a", 10), slow("b", 4)], [slow("b", 4), slow("a", 10)]] {
        let layer = layer(&clock(), rules);
        let mut service = layer.layer(Strict::default());
        for n in 0..4_u32 {
            // The store's clock stands still, so all of these come at once.
            let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
            assert_eq!((response.status().as_u16(), elapsed), (200, n * 250 * MS));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_rule_refuses_reserves_no_slot() {
    let store = store(&clock());
    let both = RateLimitLayer::new([queue("q", 500 * MS), per_user("p", 2)]).store(store.clone());
    let mut service = both.layer(Strict::default());
    for expected in [0, 100] {
        assert_eq!(timed(call(&mut service, request("ada"))).await.1, expected * MS);
    }
    let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
    assert_eq!((response.status().as_u16(), elapsed), (429, Duration::ZERO));
    let mut queue_alone = RateLimitLayer::new([queue("q", 500 * MS)]).store(store).layer(Strict::default());
    assert_eq!(timed(call(&mut queue_alone, request("ada"))).await.1, 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn an_awaited_verdict_delays_the_request() {
    let store = Later::deciding_last(store(&clock()));
    let mut service = RateLimitLayer::new([queue("q", 200 * MS)])
        .store(store)
        .fields(Fields::None)
        .layer(Strict::default());
    for (status, delay) in [(200, 0), (200, 100), (200, 200), (429, 0)] {
        let (response, elapsed) = timed(call(&mut service, request("ada"))).await;
        assert_eq!((response.status().as_u16(), elapsed), (status, delay * MS));
    }
}

#[tokio::test]
async fn a_limiter_reserves_the_slot_and_reports_the_wait() {
    let limiter = layer(&clock(), [queue("q", 250 * MS)]).limiter();
    let ada = request("ada");
    let ada = tollgate::Head::from(&ada);
    for delay in [0, 100, 200] {
        assert_eq!(limiter.check(&ada).await.unwrap().delay(), delay * MS);
    }
    assert_eq!(limiter.check(&ada).await.unwrap_err().retry_after(), Some(50 * MS));
}
