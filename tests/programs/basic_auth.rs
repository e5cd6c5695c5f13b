//! A service that counts authenticated users, and others by their address.

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use tollgate::extract::{KeyExtractor, PeerIp, extension_ref};
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tollgate_tests::{Client, clock, serve, store};

#[derive(Clone)]
struct User {
    name: String,
}

/// Credentials that the service knows. The passwords are `pass` of `ada`, and `word` of `bob`.
const KNOWN: [(&str, &str); 2] = [("Basic YWRhOnBhc3M=", "ada"), ("Basic Ym9iOndvcmQ=", "bob")];

/// Lets requests without credentials pass as guests, and refuses wrong ones.
async fn authenticate(headers: HeaderMap, mut request: Request, next: Next) -> Response {
    if let Some(given) = headers.get(AUTHORIZATION) {
        let Some((_, name)) = KNOWN.iter().find(|(known, _)| given == known) else {
            return StatusCode::UNAUTHORIZED.into_response();
        };
        request.extensions_mut().insert(User { name: (*name).to_owned() });
    }
    next.run(request).await
}

fn app() -> Router {
    let user_or_address = extension_ref(|user: &User| user.name.as_str()).or(PeerIp::new());
    let limit = RateLimitLayer::new(Policy::new("api", Quota::per_minute(2)).by(user_or_address));
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(limit.store(store(&clock())))
        .layer(from_fn(authenticate))
}

#[tokio::test]
async fn users_count_by_name_and_guests_by_address() {
    let mut client = Client::connect(serve(app()).await).await;
    let (ada, bob) = ("authorization: Basic YWRhOnBhc3M=", "authorization: Basic Ym9iOndvcmQ=");
    let mut statuses = Vec::new();
    for fields in [&[ada][..], &[ada], &[ada], &[bob], &[], &[], &[]] {
        statuses.push(client.get("/", fields).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 200, 200, 200, 429]);
}

#[tokio::test]
async fn wrong_credentials_find_no_quota_of_their_own() {
    let mut client = Client::connect(serve(app()).await).await;
    for _ in 0..5 {
        assert_eq!(client.get("/", &["authorization: Basic YWRhOm5v"]).await.status, 401);
    }
    assert_eq!(client.get("/", &["authorization: Basic YWRhOnBhc3M="]).await.status, 200);
}
