//! A gateway for language models. A key has requests and tokens a minute, a team tokens a day, and
//! each model requests a second. Tokens are charged by an estimate; what was not used goes back.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tollgate::extract::bearer;
use tollgate::store::{NeverFails, Store};
use tollgate::{Denial, Key, Limiter, Policy, PolicyExt, Quota, RateLimitLayer, Rule};

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
    let requests: Rule = Policy::new("requests", quotas.requests).by(bearer());
    let limits = Limiter::new([
        Policy::new("tokens", quotas.tokens),
        Policy::new("team-tokens", quotas.team_tokens),
        Policy::new("model", quotas.model),
    ]);
    let gateway = Gateway { limits: limits.store(store.clone()), model };
    Router::new()
        .route("/v1/completions", post(complete))
        .layer(RateLimitLayer::new(requests).store(store))
        .with_state(gateway)
}

async fn complete<S>(
    State(gateway): State<Gateway<S>>,
    headers: HeaderMap,
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
    let header = |name| headers.get(name).map(|value| Key::from_bytes(value.as_bytes()));
    let (Some(key), Some(team)) = (header("authorization"), header("x-team")) else {
        return Err(StatusCode::BAD_REQUEST);
    };
    let model = Key::from(model);
    let asked = [("tokens", &key, estimate), ("team-tokens", &team, estimate), ("model", &model, 1)];
    let mut permit = match gateway.limits.check_each(&asked).await {
        Ok(permit) => permit,
        Err(denial) => return Ok(Err(denial)),
    };
    let used = (gateway.model)(&ask).min(estimate);
    for policy in ["tokens", "team-tokens"] {
        gateway.limits.refund_units(&mut permit, policy, estimate - used).await;
    }
    Ok(Ok(format!("{used} tokens")))
}
