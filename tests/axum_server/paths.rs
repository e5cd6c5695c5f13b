//! The route as a key: invented paths must not mint quota.

use axum::Router;
use axum::routing::get;
use tollgate::extract::matched_path;
use tollgate_tests::{Client, serve};

use crate::two_a_day;

async fn ok() -> &'static str {
    "ok"
}

/// The statuses of requests to these paths, one after the other.
async fn statuses(app: Router, paths: &[&str]) -> Vec<u16> {
    let mut client = Client::connect(serve(app).await).await;
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(client.get(path, &[]).await.status);
    }
    statuses
}

#[tokio::test]
async fn paths_of_one_route_share_a_key_and_routes_do_not() {
    let app =
        Router::new().route("/users/{id}", get(ok)).route("/", get(ok)).layer(two_a_day(matched_path()));
    let asked = ["/users/1", "/users/2?x=1", "/users/3", "/", "/?x=2", "/"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 200, 200, 429]);
}

#[tokio::test]
async fn unknown_paths_share_one_key() {
    let app = Router::new().route("/", get(ok)).layer(two_a_day(matched_path()));
    let asked = ["/invented", "/too", "/as/well", "/%2e", "/invented", "/"];
    assert_eq!(statuses(app, &asked).await, [404, 404, 429, 429, 429, 200]);
}

#[tokio::test]
async fn a_path_that_spells_the_key_of_the_unmatched_is_another() {
    let app = Router::new().route("/(unmatched)", get(ok)).layer(two_a_day(matched_path()));
    let asked = ["/(unmatched)", "/(unmatched)", "/(unmatched)", "/other"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 404]);
}

#[tokio::test]
async fn nested_routers_are_keyed_by_their_whole_route() {
    let inner = || Router::new().route("/{id}", get(ok));
    let app = Router::new().nest("/a", inner()).nest("/b", inner()).layer(two_a_day(matched_path()));
    let asked = ["/a/1", "/a/2", "/a/3", "/b/1", "/b/2", "/b/3", "/a", "/b", "/c"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 200, 200, 429, 404, 404, 429]);
}

#[tokio::test]
async fn a_layer_inside_a_nested_router_limits_that_router_only() {
    let inner = Router::new().route("/{id}", get(ok)).layer(two_a_day(matched_path()));
    let app = Router::new().nest("/a", inner).route("/b/{id}", get(ok));
    let asked = ["/a/1", "/a/2", "/a/3", "/b/1", "/b/2", "/b/3"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 200, 200, 200]);
}

#[tokio::test]
async fn a_route_layer_limits_routes_and_not_the_fallback() {
    let app = Router::new().route("/{id}", get(ok)).route_layer(two_a_day(matched_path()));
    let asked = ["/1", "/2", "/3", "/no/such", "/no/route", "/at/all"];
    assert_eq!(statuses(app, &asked).await, [200, 200, 429, 404, 404, 404]);
}

#[tokio::test]
async fn a_method_that_a_route_does_not_have_counts_as_well() {
    let app = Router::new().route("/", get(ok)).layer(two_a_day(matched_path()));
    let mut client = Client::connect(serve(app).await).await;
    assert_eq!(client.request("DELETE", "/", &[]).await.status, 405);
    assert_eq!(client.get("/", &[]).await.status, 200);
    assert_eq!(client.request("DELETE", "/", &[]).await.status, 429);
}
