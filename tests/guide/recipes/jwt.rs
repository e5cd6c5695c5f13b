//! The user of a JWT.

use axum::middleware::{Next, from_fn};
use axum::routing::get;
use axum::{Router, extract::Request, response::Response};
use http::StatusCode;
use tollgate::extract::extension_ref;
use tollgate::{Policy, PolicyExt, Quota, RateLimitLayer};
use tower::ServiceBuilder;

use crate::guide::{from_peer, shows, status};

#[derive(Clone)]
struct Claims {
    sub: String,
}

fn verified(token: &str) -> Option<Claims> {
    // Check the signature and the expiry here, with a crate for JWT.
    Some(Claims { sub: token.strip_prefix("valid ")?.split(' ').next()?.to_owned() })
}

async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.strip_prefix("Bearer "));
    let claims = token.and_then(verified).ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(claims);
    Ok(next.run(request).await)
}

fn limited(routes: Router) -> Router {
    let by_user = extension_ref(|claims: &Claims| claims.sub.as_str());
    routes.layer(
        ServiceBuilder::new()
            .layer(RateLimitLayer::per_ip(Quota::per_minute(300)))
            .layer(from_fn(authenticate))
            .layer(RateLimitLayer::new(Policy::new("user", Quota::per_minute(2)).by(by_user))),
    )
}

#[tokio::test]
async fn all_tokens_of_a_user_count_together() {
    shows("recipes/callers.md", include_str!("jwt.rs"), &["struct Claims"]);
    let app = limited(Router::new().route("/", get(|| async { "hello" })));
    let get = async |token: &str| {
        let request = http::Request::get("/").header("authorization", format!("Bearer {token}"));
        status(&app, from_peer(1, request, "")).await
    };
    assert_eq!([get("forged").await, get("valid ada 1").await, get("valid ada 2").await], [401, 200, 200]);
    assert_eq!([get("valid ada 3").await, get("valid bob 1").await], [429, 200]);
}
