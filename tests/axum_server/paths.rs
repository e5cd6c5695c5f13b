//! The route as a key: invented paths must not create quota.

use axum::Router;
use axum::routing::get;
use tollgate::extract::{global, matched_path};
use tollgate_tests::{Client, serve};

use crate::axum_server::two_a_day;

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
async fn a_path_that_spells_the_key_of_unmatched_paths_has_its_own_key() {
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
async fn a_method_that_a_route_does_not_have_is_charged() {
    let app = Router::new().route("/", get(ok)).layer(two_a_day(matched_path()));
    let mut client = Client::connect(serve(app).await).await;
    assert_eq!(client.request("DELETE", "/", &[]).await.status, 405);
    assert_eq!(client.get("/", &[]).await.status, 200);
    assert_eq!(client.request("DELETE", "/", &[]).await.status, 429);
}

/// A log-in with a limit, to be merged into an app.
fn log_in(limit: impl FnOnce(Router) -> Router) -> Router {
    limit(Router::new().route("/log-in", get(ok)))
}

fn layered(part: Router) -> Router {
    part.layer(two_a_day(global()))
}

fn route_layered(part: Router) -> Router {
    part.route_layer(two_a_day(global()))
}

const FAVICONS_THEN_LOG_INS: [&str; 9] = [
    "/favicon.ico",
    "/favicon.ico",
    "/favicon.ico",
    "/favicon.ico",
    "/favicon.ico",
    "/favicon.ico",
    "/log-in",
    "/log-in",
    "/log-in",
];

/// axum merges fallbacks too: the limited "not found" of the part becomes that of the app. The
/// guide warns of it.
#[tokio::test]
async fn a_merged_part_with_layer_charges_unknown_paths_of_the_whole_app() {
    let app = Router::new().route("/", get(ok)).merge(log_in(layered));
    let expected = [404, 404, 429, 429, 429, 429, 429, 429, 429];
    assert_eq!(statuses(app, &FAVICONS_THEN_LOG_INS).await, expected);
}

#[tokio::test]
async fn a_merged_part_with_route_layer_charges_its_own_routes_only() {
    let app = Router::new().route("/", get(ok)).merge(log_in(route_layered));
    let expected = [404, 404, 404, 404, 404, 404, 200, 200, 429];
    assert_eq!(statuses(app, &FAVICONS_THEN_LOG_INS).await, expected);
    // The order of the parts does not matter.
    let app = log_in(route_layered).merge(Router::new().route("/", get(ok)));
    assert_eq!(statuses(app, &FAVICONS_THEN_LOG_INS).await, expected);
}

#[tokio::test]
async fn a_fallback_of_the_app_replaces_the_limited_one_of_a_merged_part() {
    for app in [
        Router::new().fallback(ok).merge(log_in(layered)),
        Router::new().merge(log_in(layered)).fallback(ok),
        // Of two parts without a fallback of their own, that of the last one stays.
        Router::new().merge(log_in(layered)).merge(Router::new().route("/", get(ok))),
    ] {
        let statuses = statuses(app, &FAVICONS_THEN_LOG_INS).await;
        assert!(statuses[..6].iter().all(|status| [200, 404].contains(status)), "{statuses:?}");
        assert_eq!(statuses[6..], [200, 200, 429]);
    }
}

#[tokio::test]
async fn a_nested_part_with_layer_does_not_charge_unknown_paths() {
    let app = Router::new().nest("/part", log_in(layered));
    let asked = ["/nowhere", "/part/nowhere", "/part", "/part/log-in", "/part/log-in", "/part/log-in"];
    assert_eq!(statuses(app, &asked).await, [404, 404, 404, 200, 200, 429]);
    // A fallback of its own is part of the part.
    let app = Router::new().nest("/part", log_in(|part| layered(part.fallback(ok))));
    let asked = ["/nowhere", "/part/nowhere", "/part/nowhere", "/part/log-in"];
    assert_eq!(statuses(app, &asked).await, [404, 200, 200, 429]);
}
