//! A gateway for language models. A key has requests and tokens a minute, a team tokens a day, and
//! each model requests a second. Tokens are charged by an estimate; what was not used goes back.

use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use tollgate::extract::extension_ref;
use tollgate::store::{NeverFails, Store};
use tollgate::{Denial, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer};

/// Whose token a request has.
#[derive(Clone)]
struct Caller {
    key: String,
    team: String,
}

/// Stands for a look into a table of tokens: `Bearer TEAM.KEY`.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.split_once(' ')).map(|(_, token)| token.trim());
    let Some((team, key)) = token.and_then(|token| token.split_once('.')) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let caller = Caller { key: key.to_owned(), team: team.to_owned() };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// What each policy allows.
#[derive(Clone, Copy)]
pub(super) struct Quotas {
    pub(super) requests: Quota,
    pub(super) tokens: Quota,
    pub(super) team_tokens: Quota,
    pub(super) model: Quota,
}

#[derive(Clone)]
struct Gateway<S> {
    limits: Limiter<S>,
    /// Returns how many tokens an answer has taken.
    model: fn(&Value) -> u64,
}

pub(super) fn app<S>(quotas: Quotas, store: S, model: fn(&Value) -> u64) -> Router
where
    S: Store<Error: NeverFails>,
{
    // Known from the head, so the layer refuses before the body is read.
    let requests =
        Policy::new("requests", quotas.requests).by(extension_ref(|caller: &Caller| caller.key.as_str()));
    let limits = Limiter::new([
        Policy::new("tokens", quotas.tokens),
        Policy::new("team-tokens", quotas.team_tokens),
        Policy::new("model", quotas.model),
    ]);
    let gateway = Gateway { limits: limits.store(store.clone()), model };
    Router::new()
        .route("/v1/completions", post(complete))
        .layer(RateLimitLayer::new(requests).store(store))
        .layer(from_fn(authenticate))
        .with_state(gateway)
}

async fn complete<S>(
    State(gateway): State<Gateway<S>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Result<String, Denial>, StatusCode>
where
    S: Store<Error: NeverFails>,
{
    let ask: Value = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let (model, prompt) = (ask["model"].as_str(), ask["prompt"].as_str());
    let (Some(model), Some(prompt)) = (model, prompt) else { return Err(StatusCode::BAD_REQUEST) };
    let most = ask["max_tokens"].as_u64().unwrap_or(1_000);
    let estimate = most.saturating_add(prompt.len() as u64 / 4);
    let (key, team, model) = (Key::from(caller.key), Key::from(caller.team), Key::from(model));
    let asked = [("tokens", &key, estimate), ("team-tokens", &team, estimate), ("model", &model, 1)];
    let mut permit = match gateway.limits.check_each(&asked).await {
        Ok(permit) => permit,
        Err(denial) => return Ok(Err(denial)),
    };
    let used = (gateway.model)(&ask);
    for policy in ["tokens", "team-tokens"] {
        permit.charge(policy).settle(used).await;
    }
    Ok(Ok(format!("{used} tokens")))
}
