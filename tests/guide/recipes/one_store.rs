//! One store for many layers.

use axum::{Router, routing::get};
use http::Request;
use tollgate::extract::PeerIp;
use tollgate::{MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer};

use crate::guide::{from_peer, shows, status};

fn app(store: &MemoryStore) -> Router {
    let limit = |name: &str, quota| {
        RateLimitLayer::new(Policy::new(name, quota).by(PeerIp::new())).store(store.clone())
    };
    let search = Router::new().route("/search", get(|| async {}));
    let search = search.route_layer(limit("search", Quota::per_minute(1)));
    let export = Router::new().route("/export", get(|| async {}));
    let export = export.route_layer(limit("export", Quota::per_day(1)));
    search.merge(export).layer(limit("address", Quota::per_minute(4)))
}

#[tokio::test]
async fn layers_of_one_store_count_separately_by_their_policies() {
    shows("recipes/applications.md", include_str!("one_store.rs"), &["fn app(store: &MemoryStore)"]);
    let store = MemoryStore::builder().max_keys(100_000).build();
    let app = app(&store);
    let get = async |path: &str| status(&app, from_peer(1, Request::get(path), "")).await;
    assert_eq!([get("/search").await, get("/search").await, get("/export").await], [200, 429, 200]);
    assert_eq!([get("/other").await, get("/other").await], [404, 429]);
    assert_eq!(store.keys(), 3);
}
