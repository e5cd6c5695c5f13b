//! The cost of a GraphQL query.

use axum::{Extension, Router, extract::State, routing::post};
use http::Request;
use tollgate::{Denial, Key, Limiter, Policy, Quota};

use crate::guide::{from_peer, shows, status};

#[derive(Clone)]
struct User {
    id: u64,
}

/// At most what the query can select, by its depth and its page sizes.
fn complexity(query: &str) -> u64 {
    query.split_whitespace().count() as u64
}

/// Returns the answer, and the fields that it has.
async fn execute(query: &str) -> (String, u64) {
    (format!("{{\"query\":{query:?}}}"), 2)
}

async fn graphql(
    State(fields): State<Limiter>,
    Extension(user): Extension<User>,
    query: String,
) -> Result<String, Denial> {
    let estimate = complexity(&query).max(1);
    let mut permit = fields.check(&Key::from(user.id), estimate).await?;
    let (answer, used) = execute(&query).await;
    // Less than estimated is given back, and more is owed.
    permit.charge("fields").settle(used).await;
    Ok(answer)
}

fn app() -> Router {
    let fields = Limiter::new([Policy::new("fields", Quota::per_hour(10))]);
    Router::new().route("/graphql", post(graphql)).layer(Extension(User { id: 7 })).with_state(fields)
}

#[tokio::test]
async fn a_query_is_charged_what_it_selects() {
    shows("recipes/callers.md", include_str!("graphql.rs"), &["fn complexity"]);
    let app = app();
    let ask = async |query: &str| status(&app, from_peer(1, Request::post("/graphql"), query)).await;
    assert_eq!([ask("a b c d e f g h i j").await, ask("a b c d e f g h").await], [200, 200]);
    assert_eq!([ask("a b c d e f g").await, ask("a b c d e f g h i j k").await], [429, 422]);
}
