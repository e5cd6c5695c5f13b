//! A rule by an extension that no layer has inserted. Alone in its process, because the message is
//! logged once per process.

use axum::Router;
use axum::routing::get;
use tollgate::extract::{KeyExtractor, PeerIp, extension};
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, Level, Log, serve};

#[derive(Clone)]
struct Tenant {
    id: u64,
}

fn layer(key: impl KeyExtractor) -> RateLimitLayer {
    RateLimitLayer::new([Policy::new("tenant", Quota::per_minute(100)).by(key)])
}

#[tokio::test]
async fn a_missing_extension_is_named_once_in_the_log() {
    if crate::ran_in_own_process(a_missing_extension_is_named_once_in_the_log) {
        return;
    }
    let log = Log::of_process(Level::INFO);
    let by_tenant = || extension(|tenant: &Tenant| tenant.id);
    let hello = || Router::new().route("/", get(|| async { "hello" }));

    // Another key is the alternative, so nothing is refused or reported.
    let with_fallback = serve(hello().layer(layer(by_tenant().or(PeerIp::new())))).await;
    assert_eq!(Client::connect(with_fallback).await.get("/", &[]).await.status, 200);
    let errors = || log.lines().into_iter().filter(|line| line.contains("ERROR")).collect::<Vec<_>>();
    assert_eq!(errors(), [""; 0]);

    // The mistake: the layer that inserts the tenant is inside the limit.
    let insert = axum::Extension(Tenant { id: 7 });
    let wrong = serve(hello().layer(insert.clone()).layer(layer(by_tenant()))).await;
    let mut client = Client::connect(wrong).await;
    for _ in 0..5 {
        assert_eq!(client.get("/", &[]).await.status, 400);
    }
    let errors = errors();
    let [error] = &errors[..] else { panic!("not one error but {errors:?}") };
    assert!(error.contains("missing_extension::Tenant"), "{error}");
    assert!(error.contains("order of the layers"), "{error}");

    let right = serve(hello().layer(layer(by_tenant())).layer(insert)).await;
    assert_eq!(Client::connect(right).await.get("/", &[]).await.status, 200);
}
