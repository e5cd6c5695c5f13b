//! What the log says of a setup, with its permanent code: each in a real server, and once. Alone in
//! their processes, because each is logged once per process.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn;
use axum::routing::get;
use http::StatusCode;
use tollgate::extract::{ClientIp, PeerIp, global};
use tollgate::{Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer, Slot, StoreExt};
use tollgate_core::LogCode;
use tollgate_redis::RedisStore;
use tollgate_test_servers::{Kind, Server};
use tollgate_tests::{Client, Level, Log, Proxy, serve};
use tower::{Layer, ServiceExt};

/// Fails unless exactly this code was logged, once, in a line that has `text`.
fn has_only(log: &Log, code: LogCode, text: &str) {
    let lines = log.lines();
    let codes: Vec<_> = lines.iter().filter(|line| line.contains("TOLLGATE_E")).collect();
    let [line] = codes[..] else { panic!("not one code but {lines:?}") };
    assert!(line.contains(&code.to_string()) && line.contains(text), "{line}");
}

fn has_none(log: &Log) {
    assert!(log.lines().iter().all(|line| !line.contains("TOLLGATE_E")), "{:?}", log.lines());
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

fn hundred(name: &str) -> Policy {
    Policy::new(name, Quota::per_minute(100))
}

#[tokio::test]
async fn a_field_of_a_proxy_at_a_rule_by_peer_address_is_logged() {
    if crate::ran_in_own_process(a_field_of_a_proxy_at_a_rule_by_peer_address_is_logged) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let by_client = ClientIp::from_header("x-forwarded-for").trusting(["127.0.0.1"]);
    let right = serve(hello().layer(RateLimitLayer::new(hundred("right").by(by_client)))).await;
    let wrong = serve(hello().layer(RateLimitLayer::new(hundred("wrong").by(PeerIp::new())))).await;
    let mut client = Client::connect(right).await;
    assert_eq!(client.get("/", &["x-forwarded-for: 192.0.2.1"]).await.status, 200);
    let mut client = Client::connect(wrong).await;
    assert_eq!(client.get("/", &[]).await.status, 200);
    has_none(&log);
    for _ in 0..3 {
        assert_eq!(client.get("/", &["x-forwarded-for: 192.0.2.1"]).await.status, 200);
    }
    has_only(&log, LogCode::ProxyField, "`x-forwarded-for`");
}

#[tokio::test]
async fn trusted_proxies_that_cover_every_address_are_logged() {
    if crate::ran_in_own_process(trusted_proxies_that_cover_every_address_are_logged) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let by_client = |networks: &[&str]| ClientIp::from_header("x-forwarded-for").trusting(networks);
    by_client(&["10.0.0.0/8", "fd00::/8", "2000::/3"]);
    has_none(&log);
    for networks in [["10.0.0.0/8", "0.0.0.0/0"], ["::/0", "10.0.0.0/8"]] {
        let layer = RateLimitLayer::new(hundred("all").by(by_client(&networks)));
        let mut client = Client::connect(serve(hello().layer(layer)).await).await;
        assert_eq!(client.get("/", &["x-forwarded-for: 192.0.2.1"]).await.status, 200);
    }
    has_only(&log, LogCode::TrustsAll, "`x-forwarded-for`");
}

#[tokio::test]
async fn a_request_that_two_layers_charge_for_the_same_is_logged() {
    if crate::ran_in_own_process(a_request_that_two_layers_charge_for_the_same_is_logged) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let layer = RateLimitLayer::new([hundred("all").by(global()), hundred("ip").by(PeerIp::new())]);
    let other = RateLimitLayer::new([hundred("other").by(global()), hundred("more").by(PeerIp::new())]);
    // Two layers, and one request after another, charge nothing twice.
    let mut client = Client::connect(serve(hello().layer(layer.clone()).layer(other)).await).await;
    for _ in 0..3 {
        assert_eq!(client.get("/", &[]).await.status, 200);
    }
    has_none(&log);
    let mut client = Client::connect(serve(hello().layer(layer.clone()).layer(layer)).await).await;
    for _ in 0..3 {
        let answer = client.get("/", &[]).await;
        assert_eq!(answer.status, 200);
    }
    has_only(&log, LogCode::ChargedTwice, "\"all\"");
}

#[tokio::test]
async fn a_layer_that_is_made_for_each_request_is_logged() {
    if crate::ran_in_own_process(a_layer_that_is_made_for_each_request_is_logged) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let shared = RateLimitLayer::new(Policy::new("shared", Quota::per_second(1_000_000)).by(global()));
    // The mistake: what is made here has forgotten the requests before.
    let limited = from_fn(|request: Request, next: axum::middleware::Next| async move {
        let layer = RateLimitLayer::new(hundred("api").by(global()));
        layer.layer(next).oneshot(request).await.unwrap()
    });
    let right = serve(hello().layer(shared)).await;
    let wrong = serve(hello().layer(limited)).await;
    let (mut right, mut wrong) = (Client::connect(right).await, Client::connect(wrong).await);
    for _ in 0..500 {
        assert_eq!(right.get("/", &[]).await.status, 200);
        assert_eq!(wrong.get("/", &[]).await.status, 200);
    }
    let kept = Limiter::new([hundred("kept")]);
    for _ in 0..2 {
        assert!(kept.check(&Key::from("ada"), 1).await.is_ok());
    }
    // They are no longer in a row.
    drop(kept);
    for _ in 0..600 {
        assert_eq!(wrong.get("/", &[]).await.status, 200);
    }
    has_none(&log);
    for _ in 0..500 {
        assert_eq!(wrong.get("/", &[]).await.status, 200);
    }
    has_only(&log, LogCode::MadePerRequest, "1000 limiters");
    for _ in 0..2_000 {
        assert!(Limiter::new([hundred("api")]).check(&Key::from("ada"), 1).await.is_ok());
    }
    has_only(&log, LogCode::MadePerRequest, "1000 limiters");
}

#[tokio::test]
async fn a_socket_whose_slot_nobody_took_is_logged() {
    if crate::ran_in_own_process(a_socket_whose_slot_nobody_took_is_logged) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let switch = || StatusCode::SWITCHING_PROTOCOLS;
    let taken = move |slot: Slot| async move {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            drop(slot);
        });
        switch()
    };
    let released = move |slot: Slot| async move {
        slot.release();
        switch()
    };
    let app = Router::new()
        .route("/taken", get(taken))
        .route("/released", get(released))
        .route("/left", get(async move || switch()))
        .layer(RateLimitLayer::new(Policy::in_flight("sockets", 10).by(global())));
    let address = serve(app).await;
    let upgrade = ["connection: upgrade", "upgrade: echo"];
    for path in ["/taken", "/released"] {
        assert_eq!(Client::connect(address).await.get(path, &upgrade).await.status, 101);
    }
    has_none(&log);
    for _ in 0..3 {
        assert_eq!(Client::connect(address).await.get("/left", &upgrade).await.status, 101);
    }
    has_only(&log, LogCode::SlotNotTaken, "`Slot`");
}

/// A failover to a server whose clock is an hour behind.
#[tokio::test]
async fn a_clock_of_redis_that_steps_is_logged() {
    if crate::ran_in_own_process(a_clock_of_redis_that_steps_is_logged) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let right = Server::start(Kind::Redis8_2).unwrap();
    let behind = Server::start_behind(Kind::Redis8_2, Duration::from_secs(3_600), &[]).unwrap();
    let proxy = Proxy::before(right.address()).await;
    let store = RedisStore::connect(&format!("redis://{}/", proxy.address())).await.unwrap();
    let layer = RateLimitLayer::new(hundred("api").by(global())).store(store.fail_closed());
    let mut client = Client::connect(serve(hello().layer(layer)).await).await;
    for _ in 0..3 {
        assert_eq!(client.get("/", &[]).await.status, 200);
    }
    has_none(&log);
    proxy.lead_to(behind.address());
    proxy.cut();
    let mut passed = 0;
    while passed < 3 {
        passed += u32::from(client.get("/", &[]).await.status == 200);
    }
    has_only(&log, LogCode::ClockStepped, "more than 10 s");
}
